"""What a function returned, as the JSON that is stored as the result of its run.

A value without a JSON form is an error of the function: the text of an object, such as `<Order object at 0x7f…>`, would
be stored as if it were a result, and the mistake would be found only by the program that reads it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from detent.errors import NotRetryable
from detent.targets.text import storable_text

MAX_RESULT_BYTES = 16_384
LONGEST_REASON = 200
ADVICE = "return a dict, list, string, number, dataclass, msgspec Struct, pydantic model, or None"


class NotJson(NotRetryable):
    """A function returned a value that has no JSON form. A retry would return the same type."""


def as_json(result: object, limit: int = MAX_RESULT_BYTES) -> str | None:
    """The result of a function as JSON, truncated to the limit. Raises NotJson if it has no JSON form."""
    if result is None:
        return None
    text = _encoded(storable_text(result) if type(result) is str else result)
    if len(text) > limit:
        text = msgspec.json.encode({"truncated": True, "beginning": text[:limit]}).decode()
    return text.replace("\\u0000", "\\ufffd")


def _encoded(result: object) -> str:
    try:
        return msgspec.json.encode(result, enc_hook=_other_form).decode()
    except _NoForm as found:
        raise NotJson(f"{_returned(result)}{_part(found.value, result)}, which has no JSON form: {ADVICE}.") from None
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        why = storable_text(str(error))[:LONGEST_REASON].rstrip(".")
        raise NotJson(f"{_returned(result)}, which has no JSON form ({why}): {ADVICE}.") from None


def _returned(result: object) -> str:
    return f"The function returned an object of type {_name(result)}"


def _part(value: object, result: object) -> str:
    if value is result:
        return ""
    # Both are arrays in JSON, except as keys.
    what = "keys" if isinstance(value, tuple | frozenset) else "an object"
    return f" with {what} of type {_name(value)}"


class _NoForm(Exception):  # noqa: N818 - it carries the value to the sentence
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


def _other_form(value: Any) -> Any:
    """What msgspec does not know: models of pydantic, which need not be installed."""
    kind = type(value)
    if hasattr(kind, "__pydantic_serializer__") and hasattr(kind, "model_dump_json"):
        return msgspec.Raw(value.model_dump_json().encode())
    raise _NoForm(value)


def _name(value: object) -> str:
    """The name of its type, past a metaclass or a `__class__` that says otherwise."""
    kind = type(value)
    name: str = type.__dict__["__qualname__"].__get__(kind)
    return name.rpartition("<locals>.")[2]
