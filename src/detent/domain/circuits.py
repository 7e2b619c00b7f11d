"""What is said of hosts that do not answer, the same in the API, in explanations and by `detent doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple


class SilentHost(NamedTuple):
    """A host whose circuit is open: since when, and when it is called again."""

    host: str
    port: int
    opened_at: datetime
    next_probe_at: datetime

    @property
    def peer(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def sentence(self, now: datetime) -> str:
        return (
            f"{self.peer} does not answer since {self.opened_at:%Y-%m-%d %H:%M:%S} UTC: runs that call it wait, and "
            f"use up no attempt. {self.next_call(now)}."
        )

    def next_call(self, now: datetime) -> str:
        """After its pause a host is not called before a run of it is due."""
        if self.next_probe_at <= now:
            return "It is called again with the next run that is due"
        return f"It is called again at {self.next_probe_at:%H:%M:%S} UTC"


def silent_hosts(circuits: Iterable[SilentHost]) -> list[SilentHost]:
    """One for each host, however many nodes and tenants call it."""
    found: dict[tuple[str, int], SilentHost] = {}
    for each in circuits:
        known = found.setdefault((each.host, each.port), each)
        since, again = min(known.opened_at, each.opened_at), min(known.next_probe_at, each.next_probe_at)
        found[each.host, each.port] = known._replace(opened_at=since, next_probe_at=again)
    return list(found.values())
