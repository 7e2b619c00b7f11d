"""What all cells of Procrastinate share: an app on PostgreSQL, and its worker in this process."""

import os

import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))


async def work() -> None:
    """Execute what waits, and return."""
    await app.run_worker_async(wait=False, install_signal_handlers=False, listen_notify=False)


async def prepare() -> None:
    await app.schema_manager.apply_schema_async()
