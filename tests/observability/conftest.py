"""For tests of metrics, logs and notices: sessions in this process, and what is scraped from one."""

from __future__ import annotations

from tests.support.sessions import looking_often, start

__all__ = ["looking_often", "start"]
