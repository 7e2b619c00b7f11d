"""Regular expressions whose cost grows with the length of the text and nothing else. No I/O.

Python's `re` tries one way after another, and a pattern such as `^(a+)+$` makes it try exponentially many, on the loop
that fires. Here all ways are followed together, one character at a time (Thompson's construction), and the sets of
places that were reached are remembered. What that cannot express, such as references to groups and looking around, is
refused. The syntax is that of JSON Schema, ECMA-262, as far as it is described in docs/howto/payload-schemas.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

MAX_CHARACTERS = 500
MAX_STATES = 1_000
MAX_KEPT_PLACES = 50_000
"""Of all sets of places that one memory holds."""
PLACES_A_STEP = 20
"""So many places of a set cost as much as one step of a check."""
MAX_NESTED = 32
LAST_CHARACTER = chr(0x10FFFF)

Range = tuple[str, str]
Spend = Callable[[int], None]

DIGITS: tuple[Range, ...] = (("0", "9"),)
WORD: tuple[Range, ...] = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
SPACE: tuple[Range, ...] = (
    ("\t", "\r"), (" ", " "), ("\u00a0", "\u00a0"), ("\u1680", "\u1680"), ("\u2000", "\u200a"),
    ("\u2028", "\u2029"), ("\u202f", "\u202f"), ("\u205f", "\u205f"), ("\u3000", "\u3000"), ("\ufeff", "\ufeff"),
)  # fmt: skip
LINE_ENDS: tuple[Range, ...] = (("\n", "\n"), ("\r", "\r"), ("\u2028", "\u2029"))
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
CODES = {"x": 2, "u": 4}
SYNTAX = frozenset("^$\\.*+?()[]{}|/-")


class BadPattern(ValueError):  # noqa: N818 - it says what it is
    """What is wrong with a pattern, in words that continue a sentence."""


class CharacterSet(NamedTuple):
    """`ranges` are in order and do not overlap."""

    ranges: tuple[Range, ...]
    negated: bool = False

    def has(self, character: str) -> bool:
        before = bisect_right(self.ranges, (character, LAST_CHARACTER))
        return self.negated != (before > 0 and character <= self.ranges[before - 1][1])


class PatternState(NamedTuple):
    """A place in the pattern. `accepts`: the next character takes it to `following`; else it goes there without one, if
    `only` allows it: at the start or the end of the text. No `following`: the pattern has matched."""

    accepts: CharacterSet | None
    following: tuple[int, ...]
    only: str = ""


Node = Callable[[int], int]
"""Adds the states of a part of the pattern in front of a state, at least one; returns where the part begins."""


def _nothing(end: int) -> int:
    """The node of an empty group, the only one that adds no state. No other node contains it: repeated, it would take
    time that no number of states bounds."""
    return end


class PatternMemory:
    """Which places follow which others by which character, of the patterns that share it. Their sizes are bounded
    together. Used by several threads."""

    def __init__(self) -> None:
        self._steps: dict[tuple[Pattern, frozenset[int], str], frozenset[int]] = {}
        self.places = 0

    def get(self, pattern: Pattern, reached: frozenset[int], character: str) -> frozenset[int] | None:
        return self._steps.get((pattern, reached, character))

    def keep(self, pattern: Pattern, reached: frozenset[int], character: str, following: frozenset[int]) -> None:
        size = 1 + len(reached) + len(following)
        if self.places + size > MAX_KEPT_PLACES:
            self._steps.clear()
            self.places = 0
        self._steps[pattern, reached, character] = following
        self.places += size


class Pattern:
    """A pattern that occurs anywhere in a text, unless it is anchored."""

    def __init__(self, text: str, memory: PatternMemory | None = None) -> None:
        self.text = text
        self._memory = memory or PatternMemory()
        self._states: list[PatternState] = [PatternState(None, ())]
        self._first = _Reader(text, self._states).read()(0)
        self._starts = self._closure([self._first], "^")
        self._restarts = self._closure([self._first], "")

    @property
    def places(self) -> int:
        return len(self._states)

    def found_in(self, text: str, spend: Spend) -> bool:
        """`spend` is called with what each character costs, and may raise."""
        memory = self._memory
        reached = self._starts
        spend(1)
        for character in text:
            if 0 in reached:
                return True
            following = memory.get(self, reached, character)
            if following is None:
                spend(len(self._states))
                following = self._step(reached, character)
                memory.keep(self, reached, character, following)
            spend(1 + len(reached) // PLACES_A_STEP)
            reached = following
        if 0 in reached:
            return True
        spend(len(self._states) // PLACES_A_STEP)
        return 0 in self._closure(reached, "$" if text else "^$")

    def _step(self, reached: frozenset[int], character: str) -> frozenset[int]:
        states = self._states
        taken = [
            states[each].following[0]
            for each in reached
            if (accepts := states[each].accepts) is not None and accepts.has(character)
        ]
        return self._closure(taken, "") | self._restarts

    def _closure(self, begin: Iterable[int], at: str) -> frozenset[int]:
        """All states that are reached without a character. Those that only the end of the text lets pass stay in the
        set, so that the end finds them."""
        seen: set[int] = set()
        todo = list(begin)
        while todo:
            number = todo.pop()
            if number in seen:
                continue
            seen.add(number)
            state = self._states[number]
            if state.accepts is None and (not state.only or state.only in at):
                todo.extend(state.following)
        return frozenset(seen)


class _Reader:
    """Reads the text of a pattern once, from left to right."""

    def __init__(self, text: str, states: list[PatternState]) -> None:
        if len(text) > MAX_CHARACTERS:
            raise BadPattern(f"has {len(text)} characters, and at most {MAX_CHARACTERS} are read")
        self._text = text
        self._states = states
        self._at = 0
        self._nested = 0

    def read(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise BadPattern(f"has a {self._text[self._at]!r} without its counterpart at position {self._at}")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise BadPattern("ends too early")
        self._at += 1
        return character

    def _alternatives(self) -> Node:
        self._nested += 1
        if self._nested > MAX_NESTED:
            raise BadPattern(f"has more than {MAX_NESTED} groups inside each other")
        nodes = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            nodes.append(self._sequence())
        self._nested -= 1
        return nodes[0] if len(nodes) == 1 else lambda end: self._state(None, [node(end) for node in nodes])

    def _sequence(self) -> Node:
        nodes: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if (node := self._repeated(self._atom())) is not _nothing:
                nodes.append(node)
        if not nodes:
            return _nothing

        def made(end: int) -> int:
            for node in reversed(nodes):
                end = node(end)
            return end

        return made

    def _atom(self) -> Node:
        character = self._take()
        match character:
            case "^" | "$":
                return lambda end: self._state(None, [end], character)
            case "(":
                return self._group()
            case "[":
                return self._one_of(self._class())
            case ".":
                return self._one_of(CharacterSet(LINE_ENDS, negated=True))
            case "\\":
                return self._one_of(self._escape())
            case "*" | "+" | "?" | "{":
                raise BadPattern(f"has {character!r} at position {self._at - 1} with nothing to repeat before it")
            case _:
                return self._one_of(CharacterSet(((character, character),)))

    def _group(self) -> Node:
        if self._peek() == "?":
            if self._text[self._at : self._at + 2] != "?:":
                raise BadPattern("looks around or names a group, which is not supported: use (…) or (?:…)")
            self._at += 2
        node = self._alternatives()
        if self._peek() != ")":
            raise BadPattern("has a '(' without its ')'")
        self._at += 1
        return node

    def _one_of(self, accepts: CharacterSet) -> Node:
        return lambda end: self._state(accepts, [end])

    def _repeated(self, node: Node) -> Node:
        least, most = self._bounds()
        if (least, most) == (1, 1):
            return node
        if self._peek() == "?":  # which match is taken does not matter here
            self._at += 1
        if self._peek() and self._peek() in "*+?{":
            raise BadPattern(f"repeats a repetition at position {self._at}: put the first into a group")
        if node is _nothing or most == 0:
            return _nothing

        def made(end: int) -> int:
            if most is None:
                loop = self._state(None, [end])
                self._states[loop] = PatternState(None, (node(loop), end))
                end = loop
            last = end
            for _ in range(0 if most is None else most - least):
                end = self._state(None, [node(end), last])
            for _ in range(least):
                end = node(end)
            return end

        return made

    def _bounds(self) -> tuple[int, int | None]:
        character = self._peek()
        if character and character in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        if character != "{":
            return 1, 1
        end = self._text.find("}", self._at)
        written = self._text[self._at + 1 : end] if end > 0 else ""
        least, comma, most = written.partition(",")
        numbers = [least, most] if most else [least]
        if not all(part.isascii() and part.isdecimal() and len(part) < 5 for part in numbers):
            raise BadPattern(
                f"has a '{{' at position {self._at} that is no repetition: write \\{{, or {{2}} or {{2,5}}"
            )
        self._at = end + 1
        bounds = int(least), (int(most) if most else None) if comma else int(least)
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise BadPattern(f"repeats at least {bounds[0]} and at most {bounds[1]} times")
        return bounds

    def _class(self) -> CharacterSet:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[Range] = []
        while self._peek() != "]":
            first = self._member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                ranges.append(_range(first, self._member()))
            else:
                ranges.extend(_complete(first))
        self._at += 1
        return CharacterSet(_in_order(ranges), negated)

    def _member(self) -> CharacterSet:
        character = self._take()
        return self._escape() if character == "\\" else CharacterSet(((character, character),))

    def _escape(self) -> CharacterSet:
        character = self._take()
        if character.lower() in CLASSES:
            return CharacterSet(CLASSES[character.lower()], negated=character.isupper())
        if character in CODES:
            digits = self._text[self._at : self._at + CODES[character]]
            try:
                found = chr(int(digits, 16)) if len(digits) == CODES[character] else None
            except ValueError:
                found = None
            if found is None:
                raise BadPattern(f"has \\{character} without {CODES[character]} hexadecimal digits behind it")
            self._at += CODES[character]
            return CharacterSet(((found, found),))
        literal = CONTROLS.get(character) or (character if character in SYNTAX else None)
        if literal is None:
            raise BadPattern(f"has \\{character}, which is not supported: \\d, \\w, \\s and escaped signs are")
        return CharacterSet(((literal, literal),))

    def _state(self, accepts: CharacterSet | None, following: list[int], only: str = "") -> int:
        if len(self._states) >= MAX_STATES:
            raise BadPattern(f"is too large: with its repetitions it has more than {MAX_STATES} places")
        self._states.append(PatternState(accepts, tuple(following), only))
        return len(self._states) - 1


def _range(first: CharacterSet, last: CharacterSet) -> Range:
    ends = [each.ranges[0] for each in (first, last) if len(each.ranges) == 1 and not each.negated]
    if len(ends) < 2 or any(low != high for low, high in ends) or ends[0][0] > ends[1][0]:
        raise BadPattern("has a range of characters that is none: write it as a-z")
    return ends[0][0], ends[1][0]


def _in_order(ranges: list[Range]) -> tuple[Range, ...]:
    """The same characters in ranges that do not overlap."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complete(member: CharacterSet) -> Iterable[Range]:
    """The ranges of a member of a class, which may be one of \\D, \\W and \\S."""
    if not member.negated:
        return member.ranges
    gaps: list[Range] = []
    low = "\0"
    for first, last in member.ranges:
        if low < first:
            gaps.append((low, chr(ord(first) - 1)))
        low = chr(ord(last) + 1)
    return [*gaps, (low, LAST_CHARACTER)]
