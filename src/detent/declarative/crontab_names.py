"""A short name for a command: `nice -n 10 flock -n /run/x /usr/bin/python3 /opt/report.py -v` is `report`."""

from __future__ import annotations

import re
import shlex

LONGEST = 60

_PARTS = re.compile(r"&&|\|\||[;|\n]")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_STEPS = frozenset({"cd", "test", "[", "[[", "command", "sleep", "export", "umask", ".", "source", "set", "true", "if"})
_SYNTAX = ("then", "do", "else", "exec", "!")
_INTERPRETERS = re.compile(r"(?:ba|da|z|k)?sh|(?:python|php|perl|ruby|node|java|pwsh)[\d.]*|run-parts")
# Programs that run another one, each with the number of its own arguments before that, without options.
_WRAPPERS = {
    "nice": 0,
    "ionice": 0,
    "nohup": 0,
    "time": 0,
    "sudo": 0,
    "env": 0,
    "flock": 1,
    "timeout": 1,
} | dict.fromkeys(("chronic", "setsid", "run-one", "systemd-cat"), 0)
_WITH_VALUE = {("nice", "-n"), ("ionice", "-n"), ("ionice", "-c"), ("sudo", "-u"), ("sudo", "-g"), ("flock", "-w")}


def name_for(command: str, fallback: str) -> str:
    for part in _PARTS.split(command):
        words = _words(part.strip(" \t(){}"))
        while words and words[0] in _SYNTAX:
            words.pop(0)
        if words and words[0] not in _STEPS:
            name = _slug(_program(words))
            if name:
                return name
    return fallback


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is closed in another part
        return text.split()


def _program(words: list[str]) -> str:
    """The word that says what runs: behind variables, wrappers with their options, and interpreters."""
    left = list(words)
    while left and (_ASSIGNMENT.fullmatch(left[0]) or _base(left[0]) in _WRAPPERS):
        left = _behind(_base(left[0]), left[1:])
    scripts = [word for word in left[1:] if not word.startswith("-")]
    if scripts and _INTERPRETERS.fullmatch(_base(left[0])) and " " not in scripts[0]:
        return scripts[0]
    return left[0] if left else ""


def _behind(wrapper: str, words: list[str]) -> list[str]:
    """What is left behind the options and the own words of a wrapper."""
    own = _WRAPPERS.get(wrapper, 0)
    position = 0
    while position < len(words):
        if words[position].startswith("-"):
            position += 2 if (wrapper, words[position]) in _WITH_VALUE else 1
        elif own:
            own -= 1
            position += 1
        else:
            break
    return words[position:]


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _slug(word: str) -> str:
    base = re.sub(r"\.\w{1,4}$", "", _base(word.strip("'\"").rstrip("/")))
    return re.sub(r"[\W_]+", "-", base.lower()).strip("-")[:LONGEST].rstrip("-")
