"""One grammar for the `search` of every list: `name:mail tag:nightly next:<1h weekly`.

Words and `field:value` pairs, separated by spaces; all of them must match. A word is searched in the name. A value with
spaces, or with a literal colon or comma, goes in double quotes. Where a field can only have one value, a comma means
or: `status:paused,completed`. A time is a duration (`30m`, `1h`, `2d`, `1w`) or an instant
(`2026-12-24T18:00:00Z`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar, get_args

from detent.contract.job import JobStatus
from detent.domain.job import TargetKind
from detent.domain.refusal import nearest, shown
from detent.domain.states import RunStatus
from detent.errors import UsageError
from detent.store.job_search import JobSearch, Moment

POINTER = "/search"
MAX_TERMS = 20
_PART = re.compile(r'(?:(?P<field>[A-Za-z_]+):)?(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s"]*))(?P<rest>\S*)')
_DURATION = re.compile(r"(?P<number>[0-9]{1,7})(?P<unit>[smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_BOUND = re.compile(r"(?P<side>[<>])=?(?P<moment>.+)")
LONGEST = timedelta(days=36_525)

Choice = TypeVar("Choice", bound=str)
Result = TypeVar("Result")


class Term(NamedTuple):
    """A word (`field` is empty) or a pair. `quoted` values are literal."""

    field: str
    value: str
    quoted: bool


class RunSearch(NamedTuple):
    """All of these must match; None matches everything. `job` is a name or an id. Contradicting statuses leave none."""

    job: str | None = None
    statuses: frozenset[RunStatus] | None = None
    since: Moment | None = None
    until: Moment | None = None


def job_search(text: str, start: JobSearch) -> JobSearch:
    """`start` and everything that the text asks for."""
    for term in terms(text):
        start = _one_of(term, _JOB_FIELDS)(start, term)
    return start


def run_search(text: str, start: RunSearch) -> RunSearch:
    for term in terms(text):
        start = _one_of(term, _RUN_FIELDS)(start, term)
    return start


def terms(text: str) -> Iterator[Term]:
    position, count = 0, 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        part = _PART.match(text, position)
        assert part is not None
        yield _term(part, text)
        position = part.end()
        count += 1
        if count > MAX_TERMS:
            raise UsageError(f"The search has more than {MAX_TERMS} parts: leave some out.", POINTER)


def _term(part: re.Match[str], text: str) -> Term:
    if part["rest"]:
        raise UsageError(
            f"The search {shown(text)} has an unmatched quotation mark, or one inside a word: "
            'write a value with spaces as name:"a b".',
            POINTER,
        )
    quoted = part["quoted"] is not None
    value = re.sub(r"\\(.)", r"\1", part["quoted"]) if quoted else part["plain"]
    field = (part["field"] or "").lower()
    if not value:
        raise UsageError(f"The search has no value after {field or 'a quotation mark'}: give one.", POINTER)
    return Term(field, value, quoted)


def _one_of(term: Term, fields: Mapping[str, Callable[[Result, Term], Result]]) -> Callable[[Result, Term], Result]:
    if term.field in fields:
        return fields[term.field]
    known = [name for name in fields if name]
    if not term.field:
        raise UsageError(
            f"The search has the word {shown(term.value)} without a field: write one of {', '.join(known)}, as in "
            f"{known[0]}:{term.value}.",
            POINTER,
        )
    near = nearest(term.field, known)
    meant = f"did you mean {near}? " if near else ""
    raise UsageError(
        f"The search has no field {shown(term.field)}: {meant}Known are {', '.join(known)}; "
        "put text that has a colon in quotes.",
        POINTER,
    )


# -- fields of jobs


def _word(search: JobSearch, term: Term) -> JobSearch:
    return search._replace(words=(*search.words, term.value))


def _name(search: JobSearch, term: Term) -> JobSearch:
    if term.quoted or not term.value.endswith("*"):
        return _word(search, term)
    prefix = term.value.removesuffix("*")
    before = search.prefix or ""
    if not prefix.startswith(before) and not before.startswith(prefix):
        return search._replace(statuses=())
    return search._replace(prefix=max(prefix, before, key=len) or None)


def _tag(search: JobSearch, term: Term) -> JobSearch:
    return search._replace(tags=(*search.tags, term.value))


def _job_status(search: JobSearch, term: Term) -> JobSearch:
    wanted: tuple[JobStatus, ...] = _choices(term, get_args(JobStatus))
    before = wanted if search.statuses is None else search.statuses
    return search._replace(statuses=tuple(status for status in wanted if status in before))


def _target(search: JobSearch, term: Term) -> JobSearch:
    wanted: tuple[TargetKind, ...] = _choices(term, get_args(TargetKind))
    kept = tuple(kind for kind in wanted if not search.targets or kind in search.targets)
    return search._replace(targets=kept) if kept else search._replace(statuses=())


def _queue(search: JobSearch, term: Term) -> JobSearch:
    wanted = (term.value,) if term.quoted else tuple(filter(None, term.value.split(",")))
    kept = tuple(queue for queue in wanted if not search.queues or queue in search.queues)
    return search._replace(queues=kept) if kept else search._replace(statuses=())


def _next(search: JobSearch, term: Term) -> JobSearch:
    bound = _BOUND.fullmatch(term.value)
    if bound is None:
        raise UsageError(f"The search has next:{term.value}: write next:<1h or next:>1d.", POINTER)
    moment = _moment(bound["moment"], "next:<1h")
    if bound["side"] == "<":
        return search._replace(next_before=moment)
    return search._replace(next_after=moment)


_JOB_FIELDS: Mapping[str, Callable[[JobSearch, Term], JobSearch]] = {
    "": _word,
    "name": _name,
    "tag": _tag,
    "status": _job_status,
    "target": _target,
    "queue": _queue,
    "next": _next,
}


# -- fields of runs


def _job(search: RunSearch, term: Term) -> RunSearch:
    if search.job is not None and search.job != term.value:
        raise UsageError("The search names two jobs, and a run has one: leave one of them out.", POINTER)
    return search._replace(job=term.value)


def _run_status(search: RunSearch, term: Term) -> RunSearch:
    wanted = frozenset(RunStatus(status) for status in _choices(term, tuple(status.value for status in RunStatus)))
    return search._replace(statuses=wanted if search.statuses is None else search.statuses & wanted)


def _since(search: RunSearch, term: Term) -> RunSearch:
    _check_once(term, search.since)
    return search._replace(since=_past(term.value, f"{term.field}:1h"))


def _until(search: RunSearch, term: Term) -> RunSearch:
    _check_once(term, search.until)
    return search._replace(until=_past(term.value, f"{term.field}:1h"))


def _check_once(term: Term, given: Moment | None) -> None:
    if given is not None:
        raise UsageError(f"The search has {term.field}, and it is given already: leave one of them out.", POINTER)


def _past(text: str, example: str) -> Moment:
    moment = _moment(text, example)
    return -moment if isinstance(moment, timedelta) else moment


def past_moment(name: str, text: str | None) -> Moment | None:
    """The query parameter of this name: an instant, or a duration before now."""
    try:
        return None if text is None else _past(text, f"{name}=1h")
    except UsageError as error:
        raise UsageError(error.message.replace("The search has the time", f"{name} is"), f"/{name}") from None


_RUN_FIELDS: Mapping[str, Callable[[RunSearch, Term], RunSearch]] = {
    "job": _job,
    "status": _run_status,
    "since": _since,
    "until": _until,
}


# -- values


def _choices(term: Term, known: tuple[Choice, ...]) -> tuple[Choice, ...]:
    wanted = [value.strip().lower() for value in term.value.split(",")]
    for value in wanted:
        if value not in known:
            raise UsageError(
                f"The search has {term.field}:{value}: give {', '.join(known[:-1])} or {known[-1]}.", POINTER
            )
    return tuple(value for value in known if value in wanted)


def _moment(text: str, example: str) -> Moment:
    duration = _DURATION.fullmatch(text)
    if duration is not None:
        length = timedelta(**{_UNITS[duration["unit"]]: int(duration["number"])})
        if length <= LONGEST:
            return length
    else:
        try:
            instant = datetime.fromisoformat(text)
            if instant.tzinfo is not None and 1970 < instant.year < 9000:
                return instant.astimezone(UTC)
        except ValueError:
            pass
    raise UsageError(
        f"The search has the time {shown(text)}: write a duration, as in {example}, or an instant such as "
        "2026-12-24T18:00:00Z.",
        POINTER,
    )
