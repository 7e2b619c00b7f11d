"""The server, its clock and the settings of a connection."""

from __future__ import annotations

from detent.store.statement import Statement

CLOCK = Statement(__name__, "clock")
ENTER_WALL = Statement(__name__, "enter_wall")
GRANT_PARTS = Statement(__name__, "grant_parts")
LIMIT_READER = Statement(__name__, "limit_reader")
PING = Statement(__name__, "ping")
PREFER_INDEX = Statement(__name__, "prefer_index")
READ_ROLE_NAME = Statement(__name__, "read_role_name")
READ_ROLE_RIGHTS = Statement(__name__, "read_role_rights")
READ_SERVER = Statement(__name__, "read_server")
READ_SETTINGS = Statement(__name__, "read_settings")
READ_WALL = Statement(__name__, "read_wall")
USE_HANDLER_SETTINGS = Statement(__name__, "use_handler_settings")
USE_SETTLE_SETTINGS = Statement(__name__, "use_settle_settings")
