"""`python -m tests.contrib.django.upstream.run SDIST` with DEFAULT_URL and QUIET_URL: Django's tests on our backend.

Prints what ran and what does not apply, and why. The exit code is 0 if all that applies passed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tarfile
import tempfile
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

POINTED = {
    "django.tasks.backends.dummy.DummyBackend": "tests.contrib.django.upstream.backends.QueueOnly",
    "django.tasks.backends.immediate.ImmediateBackend": "tests.contrib.django.upstream.backends.RunAtOnce",
    "from django.tasks.backends.dummy import DummyBackend": (
        "from tests.contrib.django.upstream.backends import QueueOnly as DummyBackend"
    ),
    "from django.tasks.backends.immediate import ImmediateBackend": (
        "from tests.contrib.django.upstream.backends import RunAtOnce as ImmediateBackend"
    ),
}
MODULES = ("test_tasks", "test_dummy_backend", "test_immediate_backend")
# `test_custom_backend` is about backends that it defines itself: there is none to replace.
_SUPPORTED = "asserts that ImmediateBackend cannot do it; ours can"
_MEMORY = "changes or clears results in the memory of DummyBackend; ours are rows of the database"
NOT_APPLICABLE = {
    "DummyBackendTestCase.test_clear": _MEMORY,
    "DummyBackendTestCase.test_refresh_result": _MEMORY,
    "DummyBackendTestCase.test_refresh_result_async": _MEMORY,
    "ImmediateBackendTestCase.test_cannot_get_result": _SUPPORTED,
    "ImmediateBackendTestCase.test_cannot_refresh_result": _SUPPORTED,
    "ImmediateBackendTestCase.test_cannot_pass_run_after": _SUPPORTED,
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": (
        "asserts that enqueue raises what the task raises; ours runs it in a worker, where it is a failed attempt"
    ),
    "ImmediateBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default": (
        "asserts that the task runs before the commit; with ours it is part of the transaction"
    ),
}


def unpack(sdist: Path, folder: Path) -> None:
    """Django's `tests/tasks` as the package `tasks`, pointed at our backends."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (found,) = (folder / "source").glob("*/tests/tasks")
    shutil.copytree(found, folder / "tasks")
    for module in MODULES:
        path = folder / "tasks" / f"{module}.py"
        text = path.read_text("utf-8")
        for theirs, ours in POINTED.items():
            text = text.replace(theirs, ours)
        path.write_text(text, "utf-8")


@contextmanager
def worker() -> Iterator[None]:
    """A worker in this process, otherwise as `manage.py detent worker`: Django's tests read the log of the process."""
    from detent.contrib.django.operations import sync
    from detent.contrib.django.setup import APP, backend_named, discover, node_settings
    from detent.node.console import Console
    from detent.node.node import Node
    from detent.node.served import ServedWork
    from detent.telemetry.metrics import Metrics

    class ConsoleWithEvent(Console):
        def started(self, url: str | None, keys_needed: bool = False, served: ServedWork | None = None) -> None:
            ready.set()

    ready = threading.Event()
    backend = backend_named()
    discover(backend)
    sync(backend)
    settings, roles = node_settings(backend, {"app": APP}), ("worker",)
    loop = asyncio.new_event_loop()
    node = Node(settings, roles, ConsoleWithEvent(settings, roles), Metrics())
    thread = threading.Thread(target=loop.run_until_complete, args=[node.run()], name="worker")
    thread.start()
    assert ready.wait(60), "the worker did not start"
    try:
        yield
    finally:
        loop.call_soon_threadsafe(node.stop)
        thread.join(60)


def applicable(suite: Any) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from applicable(each)
        else:
            yield each


def name_of(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


def main() -> int:
    # Some of the tests read results in a coroutine without await. Django permits that only to backends without queries.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.contrib.django.upstream.settings"
    with tempfile.TemporaryDirectory() as folder:
        unpack(Path(sys.argv[1]), Path(folder))
        sys.path.insert(0, folder)
        import django
        from django.test import SimpleTestCase, TransactionTestCase
        from django.test.utils import setup_test_environment

        django.setup()
        setup_test_environment()
        for kind in (SimpleTestCase, TransactionTestCase):
            kind.databases = {"default", "quiet"}  # ours has its results there
        loader = unittest.TestLoader()
        found = list(applicable(loader.loadTestsFromNames([f"tasks.{module}" for module in MODULES])))
        names = {name_of(test) for test in found}
        gone = sorted(set(NOT_APPLICABLE) - names)
        assert not gone, f"Django no longer has {gone}: update NOT_APPLICABLE"
        chosen = unittest.TestSuite(test for test in found if name_of(test) not in NOT_APPLICABLE)
        with worker():
            outcome = unittest.TextTestRunner(verbosity=2).run(chosen)
    for name, reason in NOT_APPLICABLE.items():
        sys.stdout.write(f"not applicable: {name}: {reason}\n")
    sys.stdout.write(f"Django {django.get_version()}: {outcome.testsRun} ran, {len(NOT_APPLICABLE)} do not apply\n")
    return 0 if outcome.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
