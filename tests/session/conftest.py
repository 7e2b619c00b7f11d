"""Sessions in this process, and a connection to look at the tables."""

from tests.support.sessions import look, looking_often, start, store

__all__ = ["look", "looking_often", "start", "store"]
