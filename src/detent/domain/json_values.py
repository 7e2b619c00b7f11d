"""Values of a function's parameters and its result as JSON, by their annotations.

msgspec does the work: scalars, times, containers, dataclasses, Structs, attrs classes, unions. Models of pydantic are
recognised by their methods, so that pydantic is imported only where an annotation needs it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import msgspec
import msgspec.inspect


class NoJsonForm(TypeError):  # noqa: N818 - it says what is wrong
    """A type or a value that JSON cannot carry; the message is the end of a sentence."""


class JsonType:
    """One annotation: from values to JSON and back."""

    def __init__(self, annotation: Any) -> None:
        self.models = has_model(annotation)
        self._type = annotation
        self._adapter = None
        try:
            self._decoder = msgspec.json.Decoder(self._type, dec_hook=_from_json)
            _check(msgspec.inspect.type_info(self._type), set())
        except (TypeError, NameError) as error:
            if not self.models or isinstance(error, NoJsonForm):
                raise NoJsonForm(str(error)) from error
            self._adapter = _adapter(annotation)  # msgspec has no unions of models

    def encoded(self, value: Any) -> bytes:
        """The value as JSON, if it is of this type. Raises ValueError or TypeError."""
        if self._adapter is not None:
            raw: bytes = self._adapter.dump_json(self._adapter.validate_python(value))
            return raw
        raw = msgspec.json.encode(value, enc_hook=_to_json)
        self._decoder.decode(raw)
        return raw

    def from_json(self, value: Any) -> Any:
        """The value of decoded JSON. Raises ValueError."""
        if self._adapter is not None:
            return self._adapter.validate_json(msgspec.json.encode(value))
        return msgspec.convert(value, self._type, str_keys=True, dec_hook=_from_json)


def json_of(value: Any) -> Any:
    """The value as decoded JSON, whatever its type. Raises TypeError or ValueError if it has no JSON form."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_to_json))


def has_model(annotation: Any) -> bool:
    """Whether pydantic is needed for it."""
    return _is_model(annotation) or any(has_model(each) for each in get_args(annotation) if each is not annotation)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")


def _to_json(value: Any) -> Any:
    if _is_model(type(value)):
        return value.model_dump(mode="json")
    raise NoJsonForm(f"{type(value).__name__} has no JSON form")


def _from_json(kind: Any, value: Any) -> Any:
    if _is_model(kind):
        return kind.model_validate_json(msgspec.json.encode(value))
    if kind is object:  # any JSON, wherever it stands in an annotation
        return value
    raise NoJsonForm(f"{kind} has no JSON form")


@cache
def _type_adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter


def _adapter(annotation: Any) -> Any:
    return _type_adapter()(annotation)


def _check(info: Any, seen: set[int]) -> None:
    """Refuse types that only a hook could decode, however deep they are."""
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType) and info.cls is not object and not _is_model(info.cls):
        raise NoJsonForm(f"{info.cls.__qualname__} has no JSON form")
    for name in getattr(info, "__struct_fields__", ()):
        part = getattr(info, name)
        for each in part if isinstance(part, tuple) else (part,):
            if isinstance(each, msgspec.inspect.Type | msgspec.inspect.Field):
                _check(each, seen)
