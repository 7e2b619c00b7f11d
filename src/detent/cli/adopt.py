"""`detent db adopt`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.cli import output
from detent.cli.actor import this_command
from detent.cli.base import command, option
from detent.cli.database import db, reaches_database, with_connection
from detent.cli.invocation import load_settings

if TYPE_CHECKING:
    from detent.store.connection import Connection

__all__ = ["db"]

NOTHING = {
    "ORIGINAL": "it is the original.",
    "UNUSED": "it has no jobs, and the first node claims it.",
    "FAILED_OVER": "it has just failed over, and nodes follow it automatically.",
}


@command(db, "adopt", examples=("detent db adopt --database-url postgresql://user@host/restored",))
@reaches_database
@option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def adopt(yes: bool, **flags: str | None) -> int:
    """Declare a copy of the database to be the original.

    A restored, cloned or upgraded database is held: nodes do not join it, so
    that it does not repeat what the original does. Adopt it when the original
    is gone, or when both are meant to run independently.
    """
    settings = load_settings(flags)
    from detent.cluster import admission
    from detent.store import migrate, original
    from detent.store.audit_log import acting

    async def read(connection: Connection) -> Any:
        await migrate.check(connection)
        return await original.read(connection)

    identity = with_connection(settings, read)
    origin = admission.classify(identity)
    if origin is not admission.DatabaseOrigin.HELD:
        output.say(f"There is nothing to adopt in this database: {NOTHING[origin.name]}")
        return 0
    output.say(f"This database may be a copy: {admission.why_held(identity)}.")
    question = "If the original is still in use, both will run every job. Adopt this one?"
    if not output.agreed(yes, question, "detent db adopt --yes"):
        output.say("Nothing was changed: this database stays held.")
        return 1
    with acting(this_command("detent db adopt")):
        incarnation = with_connection(settings, original.adopt)
    output.say(f"Adopted as incarnation {incarnation}: nodes join within seconds, and ticks fire.")
    return 0
