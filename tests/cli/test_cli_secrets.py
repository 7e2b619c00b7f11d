"""`detent secret`, against a real server: values come from stdin or a file, and are never printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from detent.domain.secret_keys import read_master_keys
from detent.domain.webhooks import read_signing_key
from detent.runtime.envelope import generate_master_key
from tests.cli.command_line import CommandLine
from tests.cli.real_server import running

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

VALUE = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[str]:
    with postgres.database_apart() as url:
        yield url


@pytest.fixture(scope="module")
def detent(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder: Path = tmp_path_factory.mktemp("server")
    with running(folder, database, DETENT_SECRET_KEY=generate_master_key()) as server:
        yield CommandLine(folder, server.url)


def told(detent: CommandLine, *arguments: str, stdin: str = "") -> Any:
    done = detent(*arguments, "--json", stdin=stdin)
    assert done.code == 0, done.err
    assert VALUE not in done.out + done.err
    return json.loads(done.out)


def test_a_value_comes_from_stdin_or_a_file_without_its_line_end(detent: CommandLine) -> None:
    assert told(detent, "secret", "set", "one", stdin=f"{VALUE}\n")["version"] == 1
    (detent.folder / "value.txt").write_text(VALUE)
    assert told(detent, "secret", "set", "one", "--file", "value.txt")["version"] == 2
    done = detent("secret", "set", "one", stdin=VALUE)
    assert done.err == 'Stored secret one, version 3: refer to it with {"secret": "one"}.\n'
    rows = {row[0]: row for row in detent("secret", "list").rows}
    assert rows["one"][:4] == ["one", "3", "1", "0"]


def test_a_value_on_the_command_line_is_refused(detent: CommandLine) -> None:
    done = detent("secret", "set", "one", VALUE)
    assert done.code == 2


@pytest.mark.parametrize(
    ("stdin", "options", "part"),
    [
        ("short", (), "fewer than 6 characters"),
        ("", ("--file", "nowhere.txt"), "cannot be read (No such file or directory)"),
    ],
)
def test_a_bad_value_is_one_sentence(detent: CommandLine, stdin: str, options: tuple[str, ...], part: str) -> None:
    done = detent("secret", "set", "bad", *options, stdin=stdin)
    assert done.code == 2
    assert part in done.err
    assert len(done.err.splitlines()) == 1


def test_a_rotation_says_until_when_the_former_value_is_valid(detent: CommandLine) -> None:
    told(detent, "secret", "set", "rotated", stdin=VALUE)
    answer = told(detent, "secret", "rotate", "rotated", "--keep", "1h", stdin="another value")
    assert (answer["version"], answer["versions"]) == (2, 2)
    done = detent("secret", "rotate", "rotated", stdin="a third value")
    assert done.err == "Rotated secret rotated, version 3: former values are gone.\n"
    assert detent("secret", "rotate", "nowhere", stdin=VALUE).code == 3


def test_jobs_refer_to_secrets_with_flags(detent: CommandLine) -> None:
    told(detent, "secret", "set", "header", stdin=VALUE)
    told(detent, "secret", "set", "webhooks", stdin=detent("secret", "generate-key", "--signing").out)
    target = ("--every", "1h", "--url", "https://example.com/", "--header", 'Authorization: {"secret": "header"}')
    job = told(detent, "job", "create", "job", *target, "--signing", "webhooks")
    assert job["target"]["headers"] == {"Authorization": {"secret": "header"}}
    assert job["signing"] == {"secret": "webhooks"}
    shown = detent("job", "get", "job")
    assert shown.code == 0
    assert detent("secret", "delete", "header", "--yes").code == 6
    assert detent("job", "delete", "job", "--yes").code == 0
    assert detent("secret", "delete", "header", "--yes").code == 0
    assert detent("secret", "delete", "header", "--yes").code == 3


def test_an_export_with_references_is_applied_again(detent: CommandLine) -> None:
    told(detent, "secret", "set", "kept", stdin=VALUE)
    document = {"name": "kept", "schedule": "every 1h", "target": {"type": "shell", "command": "true",
                "env": {"KEY": {"secret": "kept"}}}, "payload": [{"secret": "kept"}]}  # fmt: skip
    (detent.folder / "job.json").write_text(json.dumps({"jobs": [document]}))
    assert detent("apply", "-f", "job.json", "--yes").code == 0
    exported = detent("export")
    assert exported.out.count("secret: kept") == 2
    (detent.folder / "again.yaml").write_text(exported.out)
    assert detent("diff", "-f", "again.yaml").code == 0


def test_validate_warns_of_credentials_in_headers(detent: CommandLine) -> None:
    headers = {"Authorization": "Bearer x", "X-Api-Key": {"secret": "y"}}
    document = {
        "name": "job",
        "schedule": "@daily",
        "target": {"type": "http", "url": "https://a.b/", "headers": headers},
    }
    (detent.folder / "literal.json").write_text(json.dumps({"jobs": [document]}))
    done = detent("validate", "-f", "literal.json")
    assert done.code == 0
    assert "The header Authorization is stored as plain text" in done.out + done.err
    assert "X-Api-Key" not in done.out + done.err


def test_generated_keys_are_usable(detent: CommandLine) -> None:
    assert read_master_keys(detent("secret", "generate-key").out)
    assert read_signing_key(detent("secret", "generate-key", "--signing").out)


def test_the_secret_key_is_rotated_batch_by_batch(detent: CommandLine) -> None:
    done = detent("secret", "rotate-key")
    assert done.code == 0
    assert done.err.startswith("All secrets are under the key ")


def test_a_wrong_or_missing_secret_key_is_one_sentence_at_the_start(detent: CommandLine, database: str) -> None:
    told(detent, "secret", "set", "one", stdin=VALUE)
    start = ("worker", "--database-url", database)
    for variables, part in (
        ({"DETENT_SECRET_KEY": "not-a-key"}, "DETENT_SECRET_KEY is not usable: give a key that `detent secret"),
        ({"DETENT_SECRET_KEY": generate_master_key()}, "add the missing key after the others"),
        ({}, "and DETENT_SECRET_KEY is not set: give this worker the key"),
    ):
        done = detent(*start, **variables)
        assert done.code == 2, done.err
        assert part in done.err
        assert "not-a-key" not in done.err
        assert done.err.count("error: ") == 1


def test_a_tenant_signs_its_calls(detent: CommandLine) -> None:
    told(detent, "secret", "set", "webhooks", stdin=detent("secret", "generate-key", "--signing").out)
    done = detent("tenant", "signing", "default", "webhooks")
    assert done.err == "HTTP calls of default are signed with webhooks.\n"
    assert told(detent, "tenant", "get", "default")["signing"] == "webhooks"
    assert detent("tenant", "signing", "default", "none").err == "HTTP calls of default are not signed.\n"
