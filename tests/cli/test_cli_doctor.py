"""`detent doctor` on real databases: healthy, sick in one way each, and not there at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from detent.runtime.envelope import generate_master_key
from detent.store.embedded_state import embedded_state
from tests.cli.command_line import CommandLine
from tests.support.ports import free_port
from tests.support.postgres import as_runtime_role, run_apart
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

URL = "https://example.org/"
DEAD_NODE = (
    "INSERT INTO nodes (node, ttl, expires_at, started_at, beat_at, host, pid, roles, version, tzdata)"
    " VALUES (7, '5s', now() - interval '1 hour', now() - interval '2 hours', now() - interval '1 hour',"
    " 'gone.example', 1, '{scheduler,worker}', '0', '2020a')"
)
JOB = (
    """INSERT INTO schedules (stored, digest) VALUES ('{{"kind": "once"}}', '\\x{number:02x}');"""
    "INSERT INTO jobs (job, id, name, partition, target, definition) OVERRIDING SYSTEM VALUE"
    " VALUES ({number}, gen_random_uuid(), '{name}', 5, 'http', '{definition}');"
    "INSERT INTO cursors (job, next_tick, fire_at, queue, schedule, partition)"
    " SELECT {number}, {tick}, {tick}, min(q.queue), 1, 5 FROM queues q"
)


class Patient:
    """A database that is made sick by statements, and what the doctor says then."""

    def __init__(self, detent: CommandLine, url: str) -> None:
        self.detent = detent
        self.url = url

    def do(self, *statements: str) -> None:
        async def work() -> None:
            connection = await asyncpg.connect(self.url, server_settings={"search_path": "detent"})
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        run_apart(work())

    def job(self, number: int, name: str, tick: str = "now() + interval '1 day'", **definition: Any) -> None:
        whole = {"name": name, "schedule": "every 1d", "target": {"type": "http", "url": URL}, "timeout_seconds": 60}
        self.do(JOB.format(number=number, name=name, tick=tick, definition=json.dumps(whole | definition)))

    def run(self, job: int, lane: int = 0, owner: str = "NULL", age: str = "1 hour", queue: int = 1) -> None:
        self.do(
            "INSERT INTO live_runs (job, scheduled_at, token, owner, not_before, queue, revision, lane, priority)"
            f" VALUES ({job}, now() - interval '{age}', 1, {owner}, now() - interval '{age}', {queue}, 1, {lane}, 5)"
        )

    def examine(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = self.detent("doctor", "--database-url", self.url, "--json", *arguments)
        assert done.err == "", done.err
        return done.code, json.loads(done.out)

    def checks(self) -> dict[str, dict[str, Any]]:
        return {check["check"]: check for check in self.examine()[1]["checks"]}

    def story(self, name: str, *arguments: str) -> list[dict[str, Any]]:
        (story,) = self.examine("--story", name, *arguments)[1]["stories"]
        assert story["looked_at"] and story["story"] == name
        findings: list[dict[str, Any]] = story["findings"]
        assert all(finding["found"].endswith(".") for finding in findings)
        assert all(finding["advice"] for finding in findings if finding["status"] != "ok")
        return findings

    def worst(self, name: str, *arguments: str) -> list[str]:
        return [finding["found"] for finding in self.story(name, *arguments) if finding["status"] != "ok"]


@pytest.fixture
def patient(detent: CommandLine, database_url: str) -> Patient:
    return Patient(detent, database_url)


def test_a_healthy_cluster_has_nothing_to_complain_about(patient: Patient, detent: CommandLine) -> None:
    server = detent.start("serve", "--database-url", patient.url, "--port", "0")
    try:
        assert server.stderr is not None
        line = ""
        while not (found := re.search(r"listening on (http://\S+)", line)):
            line = server.stderr.readline().decode()
            assert line, "the server ended"
        port = found[1].rpartition(":")[2]
        detent.environ |= {"DETENT_API_URL": found[1], "DETENT_PORT": port}
        until_sync(lambda: patient.checks()["partitions"]["status"] == "ok", 20)
        code, document = patient.examine()
        assert code == 0, document
        statuses = {check["check"]: check["status"] for check in document["checks"]}
        assert set(statuses) >= {
            *("zone data", "disk", "embedded", "port", "api", "database", "version", "clock", "migrations"),
            *("connections", "pooler", "role settings", "nodes", "partitions"),
        }
        assert {name for name, status in statuses.items() if status == "fail"} == set()
        assert f"process {server.pid}" in patient.checks()["port"]["found"]
        assert [story["status"] for story in document["stories"]] == ["ok"] * 5
        seen = detent.on_terminal("doctor", "--database-url", patient.url)
        assert seen.code == 0 and "A job runs twice?" in seen.out and "Checked:" in seen.out
    finally:
        server.terminate()
        server.communicate()


def test_a_role_that_can_do_more_than_it_needs_is_reported(
    detent: CommandLine, patient: Patient, postgres: Postgres
) -> None:
    owner = patient.checks()["role"]
    assert (owner["status"], "owns the tables" in owner["found"]) == ("warn", True)
    assert "--runtime-role" in owner["advice"]
    assert Patient(detent, as_runtime_role(patient.url)).checks()["role"]["status"] == "ok"
    superuser = Patient(detent, postgres.admin_url(urlsplit(patient.url).path[1:])).checks()["role"]
    assert (superuser["status"], "superuser" in superuser["found"]) == ("warn", True)


def test_a_wall_between_tenants_that_nodes_cannot_use_is_reported(detent: CommandLine, patient: Patient) -> None:
    patient.do("ALTER POLICY one_tenant ON jobs TO detent")  # the run-time role is not a member of it
    role = Patient(detent, as_runtime_role(patient.url)).checks()["role"]
    assert (role["status"], "requests are not restricted to the rows of their tenant" in role["found"]) == (
        "warn",
        True,
    )
    assert role["advice"].startswith("Run GRANT detent TO detent_run")


def test_a_database_without_nodes_fires_nothing(patient: Patient) -> None:
    code, document = patient.examine()
    failed = {check["check"] for check in document["checks"] if check["status"] == "fail"}
    assert code == 1 and failed >= {"nodes", "partitions"}


def test_it_says_who_needs_a_key(patient: Patient) -> None:
    assert "need none" in patient.checks()["keys"]["found"]
    patient.do(
        "INSERT INTO api_keys (id, tenant, digest, scope)"
        " VALUES ('aaaaaaaaaa', 1, decode(repeat('00', 32), 'hex'), 'admin')"
    )
    assert "every request needs one" in patient.checks()["keys"]["found"]
    patient.do("UPDATE api_keys SET revoked_at = now()")
    lost = patient.checks()["keys"]
    assert lost["status"] == "warn" and "--local --scope admin" in lost["advice"]


def test_a_database_that_was_not_migrated_is_reported_and_not_examined(
    detent: CommandLine, empty_database_url: str
) -> None:
    patient = Patient(detent, empty_database_url)
    code, document = patient.examine()
    assert code == 1 and document["stories"] == []
    assert patient.checks()["migrations"]["advice"] == "Run `detent db migrate`."


def test_a_database_that_is_not_there_is_one_failure(detent: CommandLine) -> None:
    done = detent("doctor", "--database-url", "postgresql://ada:hidden@127.0.0.1:1/jobs")
    assert done.code == 1 and "hidden" not in done.out + done.err
    assert ["fail", "database"] in [row[:2] for row in done.rows]


def test_an_embedded_database_that_does_not_run_is_left_alone(detent: CommandLine) -> None:
    del detent.environ["DETENT_API_URL"]
    done = detent("doctor", "--data-dir", "data", DETENT_PORT=str(free_port()))
    assert done.code == 0
    assert ["warn", "embedded"] in [row[:2] for row in done.rows]
    assert not (detent.folder / "data").exists()


def test_a_running_embedded_database_is_reported_with_who_uses_it(postgres: Postgres) -> None:
    state = embedded_state(postgres.server.data_dir)
    assert state.version and state.server and state.url
    assert [user.pid for user in state.users] == [os.getpid()]


def test_a_port_that_another_program_has_is_reported_with_its_process(detent: CommandLine, patient: Patient) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        detent.environ["DETENT_PORT"] = str(taken.getsockname()[1])
        port = patient.checks()["port"]
    assert port["status"] == "fail" and f"process {os.getpid()}" in port["found"]


def test_connections_that_cannot_be_enough_are_reported(patient: Patient) -> None:
    database = patient.url.partition("?")[0].rpartition("/")[2]
    patient.do(f"ALTER DATABASE {database} CONNECTION LIMIT 9", "SELECT 1")
    found = patient.checks()["connections"]
    assert found["status"] == "fail" and found["found"].startswith("9 connections are allowed")


def test_nodes_that_differ_are_reported(patient: Patient) -> None:
    for number, zone in ((1, "2025a"), (2, "2026f")):
        patient.do(
            "INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata, clock_offset)"
            f" VALUES ({number}, '1 hour', now() + interval '1 hour', 'host{number}', 1, '{{scheduler,worker}}', '0',"
            f" '{zone}', {number - 1} * 3.5)"
        )
    checks = patient.checks()
    assert "releases of the zone data (2025a: " in checks["nodes differ"]["found"]
    assert "host2 differs by 3.5 s" in checks["clock of node"]["found"]


def test_a_node_that_is_draining_is_reported(patient: Patient) -> None:
    patient.do(
        "INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata, draining)"
        " VALUES (1, '1 hour', now() + interval '1 hour', 'host1', 1, '{scheduler,worker}', '0', '2026f', true)"
    )
    assert "host1 is draining: it leads nothing and claims no runs." in patient.checks()["draining"]["found"]


CIRCUIT = (
    """'[{{"tenant": 1, "host": "example.org", "port": 443, "put_off": 3, "error": "No connection: refused","""
    """ "opened_at": "2030-01-31T12:00:00Z", "next_probe_at": "{again}"}}]'"""
)


