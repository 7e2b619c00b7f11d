"""Loading the user's app, and registering its jobs."""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType

from detent.domain.audit_event import Actor
from detent.domain.registration import read_document
from detent.errors import DetentError, UsageError
from detent.jobs import JobOperations
from detent.jobs.older_nodes import OlderNodes
from detent.sdk.app import Detent
from detent.sdk.connect import NodeDatabase
from detent.store import Store
from detent.store.audit_log import acting
from detent.store.jobs import DEFAULT_TENANT
from detent.telemetry.log import logger

log = logger("app")


def load_app(reference: str) -> Detent:
    """Import `package.module:name`; the working directory is on the import path."""
    module_name, _, attribute = reference.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _imported(reference, module_name)
    app = getattr(module, attribute, None)
    if not isinstance(app, Detent):
        raise UsageError(
            f"--app {reference}: {attribute!r} in {module_name} is not a Detent(); write app = Detent() there."
        )
    try:
        app.check()
    except UsageError as error:
        raise UsageError(f"--app {reference}: {error.message}") from error
    if app.name is None:
        app.name = reference
    return app


def reference_of(app: Detent) -> str | None:
    """`package.module:name` of an app that is imported already; None if it is no variable of a module. Of several
    modules that have it, the one counts that defines a function of the app, or else the first that was imported."""
    found = [
        (module.__name__, name)
        for module in list(sys.modules.values())
        if isinstance(module, ModuleType) and module.__name__ != "__main__"  # nobody else can import that
        for name, value in list(vars(module).items())
        if value is app
    ]
    homes = {reference.partition(":")[0] for reference in app.functions}
    found.sort(key=lambda place: place[0] not in homes)  # stable: the first import otherwise
    return f"{found[0][0]}:{found[0][1]}" if found else None


def _imported(reference: str, name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise UsageError(
                f"--app {reference}: there is no module {error.name!r} here or in the Python path."
            ) from error
        raise _does_not_import(reference, name, error) from error
    except DetentError as error:
        raise UsageError(f"--app {reference}: {error.message}") from error
    except Exception as error:  # whatever the user's own code raises
        raise _does_not_import(reference, name, error) from error


def _does_not_import(reference: str, name: str, error: Exception) -> UsageError:
    return UsageError(
        f"--app {reference}: {name} cannot be imported ({type(error).__name__}: {error}): "
        "fix it, or set DETENT_DEBUG=1 to see the traceback."
    )


def print_cause(error: DetentError) -> None:
    """Print the traceback of what the user's code raised when it was imported, from its own first line on."""
    cause = error.__cause__
    if not isinstance(cause, Exception) or isinstance(cause, DetentError):
        return
    frames = cause.__traceback__
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    traceback.print_exception(cause.with_traceback(frames))


def _is_ours(file: str) -> bool:
    return file.startswith((str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen importlib"))


def attach_database(app: Detent, url: str, schema: str, *, pooled: bool) -> None:
    """Have the app's handlers enqueue through the node's own database. Nothing is opened until one does."""
    app.place.enter(NodeDatabase(url, schema, pooled))


def detach_database(app: Detent) -> None:
    """The app lives on without a node: in a web application that has stopped its own."""
    app.place.enter(None)


async def register_jobs(store: Store, jobs: JobOperations, app: Detent) -> None:
    """Create or update the app's jobs; log those that it no longer has. During a rolling upgrade, a job that exists is
    not changed to what an older node cannot read: the last node that is upgraded does that when it starts."""
    assert app.name is not None
    for document in app.jobs:
        try:
            with acting(Actor("app", name=app.name)):
                spec = read_document(document)
                _, change = await jobs.registration.upsert(spec, owner=app.name, by=f"app:{app.name}")
        except UsageError as error:
            raise UsageError(f"Job {document['name']!r} of the app: {error.message}", error.pointer) from error
        except OlderNodes as error:
            if await store.jobs.named(DEFAULT_TENANT, document["name"]) is None:
                raise
            log.warning("job not registered yet; it continues as it is", job=document["name"], error=error.message)
            continue
        if change != "unchanged":
            log.info("job registered", job=document["name"], change=change)
    names = {document["name"] for document in app.jobs}
    gone = sorted(set(await store.jobs.owned(app.name)) - names)
    if gone:
        log.warning("jobs no longer in the code; delete them with `detent job delete NAME`", jobs=gone)
