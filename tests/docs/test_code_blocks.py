"""Every code block of the README and of the manual is run, or checked where running it here is not possible."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from detent import Detent
from tests.docs.docs_checks import SYNTAX
from tests.docs.docs_pages import LANGUAGES, ROOT, Block, blocks_of, pages
from tests.docs.docs_shell import LIMIT_SECONDS, Shell
from tests.support.ports import free_port
from tests.support.postgres import Postgres, run_apart

ADDRESS = "127.0.0.1:8787"
DATABASE_URL = "postgresql://detent:secret@db.example.com/detent"
# Wherever a page says these, the test means its own server, its own database, and the environment it runs in.
MAKE = {"make run": "make run -o .venv/.ready"}
# Blocks of pages that do not name their language, by their first line.
UNNAMED = {
    'detent cron explain "0 14 ? * MON#1" --tz Europe/Berlin --next 10': "sh",
    "The minute field has '60': 60 is outside 0 to 59; '0' is the full minute or hour, and '*' is each one.": "text",
}
REFUSED = {"docs/schedules.md": "detent cron explain '60 * * * *'"}
# The pages for whose readers the PostgreSQL that comes along is the point; on others, one that is there is quicker.
WITH_EMBEDDED = ("README.md", "docs/tutorial.md")
# The port of applications of others, which start a node or enqueue into one.
WEB_PORT = "8800"
# A command that names this mode is for readers who have pytest-asyncio.
COROUTINES = {"-o asyncio_mode=auto": "-p asyncio -o asyncio_mode=auto"}
PAGES = [page for page in pages() if blocks_of(page)]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="detent-docs-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)  # the embedded PostgreSQL's user has to get through when root runs the tests
        yield Path(name)


@pytest.fixture(scope="module")
def shared(home: Path, postgres: Postgres) -> Iterator[str]:
    """The address of the server that pages use which start none themselves: `detent serve --demo`."""
    (home / "shared").mkdir()
    with postgres.database_apart() as url:
        port = str(free_port())
        shell = Shell(home / "shared", home / "shared", {"DETENT_DATABASE_URL": url, "DETENT_PORT": port}, {})
        start = Block("the shared server", 1, "sh", None, "server", "detent serve --demo\n")
        shell.serve(start)
        yield f"127.0.0.1:{port}"
        shell.stop_servers()


@pytest.fixture
def shell(page: str, home: Path, request: pytest.FixtureRequest) -> Iterator[Shell]:
    """The shell of a reader of this page, beside the checkout or wherever else."""
    own = home / page.replace("/", "-")
    own.mkdir()
    starts = any(block.is_server for block in blocks_of(page))
    address = f"127.0.0.1:{free_port()}" if starts else request.getfixturevalue("shared")
    rewrites = {**MAKE, **COROUTINES, ADDRESS: address}
    if any(WEB_PORT in block.text for block in blocks_of(page)):
        rewrites[WEB_PORT] = str(free_port())
    if any(DATABASE_URL in block.text for block in blocks_of(page)):
        rewrites[DATABASE_URL] = request.getfixturevalue("empty_database_url")
    variables = {
        "DETENT_API_URL": f"http://{address}",
        "DETENT_PORT": address.partition(":")[2],
        "DETENT_DATA_DIR": ".detent",
        # What a page shows works with pytest alone, although the checkout has settings of more plugins: see COROUTINES.
        "PYTEST_ADDOPTS": "-p no:asyncio -W 'ignore:Unknown config option:pytest.PytestConfigWarning'",
    }
    if page not in WITH_EMBEDDED and DATABASE_URL not in rewrites:
        variables["DETENT_DATABASE_URL"] = request.getfixturevalue("database_url")
    shell = Shell(own, checkout_like(own / "checkout"), variables, rewrites)
    yield shell
    shell.stop_servers()


# What the README says is tried from scratch in the long profile, and most of it stands in the tutorial too.
SELDOM = {"README.md"}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.long) if page in SELDOM else page for page in PAGES]
)
def test_every_block_of_a_page_works(page: str, shell: Shell, database_url: str) -> None:
    blocks = [named(block) for block in blocks_of(page)]
    served = " ".join(block.text for block in blocks if block.language in ("sh", "console"))
    for block in blocks:
        check_or_run(block, shell, database_url, served)


def test_every_block_says_its_language() -> None:
    unknown = [
        named(block).place for page in PAGES for block in blocks_of(page) if named(block).language not in LANGUAGES
    ]
    assert not unknown, f"name one of {', '.join(LANGUAGES)}: {unknown}"


def test_every_remark_about_a_block_is_understood() -> None:
    strange = [block.place for page in PAGES for block in blocks_of(page) if not block.has_known_marker]
    assert not strange, "docs_pages.py says which remarks there are"


def named(block: Block) -> Block:
    if block.language:
        return block
    language = UNNAMED.get(block.text.splitlines()[0], "")
    marker = f"printed by: {REFUSED[block.page]}" if language == "text" else ""
    return block._replace(language=language, marker=marker)


def check_or_run(block: Block, shell: Shell, scratch: str, served: str) -> None:
    if block.title is not None:
        kept = shell.folder / block.title
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(rewritten(block.text, shell))
    if block.language in SYNTAX:
        SYNTAX[block.language](block)
    if block.only_syntax:
        return
    match block.language:
        case "sh" | "console":
            shell.run(block)
        case "python":
            run_python(block, shell, scratch, served)
        case "sql":
            run_apart(run_sql(block, scratch))
        case "text" if block.marker != "drawing":
            shell.prints(block)


def run_python(block: Block, shell: Shell, scratch: str, served: str) -> None:
    """Run as a program. An app that no command of the page serves is tried in test mode: every job must succeed."""
    path = shell.folder / (block.title or f"block_{block.line}.py")
    path.write_text(rewritten(block.text, shell))
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=shell.folder,
        env=shell.environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, f"{block.place}:\n{done.stderr}"
    if "Detent()" in block.text and ".test(" not in block.text and f"{path.stem}:" not in served:
        run_apart(try_app(path, block, scratch))


async def try_app(path: Path, block: Block, url: str) -> None:
    spec = importlib.util.spec_from_file_location(f"page_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app = module.app
    assert isinstance(app, Detent)
    connection = await asyncpg.connect(url)
    try:
        async with app.test(connection=connection) as tested:
            for job in app.jobs:
                run = await tested.trigger_async(job["name"])
                assert run.status == "succeeded", f"{block.place}: {job['name']}: {run.error}"
    finally:
        await connection.close()


async def run_sql(block: Block, url: str) -> None:
    """Statements with parameters are prepared, which reads them against the tables; all others are run."""
    connection = await asyncpg.connect(url)
    try:
        if "$1" in block.text:
            await connection.prepare(block.text.strip().rstrip(";"))
        else:
            await connection.execute(block.text)
    finally:
        await connection.close()


def rewritten(text: str, shell: Shell) -> str:
    for written, meant in shell.rewrites.items():
        text = text.replace(written, meant)
    return text


def checkout_like(folder: Path) -> Path:
    """A folder that looks like a checkout after `make`, in which a reader may write what a page tells them to."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in (".git", ".detent", ".hypothesis"):
            (folder / entry.name).symlink_to(entry)
    return folder
