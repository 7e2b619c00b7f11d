"""Names of functions that jobs call: `module:function`, or whatever name the app gave it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_NEAR = 3
# To compare names takes time with their length and number, which users choose.
LONGEST_COMPARED = 200
MOST_COMPARED = 2000


def near_functions(name: str, known: Iterable[str]) -> list[str]:
    """The functions that a wrong name may mean: those with the same last part (`resize` for `images:resize`), then
    those that are spelled alike."""
    if len(name) > LONGEST_COMPARED:
        return []
    compared = sorted(set(known))[:MOST_COMPARED]
    same = [each for each in compared if each != name and _last(each) == _last(name)]
    alike = difflib.get_close_matches(name, compared, n=MAX_NEAR, cutoff=0.6)
    parts = difflib.get_close_matches(_last(name), {_last(each) for each in compared}, n=MAX_NEAR, cutoff=0.8)
    alike += [each for each in compared if _last(each) in parts]
    return [each for each in dict.fromkeys([*same, *alike]) if each != name][:MAX_NEAR]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'a' or 'b'?)`, or nothing."""
    near = [repr(each) for each in near_functions(name, known)]
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _last(name: str) -> str:
    return name.rpartition(":")[2].rpartition(".")[2]
