"""Helpers for sentences in English: lists, ordinals, rhythms."""

from __future__ import annotations

from collections.abc import Sequence

MONTH_NAMES = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
DAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
NUMBER_WORDS = ("", "first", "second", "third", "fourth", "fifth")


def bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def join(items: Sequence[object], word: str = "and") -> str:
    texts = [str(item) for item in items]
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} {word} {texts[-1]}"


def ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def every(number: int, noun: str) -> str:
    return f"every {noun}" if number == 1 else f"every {number} {noun}s"


def clock(second_of_day: int) -> str:
    hour, rest = divmod(second_of_day, 3600)
    minute, second = divmod(rest, 60)
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"


def cycle_run(values: list[int], low: int, high: int) -> tuple[int, int] | None:
    """The two ends when `values` are one run of at least three, counted around the corner if need be."""
    present = set(values)
    if len(present) < 3 or len(present) > high - low:
        return None
    size = high - low + 1
    starts = [value for value in values if low + (value - low - 1) % size not in present]
    if len(starts) != 1:
        return None
    return starts[0], low + (starts[0] - low + len(present) - 1) % size


def names(values: list[int], labels: Sequence[str], low: int) -> str:
    """'Monday to Friday', 'Monday and Friday'; `low` is the number of the first label."""
    ends = cycle_run(values, low, low + len(labels) - 1)
    if ends is not None:
        return f"{labels[ends[0] - low]} to {labels[ends[1] - low]}"
    return join([labels[value - low] for value in values])


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
