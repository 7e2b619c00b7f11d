"""The plan of `detent apply`: compare files with the server, show the differences, and make the changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from detent.cli import base, output
from detent.cli.failures import DetailedError
from detent.cli.invocation import invocation
from detent.cli.output import Item
from detent.cli.progress import Progress
from detent.cli.text import clean, flat
from detent.domain.counts import plural
from detent.errors import DetentError, ManyFaults, NotFound

if TYPE_CHECKING:
    from rich.text import Text

    from detent.client import JsonClient
    from detent.declarative.jobs_file import Declared
    from detent.declarative.plan import Difference, Plan, PlanStep

BATCH = 500
LOOKED_UP_SINGLY = 20
MAX_SHOWN = 100
MAX_NAMED = 3  # jobs that one warning of the server is about
MAX_TEXT = 70
LONG = 1e15  # larger floats are clearer in exponent form

SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


def plan_for(client: JsonClient, declared: Sequence[Declared], prune: str | None) -> Plan:
    """`prune` is the owner whose other jobs are to be deleted."""
    from detent.declarative.plan import make_plan

    current = _current(client, [job.name for job in declared])
    prunable = list(client.list_jobs(owner=prune)) if prune is not None else []
    return make_plan(declared, current, prunable)


def _current(client: JsonClient, names: Sequence[str]) -> dict[str, Item]:
    if len(names) > LOOKED_UP_SINGLY:
        wanted = set(names)
        return {job["name"]: job for job in client.list_jobs() if job["name"] in wanted}
    found: dict[str, Item] = {}
    for name in names:
        try:
            found[name] = client.get_job(name)
        except NotFound:
            pass
    return found


# --- showing the plan ---


def summary(plan: Plan) -> str:
    parts = [f"{len(plan.of(action))} to {action}" for action in ("create", "update", "delete") if plan.of(action)]
    same = len(plan.of("unchanged"))
    if not parts:
        return f"Nothing to change: {same} unchanged."
    return f"{', '.join(parts)}{f'; {same} unchanged' if same else ''}."


def document_of(plan: Plan) -> dict[str, Any]:
    counts = {action: len(plan.of(action)) for action in ("create", "update", "unchanged", "delete")}
    return {**counts, "steps": [_step(step) for step in plan.steps if step.action != "unchanged"]}


def _step(step: PlanStep) -> dict[str, Any]:
    where = {"file": step.declared.source, "line": step.declared.line} if step.declared else {}
    return {"action": step.action, "name": step.name, **where, "differences": list(map(_difference, step.differences))}


def _difference(one: Difference) -> dict[str, Any]:
    found = {"path": one.path}
    if one.has_before:
        found["before"] = one.before
    if one.has_after:
        found["after"] = one.after
    return found


def show_plan(plan: Plan) -> None:
    """On a terminal a coloured list of the changes; in a pipe one line per change."""
    if invocation().format == "json":
        return
    steps = plan.of("create", "update", "delete")
    if invocation().format == "quiet":
        output.print_lines((step.name,) for step in steps)
    elif not base.on_terminal():
        output.print_lines(row for step in steps for row in _rows(step))
    else:
        terminal = output.console()
        for step in steps[:MAX_SHOWN]:
            for line in _lines(step):
                terminal.print(line, overflow="ellipsis", no_wrap=True, crop=True)
        if len(steps) > MAX_SHOWN:
            terminal.print(f"… and {len(steps) - MAX_SHOWN} more")
    output.say(summary(plan))
    _warn(step for step in steps if step.declared is not None)


def _warn(steps: Iterable[PlanStep]) -> None:
    for step in steps:
        for warning in step.declared.warnings if step.declared else ():
            output.say(f"note: {step.name}: {warning}")


def _rows(step: PlanStep) -> Iterator[tuple[object, ...]]:
    if step.action != "update":
        yield step.action, step.name
        return
    for one in step.differences:
        yield step.action, step.name, one.path, _text(one.before, one.has_before), _text(one.after, one.has_after)


def _lines(step: PlanStep) -> Iterator[Text]:
    from rich.text import Text

    sign, style = SIGNS[step.action]
    yield Text(f"{sign} {step.action} {clean(step.name)}", style=style)
    for one in step.differences:
        line = Text(f"    {one.path}: ")
        if one.has_before:
            line.append(_text(one.before, True), style="red")
            line.append(" → ")
        line.append(_text(one.after, True) if one.has_after else "(gone)", style="green" if one.has_after else "dim")
        yield line


def _text(value: object, there: bool) -> str:
    if not there:
        return ""
    text = flat(value_text(value))
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def value_text(value: object) -> str:
    """The value as JSON; whole numbers without the .0 that the API writes for some of them."""
    if isinstance(value, float) and value.is_integer() and abs(value) < LONG:
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


# --- executing the plan ---


def carry_out(client: JsonClient, plan: Plan) -> dict[str, int]:
    """Make the changes in batches. After an interruption, finished batches stay."""
    done = {"created": 0, "updated": 0, "deleted": 0, "unchanged": len(plan.of("unchanged"))}
    noted: dict[str, list[str]] = {}
    try:
        with Progress("jobs", plan.changes) as progress:
            for steps in _batches(plan.of("create", "update")):
                for step, item in zip(steps, _send(client, steps), strict=True):
                    # The server reports a job of which only the owner changed as unchanged.
                    done["updated" if item["change"] == "unchanged" and step.differences else item["change"]] += 1
                    _note(noted, step, item)
                progress.advance(len(steps))
            for step in plan.of("delete"):
                _delete(client, step)
                done["deleted"] += 1
                progress.advance()
    except DetentError as error:
        made = done["created"] + done["updated"] + done["deleted"]
        if made:
            cause = error.message.rstrip(".")
            error.message = f"{cause}. {made} of {plural(plan.changes, 'change')} made: repeat the command to continue."
        raise
    finally:
        _say_notes(noted)
    return done


def _note(noted: dict[str, list[str]], step: PlanStep, item: Item) -> None:
    """Keep the warnings of the server that the plan has not shown, each with the jobs that it is about."""
    shown = step.declared.warnings if step.declared else ()
    for warning in item.get("warnings", ()):
        if warning not in shown:
            noted.setdefault(warning, []).append(step.name)


def _say_notes(noted: dict[str, list[str]]) -> None:
    for warning, names in noted.items():
        more = len(names) - MAX_NAMED
        listed = ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        output.say(f"note: {listed}: {warning}")


def _batches(steps: Sequence[PlanStep]) -> Iterator[list[PlanStep]]:
    """Batches of jobs of one owner."""
    for _, same in groupby(steps, key=lambda step: step.declared.owner if step.declared else None):
        group = list(same)
        for start in range(0, len(group), BATCH):
            yield group[start : start + BATCH]


def _send(client: JsonClient, steps: Sequence[PlanStep]) -> list[Item]:
    jobs = [step.declared for step in steps if step.declared is not None]
    try:
        answer = client.create_jobs([job.document for job in jobs], upsert=True, owner=jobs[0].owner)
    except ManyFaults as error:
        raise _refused(jobs, error) from error
    found: list[Item] = answer["items"]
    return found


def _refused(jobs: Sequence[Declared], error: ManyFaults) -> DetailedError:
    """The errors that only the server can find, with the lines of the files."""
    lines = []
    for fault in error.faults:
        index, _, _ = fault.pointer.removeprefix("/").partition("/")
        job = jobs[int(index)]
        lines.append(f"{job.source}:{job.line}: {fault.message}")
    count = len(lines)
    return DetailedError(f"The server refused {plural(count, 'job')}: no job of that batch was changed.", lines)


def _delete(client: JsonClient, step: PlanStep) -> None:
    assert step.current is not None
    try:
        client.delete_job(step.current["id"])
    except NotFound:
        pass  # already deleted


def say_done(done: dict[str, int]) -> None:
    parts = [f"{count} {word}" for word, count in done.items() if count]
    output.say(f"Done: {', '.join(parts) or 'nothing to do'}.")
    if invocation().format == "json":
        output.print_json(done)
