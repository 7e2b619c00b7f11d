"""The page of a run shows what its attempts wrote, how far it is, and why attempts failed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from detent.domain.identity import RunKey, run_id
from detent.domain.run_output import OutputLine, encode_lines
from tests.dashboard.pages import Pages
from tests.support.factories import add_job, add_live_run, add_node

NODE = 7
AT = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
FIRST, SECOND = 1 << 22 | 1, 1 << 22 | 2


async def running(sql: Any) -> str:
    """The path of the page of a run whose second attempt runs."""
    job = await add_job(sql)
    await add_node(sql, NODE)
    await add_live_run(sql, job, AT, attempt=2, token=SECOND, owner=NODE, started_at=AT)
    await sql.execute(
        "INSERT INTO attempts (job, scheduled_at, serial, token, node, started_at, finished_at, attempt, outcome,"
        " traceback) VALUES ($1, $2, 0, $3, $4, $2, $2, 1, 'failed', 'Traceback of <this>')",
        *(job, AT, FIRST, NODE),
    )
    return f"/runs/{run_id(RunKey(job, AT))}"


async def write(sql: Any, token: int, attempt: int, part: int, lines: list[OutputLine]) -> None:
    await sql.execute(
        "INSERT INTO run_logs (job, scheduled_at, serial, token, attempt, part, first, last, lines)"
        " SELECT job, scheduled_at, serial, $1, $2, $3, $4, $5, $6 FROM live_runs",
        *(token, attempt, part, lines[0].number, lines[-1].number, encode_lines(lines)),
    )


async def card(pages: Pages, path: str) -> str:
    shown = (await pages.get(path)).text
    found = re.search(r'<section class="card" id="output".*?</section>', shown, re.DOTALL)
    assert found is not None
    return re.sub(r"<[^>]+>", "", found[0])


async def test_lines_are_shown_by_attempt_with_their_loggers_and_gaps(pages: Pages, sql: Any) -> None:
    path = await running(sql)
    assert "No lines yet" in await card(pages, path)
    await write(sql, FIRST, 1, 1, [OutputLine(1, 0, "info", "stdout", "loading <1>")])
    await write(sql, SECOND, 2, 1, [OutputLine(1, 0, "info", "stderr", "once more")])
    await write(sql, SECOND, 2, 2, [OutputLine(5, 0, "warning", "shop.orders", "slow")])
    shown = [line.strip() for line in (await card(pages, path)).splitlines() if line.strip()]
    texts = [re.sub(r"^1970-01-01 00:00:00Z ", "", line) for line in shown]
    assert texts == [
        "Output",
        "loading &lt;1&gt;",
        "Attempt 2",
        "stderr: once more",
        "… 3 lines left out",
        "warning shop.orders: slow",
    ]


async def test_an_attempt_that_was_not_counted_has_the_number_of_the_next_one_and_its_own_lines(
    pages: Pages, sql: Any
) -> None:
    path = await running(sql)
    await sql.execute("UPDATE attempts SET attempt = 2, outcome = 'lost', started_at = NULL")
    await write(sql, FIRST, 2, 1, [OutputLine(1, 0, "info", "stdout", "a"), OutputLine(2, 0, "info", "stdout", "b")])
    await write(sql, SECOND, 2, 1, [OutputLine(1, 0, "info", "stdout", "a")])
    assert re.findall(r"Attempt \d|\b[ab]\b$", await card(pages, path), re.MULTILINE) == [
        *("Attempt 2", "a", "b"),
        *("Attempt 2", "a"),
    ]


async def test_progress_is_shown_while_the_attempt_that_reported_it_runs(pages: Pages, sql: Any) -> None:
    path = await running(sql)
    for token, shown in ((FIRST, False), (SECOND, True)):
        await sql.execute(
            "INSERT INTO run_progress (job, scheduled_at, serial, token, at, fraction, message)"
            " SELECT job, scheduled_at, serial, $1, now(), 0.4, 'importing <orders>' FROM live_runs"
            " ON CONFLICT (job, scheduled_at, serial) DO UPDATE SET token = excluded.token",
            token,
        )
        text = (await pages.get(path)).text
        assert ('<progress max="1" value="0.4"' in text) is shown
        assert ("<b>40 %</b> <span>importing &lt;orders&gt;</span>" in text) is shown


async def test_a_traceback_is_folded(pages: Pages, sql: Any) -> None:
    text = (await pages.get(await running(sql))).text
    (opened,) = re.findall(r'<details class="traceback"[^>]*>', text)
    assert opened == f'<details class="traceback" id="traceback-{FIRST}">', "it is not open"
    folded = text.partition(opened)[2].partition("</details>")[0]
    assert "<summary>Traceback of attempt 1</summary>" in folded and "Traceback of &lt;this&gt;" in folded
