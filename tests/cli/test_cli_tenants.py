"""`detent tenant`, `detent queue` and `--filter`, against a real server."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.command_line import CommandLine
from tests.cli.real_server import running
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

URL = ("--url", "http://127.0.0.1:9/")


@pytest.fixture(scope="module")
def detent(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder: Path = tmp_path_factory.mktemp("server")
    with postgres.database_apart() as url, running(folder, url) as server:
        line = CommandLine(folder, server.url)
        line.environ["DETENT_API_KEY"] = good(line, "key", "create", "--scope", "admin", "-q").strip()
        yield line


def good(detent: CommandLine, *arguments: str) -> str:
    done = detent(*arguments)
    assert done.code == 0, done.err
    return str(done.out)


def told(detent: CommandLine, *arguments: str) -> Any:
    return json.loads(good(detent, *arguments, "--json"))


def jobs(detent: CommandLine, tag: str, status: str | None = None) -> list[str]:
    chosen = ("--status", status) if status else ()
    return [job["name"] for job in told(detent, "job", "list", "--tag", tag, *chosen)["items"]]


def test_a_tenants_quotas_are_shown_and_changed(detent: CommandLine) -> None:
    good(detent, "tenant", "create", "shop")
    changed = told(detent, "tenant", "quota", "shop", "--jobs", "2", "--rate", "0.5", "--weight", "3")
    assert (changed["max_jobs"], changed["max_runs_per_second"], changed["weight"]) == (2, 0.5, 3)
    changed = told(detent, "tenant", "quota", "shop", "--rate", "none", "--concurrent", "7")
    assert (changed["max_jobs"], changed["max_runs_per_second"], changed["max_concurrent"]) == (2, None, 7)
    assert told(detent, "tenant", "quota", "shop") == changed
    rows = {row[0]: row for row in detent("tenant", "list").rows}
    assert rows["shop"][:8] == ["shop", "0", "2", "7", "", "", "", "3"]
    assert rows["default"][2] == ""


def test_the_allow_list_of_a_tenant_is_shown_and_changed(detent: CommandLine) -> None:
    good(detent, "tenant", "create", "inner")
    changed = told(detent, "tenant", "allow", "inner", "10.2.0.0/16:8443", "*.svc.internal", "[fd00::]/8:443")
    assert changed["allow_targets"] == ["*.svc.internal", "10.2.0.0/16:8443", "[fd00::]/8:443"]
    assert told(detent, "tenant", "get", "inner") == changed
    done = detent("tenant", "disallow", "inner", "10.2.0.0/16:8443")
    assert done.code == 0 and "is now: *.svc.internal, [fd00::]/8:443." in done.err
    rows = {row[0]: row for row in detent("tenant", "list").rows}
    assert rows["inner"][6] == "*.svc.internal, [fd00::]/8:443"
    for pattern, words in (("10.2.3.4/16", "write 10.2.0.0/16"), ("169.254.169.254", "cannot be allowed")):
        done = detent("tenant", "allow", "inner", pattern)
        assert done.code == 2 and words in done.err, done.err


def test_a_quota_that_is_no_number_is_refused(detent: CommandLine) -> None:
    for given in (("--jobs", "many"), ("--jobs", "-1"), ("--weight", "none"), ("--weight", "0"), ("--rate", "0")):
        done = detent("tenant", "quota", "default", *given)
        assert done.code == 2 and given[0] in done.err, done.err
    assert detent("tenant", "quota", "nobody", "--jobs", "3").code == 3


def test_a_job_beyond_the_quota_is_refused_with_what_to_do(detent: CommandLine) -> None:
    good(detent, "tenant", "create", "tiny")
    good(detent, "tenant", "quota", "tiny", "--jobs", "0")
    key = good(detent, "key", "create", "--tenant", "tiny", "--scope", "write", "-q").strip()
    done = detent("job", "create", "one", "--every", "1h", *URL, DETENT_API_KEY=key)
    assert done.code == 6
    assert "may have 0" in done.err and "detent tenant quota tiny --jobs N" in done.err


def test_a_tenant_is_suspended_exported_and_deleted_with_everything(detent: CommandLine) -> None:
    good(detent, "tenant", "create", "leaving")
    changed = told(detent, "tenant", "quota", "leaving", "--storage", "5000000000", "--requests", "50")
    assert (changed["max_storage_bytes"], changed["requests_per_second"]) == (5_000_000_000, 50)
    key = good(detent, "key", "create", "--tenant", "leaving", "--scope", "write", "-q").strip()
    assert detent("job", "create", "mine", "--every", "1s", *URL, DETENT_API_KEY=key).code == 0
    counted = {row[0]: row[1] for row in detent("tenant", "delete", "leaving", "--dry-run").rows}
    assert (counted["jobs"], counted["api_keys"], counted["tenants"]) == ("1", "1", "1")
    done = detent("tenant", "delete", "leaving", "--yes")
    assert done.code == 6 and "`detent tenant suspend leaving` first" in done.err
    good(detent, "tenant", "suspend", "leaving", "--reason", "unpaid")
    shown = detent("tenant", "get", "leaving")
    assert shown.code == 0 and "unpaid" in told(detent, "tenant", "get", "leaving")["suspended_reason"]
    assert {row[0]: row[8] for row in detent("tenant", "list").rows}["leaving"] == "suspended"
    lines = [json.loads(line) for line in good(detent, "tenant", "export", "leaving").splitlines()]
    assert [line["row"]["name"] for line in lines if line["table"] == "jobs"] == ["mine"]
    done = detent("tenant", "delete", "leaving")
    assert done.code == 2 and "detent tenant delete leaving --yes" in done.err
    done = detent("tenant", "delete", "leaving", "--yes", "--wait")
    assert done.code == 0 and "Deleted tenant leaving." in done.err
    assert detent("tenant", "get", "leaving").code == 3
    assert detent("job", "list", DETENT_API_KEY=key).code == 4


def test_a_suspension_that_ends_lets_requests_in_again(detent: CommandLine) -> None:
    good(detent, "tenant", "create", "back")
    key = good(detent, "key", "create", "--tenant", "back", "--scope", "read", "-q").strip()
    good(detent, "tenant", "suspend", "back")

    def listed(code: int) -> Any:
        done = detent("job", "list", DETENT_API_KEY=key)
        return done if done.code == code else None

    assert "`detent tenant resume back`" in until_sync(lambda: listed(4), 20).err
    assert "Resumed tenant back." in detent("tenant", "resume", "back").err
    until_sync(lambda: listed(0), 20)
    assert detent("tenant", "suspend", "default").code == 6


def test_a_queue_is_limited_and_what_is_not_given_stays(detent: CommandLine) -> None:
    good(detent, "queue", "limit", "mail", "--concurrent", "5")
    limited = told(detent, "queue", "limit", "mail", "--rate", "2.5")
    assert (limited["max_concurrent"], limited["rate_per_second"]) == (5, 2.5)
    done = detent("queue", "limit", "mail", "--concurrent", "none")
    assert "2.5 per second" in done.err
    assert told(detent, "queue", "list")["items"][-1]["max_concurrent"] is None
    assert "no limit" in detent("queue", "limit", "mail", "--rate", "none").err
    for given in ((), ("--rate", "-1"), ("--concurrent", "some")):
        assert detent("queue", "limit", "mail", *given).code == 2


def test_all_jobs_that_a_filter_finds_are_counted_then_changed(detent: CommandLine) -> None:
    for number in range(4):
        good(detent, "job", "create", f"many-{number}", "--every", "1h", *URL, "--tag", "many")
    good(detent, "job", "create", "few", "--every", "1h", *URL, "--tag", "few")
    dry = detent("job", "pause", "--filter", "tag:many", "--dry-run")
    assert "Would pause 4 jobs: many-0, many-1, many-2, many-3." in dry.err
    assert jobs(detent, "many", "paused") == []
    assert detent("job", "pause", "--filter", "tag:many").code == 2  # not a terminal: it cannot be confirmed
    done = detent("job", "pause", "--filter", "tag:many", "--reason", "a flood", "--yes")
    assert "Paused 4 jobs." in done.err
    assert len(jobs(detent, "many", "paused")) == 4 and jobs(detent, "few", "active") == ["few"]
    assert told(detent, "job", "get", "many-2")["paused_reason"] == "a flood"
    again = told(detent, "job", "pause", "--filter", "tag:many", "--yes")
    assert (again["matched"], again.get("changed", 0)) == (0, 0)
    assert told(detent, "job", "resume", "--filter", "tag:many", "--yes")["changed"] == 4
    good(detent, "job", "pause", "--filter", "tag:many", "--until", "2h", "--on-resume", "all", "--yes")
    paused = told(detent, "job", "get", "many-1")
    assert (paused["on_resume"], paused["paused_until"] is not None) == ("all", True)
    good(detent, "job", "resume", "--filter", "tag:many", "--on-resume", "skip", "--yes")
    assert detent("job", "pause", "--filter", "tag:many", "--until", "whenever", "--yes").code == 2
    assert told(detent, "job", "delete", "--filter", "tag:many name:many-*", "--yes")["changed"] == 4
    assert jobs(detent, "many") == []


def test_runs_of_many_jobs_are_cancelled_and_dead_ones_retried(detent: CommandLine) -> None:
    good(detent, "queue", "limit", "held", "--concurrent", "0")
    for number in range(3):
        good(detent, "job", "create", f"held-{number}", "--every", "1h", *URL, "--queue", "held", "--tag", "held")
        good(detent, "job", "trigger", f"held-{number}")
    assert "cancel the runs of 3 jobs" in detent("job", "cancel", "--filter", "queue:held", "--dry-run").err
    good(detent, "job", "cancel", "held-0", "--yes")
    assert told(detent, "job", "cancel", "--filter", "queue:held", "--yes")["changed"] == 2
    assert told(detent, "job", "retry", "--filter", "queue:held", "--dry-run")["matched"] == 0


def test_history_is_exported_as_lines_and_as_a_table(detent: CommandLine) -> None:
    good(detent, "job", "create", "told", "--every", "1h", *URL, "--queue", "held", "--payload", '{"a": "b,c"}')
    runs = [good(detent, "job", "trigger", "told", "-q").strip()]
    good(detent, "job", "cancel", "told", "--yes")
    lines = [
        json.loads(line) for line in good(detent, "history", "export", "--from", "1h", "--job", "told").splitlines()
    ]
    assert [line["id"] for line in lines] == runs
    done = detent("history", "export", "--format", "csv", "--status", "cancelled")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert runs[0] in {row["id"] for row in rows} and {row["status"] for row in rows} == {"cancelled"}
    assert done.err.startswith("Exported ")
    assert good(detent, "history", "export", "--from", "2020-01-01", "--to", "2020-02-01") == ""
    for wrong in (("--from", "someday"), ("--from", "1h", "--to", "2h"), ("--format", "xml")):
        assert detent("history", "export", *wrong).code == 2
    assert detent("history", "export", "--job", "nobody").code == 3


def test_which_jobs_are_meant_has_to_be_said_in_one_way(detent: CommandLine) -> None:
    for verb in ("pause", "resume", "delete", "retry", "cancel"):
        assert detent("job", verb).code == 2
        assert detent("job", verb, "few", "--filter", "tag:x").code == 2
    assert "for one job" in detent("job", "retry", "--filter", "tag:x", "--wait").err
    assert detent("job", "pause", "few", "--dry-run").code == 2
    assert "The filter has no field" in detent("job", "pause", "--filter", "tagg:x", "--dry-run").err


def test_the_topic_of_dead_runs(detent: CommandLine) -> None:
    topic = '{"url": "nats://nats.example:4222", "topic": "dead.runs"}'
    done = detent("tenant", "dead-letter-topic", "default", topic)
    assert done.code == 0, done.err
    assert done.err == "Dead runs of default go to dead.runs at nats://nats.example:4222.\n"
    assert '"topic": "dead.runs"' in detent("tenant", "get", "default").out
    assert detent("tenant", "dead-letter-topic", "default", "dead.runs").code == 2
    assert detent("tenant", "dead-letter-topic", "default", '{"url": "ftp://x", "topic": "a"}').code == 2
    done = detent("tenant", "dead-letter-topic", "default", "none")
    assert done.err == "Dead runs of default are not forwarded.\n"
