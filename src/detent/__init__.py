"""detent: every tick of every schedule becomes exactly one run."""

from detent.version import __version__

__all__ = ["__version__"]
