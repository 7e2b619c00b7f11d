"""`detent db …` on a real PostgreSQL."""

from __future__ import annotations

import json

from tests.cli.command_line import CommandLine
from tests.support.postgres import RUNTIME_ROLE, TENANT_ROLE, as_runtime_role


def test_a_database_is_migrated_once(detent: CommandLine, empty_database_url: str) -> None:
    where = ("--database-url", empty_database_url)
    before = detent("db", "status", *where)
    assert before.code == 1
    assert {row[1] for row in before.rows} == {"pending"}
    assert before.err == "The schema is not up to date: run `detent db migrate`.\n"
    done = detent("db", "migrate", *where)
    assert done.code == 0
    assert done.lines == [row[0] for row in before.rows]
    assert done.err.startswith("Applied ")
    again = detent("db", "migrate", *where)
    assert (again.code, again.out, again.err) == (0, "", "The schema is up to date.\n")
    after = detent("db", "status", "--json", DETENT_DATABASE_URL=empty_database_url)
    assert after.code == 0
    assert {item["state"] for item in json.loads(after.out)["items"]} == {"applied"}


def test_a_role_for_run_time_is_granted_what_it_needs(detent: CommandLine, database_url: str) -> None:
    owner = ("--database-url", database_url)
    done = detent("db", "migrate", "--runtime-role", RUNTIME_ROLE, *owner)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"The schema is up to date.\nGranted {RUNTIME_ROLE} what nodes need at run time.\n"
    assert detent("db", "status", "--database-url", as_runtime_role(database_url)).code == 0
    done = detent("db", "migrate", "--runtime-role", "detent", *owner)
    assert done.code == 2 and "which owns the tables" in done.err
    done = detent("db", "migrate", "--runtime-role", RUNTIME_ROLE, "--database-url", as_runtime_role(database_url))
    assert done.code == 7 and "Only the owner of the tables" in done.err
    done = detent("db", "migrate", "--tenant-role", TENANT_ROLE, *owner)
    assert done.code == 0 and f"use {TENANT_ROLE} for requests" in done.err
    printed = detent("db", "sql", "--runtime-role", RUNTIME_ROLE, "--tenant-role", TENANT_ROLE)
    assert printed.code == 0
    assert f'CREATE POLICY one_tenant ON "detent".jobs AS RESTRICTIVE TO "{TENANT_ROLE}"' in printed.out
    assert f'GRANT SELECT, INSERT, UPDATE, DELETE ON "detent".api_keys TO "{RUNTIME_ROLE}";' in printed.out


def test_a_database_that_is_not_there_is_exit_code_7(detent: CommandLine) -> None:
    for verb in ("status", "migrate"):
        done = detent("db", verb, "--database-url", "postgresql://user:hidden@127.0.0.1:1/detent")
        assert (done.code, done.out) == (7, "")
        warning, error = done.err.splitlines()
        assert warning.startswith("warning: The password in --database-url is visible")
        assert error.startswith("error: The database at postgresql://127.0.0.1:1/detent cannot be reached")
        assert "hidden" not in done.err


def test_a_data_folder_that_cannot_be_used_is_one_sentence(detent: CommandLine) -> None:
    (detent.folder / "file").write_text("in the way")
    done = detent("db", "status", "--data-dir", "file")
    assert done.code == 7
    assert done.err.startswith("error: ") and done.err.count("\n") == 1
