"""The roles of the embedded server: its superuser, and the role of the product, which is not a superuser."""

from __future__ import annotations

from detent.store.statement import Statement

ADD = Statement(__name__, "add")
ADD_DATABASE = Statement(__name__, "add_database")
ADD_SUBSTITUTE = Statement(__name__, "add_substitute")
DROP_SUBSTITUTE = Statement(__name__, "drop_substitute")
GIVE_OBJECTS = Statement(__name__, "give_objects")
READ = Statement(__name__, "read")
RENAME_SUPERUSER = Statement(__name__, "rename_superuser")
