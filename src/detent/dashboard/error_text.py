"""Error sentences for pages. Driver messages and server addresses go to the log only."""

from __future__ import annotations

from detent.dashboard.heartbeat import DatabaseSilent
from detent.errors import DetentError, Unavailable
from detent.store.db import LockTimeout, OutcomeUnknown, Rejected

SILENT = "Database not answering."
BUSY = "The database is busy with another change of the same data."
REFUSED = "The database refused this request: see the server's log."
UNCHANGED = "Nothing was changed: try again when it answers."
UNKNOWN = "The change may or may not have been made: check before you repeat it."


def page_error_text(error: DetentError) -> str:
    """What happened, for a page that only reads."""
    if isinstance(error, LockTimeout):
        return BUSY
    if isinstance(error, Rejected):
        return REFUSED
    if isinstance(error, OutcomeUnknown) or _is_store_error(error):
        return SILENT
    return error.message


def change_error_text(error: DetentError) -> str:
    """As `page_error_text`, and whether the requested change was made."""
    if isinstance(error, OutcomeUnknown):
        return f"{SILENT} {UNKNOWN}"
    if isinstance(error, LockTimeout):
        return f"{BUSY} Nothing was changed: try again."
    if isinstance(error, DatabaseSilent) or _is_store_error(error):
        return f"{SILENT} {UNCHANGED}"
    return page_error_text(error)


def _is_store_error(error: DetentError) -> bool:
    """The dashboard's own subclasses of Unavailable already carry a sentence for users."""
    return type(error) is Unavailable