def worker_with_circuit(patient: Patient, number: int, again: str, expires: str = "+ interval '1 hour'") -> None:
    patient.do(
        "INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata, circuits)"
        f" VALUES ({number}, '1 hour', now() {expires}, 'host1', 1, '{{scheduler,worker}}', '0', '2026f',"
        f" {CIRCUIT.format(again=again)})"
    )


def test_a_host_that_does_not_answer_is_reported_once_with_when_it_is_called_again(patient: Patient) -> None:
    worker_with_circuit(patient, 1, "2999-01-31T12:00:30Z", expires="- interval '1 hour'")
    assert "hosts" not in patient.checks()
    for number in (2, 3):
        worker_with_circuit(patient, number, f"2999-01-31T12:00:{number * 10}Z")
    hosts = [check for check in patient.examine()[1]["checks"] if check["check"] == "hosts"]
    assert [check["status"] for check in hosts] == ["warn"]
    assert hosts[0]["found"] == (
        "example.org:443 does not answer since 2030-01-31 12:00:00 UTC: runs that call it wait, and use up no attempt."
        " It is called again at 12:00:20 UTC."
    )
    assert "Check that host" in hosts[0]["advice"]


def test_runs_of_a_host_that_does_not_answer_are_called_stuck_with_the_host(patient: Patient) -> None:
    worker_with_circuit(patient, 1, "2020-01-31T12:00:30Z")
    patient.job(1, "waits")
    patient.job(2, "elsewhere", target={"type": "http", "url": "https://example.net/"})
    patient.run(1)
    patient.run(2)
    (waiting,) = [one for one in patient.story("stuck") if "for a host" in one["found"]]
    assert waiting["found"] == (
        "1 run waits for a host (waits). example.org:443 does not answer since 2030-01-31 12:00:00 UTC: runs that call"
        " it wait, and use up no attempt. It is called again with the next run that is due."
    )
    assert waiting["advice"].endswith("The last call failed: No connection: refused")
    assert not any("for a host" in found for found in patient.worst("stuck", "--job", "elsewhere"))


