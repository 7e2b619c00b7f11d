"""What all cells of DBOS share: an instance on PostgreSQL that works in this process."""

import contextlib
import os

from dbos import DBOS

url = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://")


def configure(**options):
    DBOS(
        config={
            "name": "cell",
            "system_database_url": url,
            "log_level": "CRITICAL",
            "run_admin_server": False,
            **options,
        }
    )


@contextlib.contextmanager
def worker():
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy(workflow_completion_timeout_sec=30)  # runs under way may end
