"""The lines of a crontab, as cron reads them: settings, comments, jobs. What they mean for detent is in `crontab`.

A setting holds for the lines below it. In a command, the first `%` ends the command and begins its standard input,
every further one ends a line of it, and `\\%` is a plain percent sign.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

_SETTING = re.compile(r"""(?P<name>"[^"]+"|'[^']+'|[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*)""", re.DOTALL)
_TIME = r"[0-9*/,\-~?]+"
_NAMED = r"[0-9A-Za-z*/,\-~?#]+"  # months and days of the week
_FIVE = re.compile(
    rf"(?P<schedule>{_TIME}[ \t]+{_TIME}[ \t]+{_TIME}[ \t]+{_NAMED}[ \t]+{_NAMED})[ \t]+(?P<rest>\S.*)", re.DOTALL
)
_MACRO = re.compile(r"(?P<schedule>@\w+)[ \t]+(?P<rest>\S.*)", re.DOTALL)
_BEGINS = re.compile(r"[*0-9@]")
_USER = re.compile(r"(?P<user>[A-Za-z_][\w.-]*\$?)(?P<group>:[\w./-]+)?[ \t]+(?P<command>\S.*)", re.DOTALL)
_PERCENT = re.compile(r"(?<!\\)%")

Kind = Literal["blank", "comment", "off", "setting", "job", "refused"]


class CronJob(NamedTuple):
    schedule: str
    user: str | None
    command: str
    stdin: str | None
    quiet: bool  # a dash before the first field: cron does not log it


class CronLine(NamedTuple):
    """`off` is a job behind a comment sign; of a setting, `name` and `value`; of a refused line, `value` says why."""

    number: int
    text: str
    kind: Kind
    job: CronJob | None = None
    name: str = ""
    value: str = ""


def has_user_column(text: str, users: Collection[str]) -> bool:
    """Whether every job of it names a known user before its command, as in /etc/crontab."""
    words = [match["user"] if match else "" for match in map(_USER.match, _rests(text.splitlines()))]
    return bool(words) and all(word in users for word in words)


def _rests(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        stripped = line.strip().removeprefix("-")
        found = _split(stripped) if not stripped.startswith("#") and not _SETTING.fullmatch(stripped) else None
        if found is not None:
            yield found["rest"]


def read_crontab(text: str, *, user_column: bool) -> list[CronLine]:
    return [_line(number, line, user_column) for number, line in enumerate(text.splitlines(), 1)]


def _line(number: int, text: str, user_column: bool) -> CronLine:
    line = text.strip()
    if not line:
        return CronLine(number, text, "blank")
    if line.startswith("#"):
        said = line.lstrip("#").strip()
        off = bool(_BEGINS.match(said)) and _job(said, user_column) is not None
        return CronLine(number, text, "off" if off else "comment", value=said)
    setting = _SETTING.fullmatch(line)
    if setting:
        return CronLine(number, text, "setting", name=_unquoted(setting["name"]), value=_unquoted(setting["value"]))
    job = _job(line, user_column)
    if job is not None:
        return CronLine(number, text, "job", job)
    return CronLine(number, text, "refused", value=_why(line, user_column))


def _job(line: str, user_column: bool) -> CronJob | None:
    quiet = line.startswith("-")
    found = _split(line.removeprefix("-"))
    if found is None:
        return None
    user, rest = None, found["rest"]
    if user_column:
        named = _USER.fullmatch(rest)
        if named is None:
            return None
        user, rest = named["user"], named["command"]
    command, *stdin = _PERCENT.split(rest)
    text = "\n".join(stdin).replace("\\%", "%") if stdin else None
    command = command.replace("\\%", "%").strip()
    return CronJob(" ".join(found["schedule"].split()), user, command, text, quiet) if command else None


def _split(line: str) -> re.Match[str] | None:
    return _MACRO.fullmatch(line) if line.startswith("@") else _FIVE.fullmatch(line)


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _why(line: str, user_column: bool) -> str:
    words = line.split()
    wanted = "a user and a command" if user_column else "a command"
    if line.startswith("@"):
        return f"There is no {wanted.removeprefix('a ')} after {words[0]}"
    if len(words) <= 5:
        return f"A job has five fields and {wanted}, and this line has {len(words)} in all"
    return f"This is neither a setting (NAME=value) nor five schedule fields and {wanted}"