def test_ticks_skipped_for_a_host_that_does_not_answer_are_reported_with_it(patient: Patient) -> None:
    worker_with_circuit(patient, 1, "2999-01-31T12:00:30Z")
    for number, url in ((1, URL), (2, "https://example.net/")):
        patient.job(number, f"job{number}", target={"type": "http", "url": url})
        patient.do(
            "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason)"
            f" VALUES ({number}, now() - interval '1 hour', now(), 0, 1, 4, 'overlap')"
        )
    for job, named in (("job1", True), ("job2", False)):
        (skipped,) = [one for one in patient.story("never-ran", "--job", job) if "1 tick skipped" in one["found"]]
        assert skipped["advice"].startswith("example.org:443 does not answer") is named
        assert skipped["advice"].endswith("allow overlap with concurrent_policy ALLOW.")


def test_a_job_that_ran_twice_is_explained(patient: Patient) -> None:
    assert patient.worst("runs-twice") == []
    patient.job(1, "one")
    patient.job(2, "copy")
    patient.job(3, "other", dst_overlap="both", priority=1)
    for number, outcome in enumerate(("lost", "timeout", "failed", "stale"), 1):
        patient.do(
            "INSERT INTO attempts (job, scheduled_at, serial, token, finished_at, attempt, outcome)"
            f" VALUES (1, date_trunc('second', now()), 0, {number}, now(), 1, '{outcome}')"
        )
    told = patient.worst("runs-twice")
    assert len(told) == 6
    assert any("1 run was started again because its node was lost (one; " in one for one in told)
    assert any("1 run was reported after its attempt had been given up (one; " in one for one in told)
    assert any("are equal except for their names" in one and "one, copy" in one for one in told)
    assert any("(dst_overlap both): other" in one for one in told)
    assert len(patient.worst("runs-twice", "--job", "other")) == 1
    missing = patient.detent("doctor", "--database-url", patient.url, "--story", "stuck", "--job", "nobody")
    assert missing.code == 3


