"""Which passes of the worker claim from the queues.

Passes that on-demand runs ask for are frequent, and mostly nothing waits in the queues then: without a hint, the queues
are read for them a few times in a tenth of a second only, and in any case soon after such a pass.
"""

from __future__ import annotations

from detent.runtime.clock import monotonic

READ_EVERY = 0.02


class QueueReads:
    def __init__(self) -> None:
        self._hinted = True
        self._next = 0.0

    def hint(self) -> None:
        self._hinted = True

    def begins(self, *, needed: bool) -> bool:
        """A pass begins: whether it reads the queues."""
        now = monotonic()
        if not needed and not self._hinted and now < self._next:
            return False
        self._hinted, self._next = False, now + READ_EVERY
        return True

    def wait(self, longest: float, *, read: bool) -> float:
        """Seconds until the next pass, after one that has `read` the queues or not."""
        return longest if read else min(longest, max(self._next - monotonic(), 0.0))
