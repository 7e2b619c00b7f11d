"""What a server says about itself."""

from __future__ import annotations

from msgspec import Struct


class Version(Struct, frozen=True):
    version: str
    api: str
    tzdata: str