def test_attempts_whose_lease_ended_are_reported_with_how_to_keep_it(patient: Patient) -> None:
    patient.job(1, "one")
    for number, outcome in enumerate(("lost", "stale", "stale"), 1):
        patient.do(
            "INSERT INTO attempts (job, scheduled_at, serial, token, finished_at, attempt, outcome, node)"
            f" VALUES (1, date_trunc('second', now()), {number // 3}, {number}, now(), 1, '{outcome}', -7)"
        )
    found = [one for one in patient.story("runs-twice") if one["status"] == "warn"]
    assert len(found) == 2 and all("--callback" in one["advice"] and "node" not in one["advice"] for one in found)
    told = " ".join(one["found"] for one in found)
    assert "1 run was started again because neither a heartbeat nor its end came in time (one; " in told
    assert "2 runs were reported after their attempt had been given up (one; " in told


def test_a_run_that_failed_once_and_was_not_retried_is_not_called_retried(patient: Patient) -> None:
    patient.job(1, "one")
    patient.do(
        "INSERT INTO attempts (job, scheduled_at, serial, token, finished_at, attempt, outcome)"
        " VALUES (1, date_trunc('second', now()), 0, 7, now(), 1, 'failed')"
    )
    assert patient.worst("runs-twice") == []
    patient.run(1, owner="7")
    patient.do("UPDATE live_runs l SET scheduled_at = a.scheduled_at, token = 8 FROM attempts a")
    assert "1 run was retried after a failure (one; " in " ".join(patient.worst("runs-twice"))


