"""Sessions in this process, and a connection to look at the tables."""

from sessions import look, start, store

__all__ = ["look", "start", "store"]
