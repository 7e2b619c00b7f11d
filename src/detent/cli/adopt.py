"""`detent db adopt`"""

from __future__ import annotations

from typing import Any

from detent.cli import output
from detent.cli.base import command, option
from detent.cli.database import db, reaches_database, with_connection
from detent.cli.session import load_settings
from detent.store.connection import Connection

__all__ = ["db"]

NOTHING = {
    "ORIGINAL": "it is the original.",
    "UNUSED": "it has no jobs, and the first node makes it its own.",
    "FAILED_OVER": "it failed over just now, and nodes follow it by themselves.",
}


@command(db, "adopt", examples=("detent db adopt --database-url postgresql://user@host/restored",))
@reaches_database
@option("--yes", "-y", is_flag=True, help="Do not ask.")
def adopt(yes: bool, **flags: str | None) -> int:
    """Say that a copy of the database is the original from now on.

    A database that was restored, cloned or upgraded is held: nodes do not
    join, so that it does not do once more what the original does. Adopt it
    when the original is gone, or when both are to go their own ways.
    """
    settings = load_settings(flags)
    from detent.cluster import admission
    from detent.store import migrate, original

    async def look(connection: Connection) -> Any:
        await migrate.check(connection)
        return await original.read(connection)

    standing = with_connection(settings, look)
    verdict = admission.judge(standing)
    if verdict is not admission.Verdict.HELD:
        output.say(f"There is nothing to adopt in this database: {NOTHING[verdict.name]}")
        return 0
    output.say(f"This database may be a copy: {admission.why_held(standing)}.")
    question = "If the original is still at work, the two will do everything twice. Adopt this one?"
    if not output.agreed(yes, question, "detent db adopt --yes"):
        output.say("Nothing was changed: this database stays held.")
        return 1
    incarnation = with_connection(settings, original.adopt)
    output.say(f"Adopted, as incarnation {incarnation}: nodes join it within seconds, and ticks fire.")
    return 0