def test_a_job_that_never_ran_after_a_node_was_lost_is_explained(patient: Patient) -> None:
    patient.do(DEAD_NODE, "UPDATE partitions SET holder = 7, term = 1, taken_at = now() - interval '2 hours'")
    patient.job(1, "late", tick="now() - interval '30 minutes'")
    patient.run(1, owner="7")
    patient.do(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, reason, ticks, until)"
        " VALUES (1, now() - interval '1 hour', now(), 0, 1, 5, 'grace', 12, now() - interval '40 minutes')"
    )
    told = " ".join(patient.worst("never-ran"))
    for words in (
        "No node is alive",
        "gone.example has sent no heartbeat for 1 h; it still has 256 partitions and 1 run",
        "256 of 256 partitions have no leader",
        "1 tick is overdue in 1 partition, the oldest 30 min ago",
        "1 run is claimed by a lost node",
        "12 ticks missed: grace (late",
    ):
        assert words in told, words


def test_calls_that_are_not_allowed_are_reported_with_the_command_that_allows_them(patient: Patient) -> None:
    assert "calls" not in patient.checks()
    patient.job(1, "inside")
    error = "http://10.2.3.4/ was not called: it is private: allow it with `detent tenant allow default 10.2.3.4:80`."
    patient.do(
        "INSERT INTO run_history (job, scheduled_at, finished_at, serial, revision, status, token, attempt)"
        " VALUES (1, date_trunc('second', now()), now(), 0, 1, 2, 5, 1)",
        "INSERT INTO attempts (job, scheduled_at, serial, token, finished_at, attempt, outcome, error)"
        f" VALUES (1, date_trunc('second', now()), 0, 5, now(), 1, 'failed', '{error}')",
    )
    told = patient.checks()["calls"]
    assert told["status"] == "warn" and "Runs of 1 job died" in told["found"] and error in told["advice"]


def test_credentials_in_headers_are_counted(patient: Patient) -> None:
    headers = {"X-Api-Key": {"secret": "stored"}, "Accept": "text/plain"}
    patient.job(1, "good", target={"type": "http", "url": URL, "headers": headers})
    assert "headers" not in patient.checks()
    for number, name in enumerate(("Authorization", "x-auth-token"), 2):
        patient.job(number, f"bad-{number}", target={"type": "http", "url": URL, "headers": {name: "x"}})
    told = patient.checks()["headers"]
    assert told["status"] == "warn" and told["found"].startswith("2 jobs have a credential as plain text")


def test_it_says_which_keys_encrypt_secrets(patient: Patient) -> None:
    assert "secrets" not in patient.checks()
    row = (
        "INSERT INTO secret_versions (tenant, name, version, key_id, wrapped, nonce, ciphertext)"
        " VALUES (1, '{}', 1, '{}', '', '', '')"
    )
    patient.do("INSERT INTO secrets (tenant, name) VALUES (1, 'a'), (1, 'b')", row.format("a", "abc"))
    assert patient.checks()["secrets"]["found"] == "Secrets are encrypted with the key abc (1 version)."
    patient.detent.environ["DETENT_SECRET_KEY"] = generate_master_key()
    assert "workers that have only these keys do not start" in patient.checks()["secrets"]["advice"]
    del patient.detent.environ["DETENT_SECRET_KEY"]
    patient.do(row.format("b", "def"))
    told = patient.checks()["secrets"]
    assert told["status"] == "warn" and "`detent secret rotate-key`" in told["advice"]


def test_a_paused_job_is_reported_before_anything_else(patient: Patient) -> None:
    patient.job(1, "still")
    patient.do("UPDATE jobs SET status = 'paused', reason = 'holiday'")
    assert patient.worst("stuck", "--job", "still")[0] == "The job still is paused (holiday)."


