"""What a failure is called on a page. The text of a driver or an address of a server is for the log alone."""

from __future__ import annotations

from detent.dashboard.heartbeat import DatabaseSilent
from detent.errors import DetentError, Unavailable
from detent.store.db import LockTimeout, OutcomeUnknown, Rejected

SILENT = "Database not answering."
BUSY = "The database is busy with this."
REFUSED = "The database refused this: the server's log has the details."
UNCHANGED = "Nothing was changed: try again when it answers."
UNKNOWN = "It is not known whether the change was made: check before you repeat it."


def plain_words(error: DetentError) -> str:
    """What happened, for who only looks."""
    if isinstance(error, LockTimeout):
        return BUSY
    if isinstance(error, Rejected):
        return REFUSED
    if isinstance(error, OutcomeUnknown) or _is_of_the_store(error):
        return SILENT
    return error.message


def words_about_a_change(error: DetentError) -> str:
    """As `plain_words`, with what that means for a change that was asked for."""
    if isinstance(error, OutcomeUnknown):
        return f"{SILENT} {UNKNOWN}"
    if isinstance(error, LockTimeout):
        return f"{BUSY} Nothing was changed: try again."
    if isinstance(error, DatabaseSilent) or _is_of_the_store(error):
        return f"{SILENT} {UNCHANGED}"
    return plain_words(error)


def _is_of_the_store(error: DetentError) -> bool:
    """Subclasses of the dashboard's own say what they mean in words for people."""
    return type(error) is Unavailable
