"""Sessions in this process, and a connection that reads the tables."""

from tests.support.sessions import looking_often, start

__all__ = ["looking_often", "start"]