def jobs_checked(patient: Patient) -> list[dict[str, Any]]:
    return [check for check in patient.examine()[1]["checks"] if check["check"] == "jobs"]


def test_a_job_whose_schedule_cannot_be_read_is_a_failure_that_names_it(patient: Patient) -> None:
    patient.job(1, "fine")
    assert [(one["status"], one["found"]) for one in jobs_checked(patient)] == [
        ("ok", "Every schedule can be read, and no job is set aside.")
    ]
    patient.do("""UPDATE schedules SET stored = '{"kind": "lunar"}'""")
    (found,) = jobs_checked(patient)
    assert (found["status"], "The job fine cannot fire." in found["found"]) == ("fail", True)
    assert "'lunar'" in found["found"]
    patient.do(
        "INSERT INTO set_aside (job, kind, tick, generation, why, node)"
        " SELECT job, 'tick', next_tick, generation, 'It is full.', 7 FROM cursors"
    )
    told = [one["found"] for one in jobs_checked(patient)]
    assert len(told) == 1 and "The job fine was set aside" in told[0] and "It is full." in told[0], "once, not twice"
    patient.do("DELETE FROM schedules")
    assert any("cannot fire: fine." in one["found"] for one in jobs_checked(patient))


def test_a_job_that_refuses_the_rules_of_its_zone_is_a_failure_that_says_how_to_accept_them(patient: Patient) -> None:
    patient.job(1, "close")
    patient.do(
        """UPDATE schedules SET stored = '{"kind": "cron", "cron": "0 3 * * *", "timezone": "Europe/Berlin","""
        """ "zone_rules": "2020a:0"}'"""
    )
    (found,) = jobs_checked(patient)
    assert found["status"] == "fail"
    assert found["found"].startswith("The job close cannot fire. Its ticks were computed by zone data 2020a, and")
    assert "--set tzdata_policy=recompute" in found["advice"]


def test_stuck_runs_are_reported_with_what_they_wait_for(patient: Patient) -> None:
    patient.do(
        "INSERT INTO queues (tenant, name, needs) VALUES (1, 'default', 'shell'), (1, 'slow', 'python:shop:report')",
        "INSERT INTO nodes (node, ttl, expires_at, host, pid, roles, version, tzdata, queues, capabilities)"
        " VALUES (8, '1 hour', now() + interval '1 hour', 'here', 1, '{worker}', '0', '2026f', '{default}', '{}')",
    )
    for number, name in enumerate(("plain", "script", "function", "held"), 1):
        patient.job(number, name)
    for number in (1, 2, 3):
        patient.run(number, queue=number)
    patient.run(4, owner="8")
    findings = patient.story("stuck")
    told = {finding["found"].partition(" (")[0]: finding["advice"] for finding in findings}
    assert "`detent worker --allow-shell default`" in " ".join(told.values())
    missing = "No worker has the function 'shop:report': start one with `detent worker --app shop:app --queue slow`."
    assert missing in told.values()
    held = [finding for finding in findings if "of held was ready 1 h ago" in finding["found"]]
    assert held and "detent run cancel" in held[0]["advice"]


def test_a_herd_of_ticks_is_reported_with_how_to_spread_it(patient: Patient) -> None:
    patient.do(
        "INSERT INTO cursors (job, next_tick, fire_at, queue, schedule, partition) SELECT n, at, at, 1, 1, n % 256"
        " FROM generate_series(1, 3000) n, (SELECT date_trunc('minute', now()) + interval '5 minutes' AS at) t"
    )
    (told,) = patient.worst("cpu-spike")
    assert told.startswith(
        "3000 jobs with the next tick within an hour, 100% of these ticks on a full minute; "
        "the most at one instant are 3000"
    )
    assert "H * * * *" in patient.story("cpu-spike")[0]["advice"]


def test_leadership_that_does_not_stay_is_reported(patient: Patient) -> None:
    assert patient.worst("flapping") == []
    patient.do(
        "INSERT INTO nodes (node, ttl, expires_at, started_at, host, pid, roles, version, tzdata)"
        " VALUES (7, '1h', now() + interval '1h', now() - interval '1 day', 'host', 1, '{scheduler}', '0', '2020a')",
        "INSERT INTO elections (partition, term, node, nomination, at)"
        " SELECT p, t, 7, 0, now() - t * interval '1 minute' FROM generate_series(0, 255) p, generate_series(1, 5) t",
    )
    (told,) = patient.worst("flapping")
    assert "leadership was taken 5 times (1280 partitions) by 1 node, of which 0 are gone" in told
    assert "256 partitions changed leaders again although no node joined or left." in told


PGBOUNCER = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")


@pytest.fixture
def pooled(patient: Patient) -> Iterator[Any]:
    """Starts PgBouncer in front of the database, pooling as asked; gives the address."""
    place = Path(tempfile.mkdtemp(prefix="detent-pooler-"))
    place.chmod(0o755)  # PgBouncer does not run as root, and has to get in
    running: list[subprocess.Popen[bytes]] = []

    def start(mode: str) -> str:
        assert PGBOUNCER is not None
        host = re.search(r"host=([^&]+)", patient.url)
        assert host is not None
        folder, port = host[1].replace("%2F", "/"), free_port()
        database = patient.url.partition("?")[0].rpartition("/")[2]
        settings = place / f"{mode}.ini"
        settings.write_text(
            f"[databases]\njobs = host={folder} port=5432 dbname={database} user=detent\n[pgbouncer]\nauth_type = any\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\npool_mode = {mode}\n"
        )
        owner = Path(folder).stat()
        change: dict[str, Any] = (
            {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        )
        running.append(subprocess.Popen([PGBOUNCER, "-q", str(settings)], **change))
        until_sync(lambda: _answers(port), 10)
        return f"postgresql://detent@127.0.0.1:{port}/jobs"

    yield start
    for process in running:
        process.terminate()
        process.wait()
    shutil.rmtree(place)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")
@pytest.mark.parametrize(("mode", "status"), [("transaction", "fail"), ("session", "ok")])
def test_a_pooler_in_between_is_found(detent: CommandLine, pooled: Any, mode: str, status: str) -> None:
    checks = Patient(detent, pooled(mode)).checks()
    assert checks["pooler"]["status"] == status and "pool" in checks["pooler"]["found"]
    assert checks["role settings"]["status"] == "fail"
    assert "DETENT_DATABASE_POOLER=transaction" in checks["role settings"]["advice"]
    assert checks["migrations"]["status"] == "ok"


@pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")
def test_a_pooler_that_nodes_know_of_is_well_once_the_role_has_its_settings(
    detent: CommandLine, patient: Patient, pooled: Any
) -> None:
    detent.environ["DETENT_DATABASE_POOLER"] = "transaction"
    url = pooled("transaction")
    checks = Patient(detent, url).checks()
    assert (checks["pooler"]["status"], checks["role settings"]["status"]) == ("ok", "fail")
    assert "ALTER ROLE detent IN DATABASE" in checks["role settings"]["advice"]
    done = detent("db", "migrate", "--role-settings", "detent", "--database-url", url)
    assert done.code == 7 and "--database-pooler none" in done.err
    where = ("--database-pooler", "none", "--database-url", patient.url)
    done = detent("db", "migrate", "--role-settings", "detent", *where)
    assert done.code == 0 and done.out.count("ALTER ROLE detent IN DATABASE") == 5
    assert "RECONNECT" in done.err
    done = detent("db", "migrate", "--role-settings", "nobody-of-this-name", *where)
    assert done.code == 2 and "there is no such role" in done.err
    checks = Patient(detent, pooled("transaction")).checks()  # another pooler: its connections are new
    assert (checks["pooler"]["status"], checks["role settings"]["status"]) == ("ok", "ok")
