"""Circuit breakers: a host that does not answer is called by one run at a time, until it answers again.

A circuit belongs to one tenant, host and port in this process. After a number of failed calls in a row it opens: runs
that would call the host are returned to their queues, to wait there, and their attempts do not count. When the pause of
the circuit is over, the next run that comes is its probe: it is called, whatever comes of it. If the host answers, the
circuit closes; if not, the pause grows. The failure of a probe is a failed attempt of its run, so a host that is gone
for good is in the end reported by dead runs.

A call fails in this sense if its host did not answer: no address, no connection, no TLS, a connection that broke, no
answer within the time limit, or an answer of a gateway that says so (502, 503, 504). Any other answer closes the
circuit, an error too.

Only hosts whose last call failed are remembered: while there are none, a call checks one attribute.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from detent.domain.masking import Mask
from detent.domain.run import Call, Failed, NotBegun
from detent.runtime.clock import monotonic
from detent.targets.called_hosts import HostKey
from detent.targets.host_loads import HostLoads
from detent.telemetry.log import logger
from detent.telemetry.metrics import Metrics

log = logger("breaker")

FIRST_PAUSE = 1.0
# Runs that wait for one host come back at no more than this rate, unless that takes longer than the longest pause.
RETURNS_PER_SECOND = 500.0
# So many runs come back when the pause is over, the others later. One is enough for the probe; but it may be cancelled,
# or claimed by another node.
PROBE_CANDIDATES = 3
# A host whose last failure is older counts from one again. So does one whose circuit is open, if no run has come for so
# long after its next probe was due: its jobs were deleted, or run elsewhere.
FORGOTTEN_SECONDS = 600.0
MOST_HOSTS = 10_000
# A probe that has not reported after its time limit and this is not waited for.
PROBE_GRACE = 5.0


class CallPermit(Enum):
    """`PROBE`: this call decides whether the circuit closes."""

    CALL = "call"
    PROBE = "probe"


class Unanswered(NamedTuple):
    """A call whose host did not answer. `sent`: something of it may have been received. `counts`: the host is the
    reason; else it may be the call, which then says nothing about the host."""

    failed: Failed
    sent: bool
    counts: bool = True


class OpenCircuit(NamedTuple):
    """As it is reported; times on the monotonic clock of this process."""

    key: HostKey
    opened_at: float
    next_probe: float
    put_off: int
    error: str


class _Circuit:
    __slots__ = ("crowd", "error", "failures", "last_failure", "next_probe", "opened_at", "pause", "probe_until",
                 "put_off", "returning")  # fmt: skip

    def __init__(self) -> None:
        self.failures = 0
        self.last_failure = 0.0
        self.error = ""
        self.opened_at: float | None = None
        self.pause = 0.0
        self.next_probe = 0.0
        self.probe_until = 0.0  # a probe is under way until then; 0: none is
        self.put_off = 0
        # Runs that were put off since the last probe, and as many as that were before it.
        self.returning = 0
        self.crowd = 0


class HostBreakers:
    """`failures`: after so many calls in a row that were not answered, a circuit opens; 0: never."""

    def __init__(
        self,
        failures: int,
        max_pause: float,
        metrics: Metrics,
        *,
        loads: HostLoads | None = None,
        clock: Callable[[], float] = monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._failures = failures
        self._max_pause = max_pause
        self._metrics = metrics
        self._clock = clock
        self._chance = chance
        self._open = 0
        self.loads = loads or HostLoads()
        """The calls under way, which runners count."""
        self.troubled: dict[HostKey, _Circuit] = {}
        """Hosts whose last call failed, the latest failure last. While it is empty, `answered` need not be called."""
        self.version = 0
        """Changes when a circuit opens, closes, or was probed."""

    @property
    def may_refuse(self) -> bool:
        """Otherwise `admit` need not be called."""
        return bool(self.troubled) or self.loads.crowded

    @property
    def may_put_off(self) -> bool:
        """Otherwise `waiting_time` need not be called."""
        return self._open > 0 or self.loads.crowded

    def admit(self, key: HostKey, patience: float) -> CallPermit | NotBegun:
        """Whether a call may begin, which takes at most `patience` seconds. Each admission is followed by one report:
        `answered`, `failed` or `released`."""
        circuit = self.troubled.get(key)
        if circuit is not None and circuit.opened_at is not None:
            now = self._clock()
            if self._is_shut(circuit, now):
                return self._put_off(key, circuit, now)
            circuit.probe_until = now + patience + PROBE_GRACE
            return CallPermit.PROBE
        seconds = self.loads.waiting_time(key) if self.loads.crowded else 0.0
        return NotBegun(f"{key.peer} has not answered yet.", retry_after=seconds) if seconds else CallPermit.CALL

    def waiting_time(self, key: HostKey) -> float:
        """Whether a run is put off before it has a slot: the seconds until it may be claimed again. 0: it may be
        called, or is to be the probe."""
        circuit = self.troubled.get(key)
        if circuit is not None and circuit.opened_at is not None:
            now = self._clock()
            return self._waiting_time(circuit, now) if self._is_shut(circuit, now) else 0.0
        return self.loads.waiting_time(key) if self.loads.crowded else 0.0

    @staticmethod
    def _is_shut(circuit: _Circuit, now: float) -> bool:
        return now < circuit.next_probe or now < circuit.probe_until

    def answered(self, key: HostKey) -> None:
        circuit = self.troubled.pop(key, None)
        if circuit is not None and circuit.opened_at is not None:
            log.info(
                "host answers again", host=key.peer, tenant=key.tenant, put_off=circuit.put_off,
                seconds=round(self._clock() - circuit.opened_at, 3),
            )  # fmt: skip
            self._changed(-1)

    def failed(
        self, key: HostKey, admission: CallPermit, unanswered: Unanswered, mask: Mask | None = None
    ) -> Failed | NotBegun:
        """The host did not answer. The run is put off if nothing was sent and the circuit has opened meanwhile. `mask`
        hides the secrets of the call: its error is shown with the circuit and with other runs."""
        if not self._failures:
            return unanswered.failed
        if not unanswered.counts:
            self.released(key, admission)
            return unanswered.failed
        now = self._clock()
        circuit = self._noted(key, now)
        circuit.error = unanswered.failed.error if mask is None else mask.text(unanswered.failed.error)
        if admission is CallPermit.PROBE:
            self._pause(circuit, min(circuit.pause * 2, self._max_pause), now)
        elif circuit.opened_at is not None:
            return unanswered.failed if unanswered.sent else self._put_off(key, circuit, now)
        elif circuit.failures >= self._failures:
            circuit.opened_at = now
            self._pause(circuit, min(FIRST_PAUSE, self._max_pause), now)
            log.warning("host does not answer", host=key.peer, tenant=key.tenant, error=circuit.error)
            self._metrics.circuits_opened += 1
            self._changed(1)
        return unanswered.failed

    def released(self, key: HostKey, admission: CallPermit) -> None:
        """The call ended without saying anything about the host, because it was cancelled or not allowed."""
        circuit = self.troubled.get(key)
        if circuit is not None and admission is CallPermit.PROBE:
            circuit.probe_until = 0.0

    def forget_unused(self) -> None:
        """Forget hosts that no run calls any more: nothing else would close their circuits, or end their report."""
        longest = max(FORGOTTEN_SECONDS, self._max_pause)
        before = self._clock() - longest
        unused = [
            (key, each)
            for key, each in self.troubled.items()
            if max(each.last_failure, each.next_probe, each.probe_until) < before
        ]
        self.loads.forget_unused()
        for key, circuit in unused:
            del self.troubled[key]
            if circuit.opened_at is not None:
                log.info("host is no longer called", host=key.peer, tenant=key.tenant, seconds=longest)
                self._changed(-1)

    def open_circuits(self) -> list[OpenCircuit]:
        return [
            OpenCircuit(key, each.opened_at, each.next_probe, each.put_off, each.error)
            for key, each in self.troubled.items()
            if each.opened_at is not None
        ]

    def _noted(self, key: HostKey, now: float) -> _Circuit:
        circuit = self.troubled.pop(key, None)
        if circuit is None or (circuit.opened_at is None and now - circuit.last_failure > FORGOTTEN_SECONDS):
            circuit = _Circuit()
        self.troubled[key] = circuit
        circuit.failures += 1
        circuit.last_failure = now
        if len(self.troubled) > MOST_HOSTS:
            oldest = self.troubled.pop(next(iter(self.troubled)))
            if oldest.opened_at is not None:
                self._changed(-1)
        return circuit

    def _pause(self, circuit: _Circuit, seconds: float, now: float) -> None:
        """With jitter, so that processes that lost a host together do not probe it together."""
        circuit.pause = seconds
        circuit.next_probe = now + seconds * (0.8 + 0.2 * self._chance())
        circuit.probe_until = 0.0
        circuit.crowd, circuit.returning = circuit.returning, 0
        self.version += 1

    def _put_off(self, key: HostKey, circuit: _Circuit, now: float) -> NotBegun:
        seconds = self._waiting_time(circuit, now)
        return NotBegun(f"{key.peer} does not answer: {circuit.error}", retry_after=seconds)

    def _waiting_time(self, circuit: _Circuit, now: float) -> float:
        """Until the next probe; and all but a few somewhat longer, at random: so they neither come back all at once nor
        later than one longest pause after a probe that was answered."""
        probing = now < circuit.probe_until
        wait = max(circuit.next_probe - now, circuit.pause if probing else 0.0)
        if circuit.returning >= PROBE_CANDIDATES or probing:
            crowd = max(circuit.crowd, circuit.returning)
            spread = min(max(crowd / RETURNS_PER_SECOND, circuit.pause), self._max_pause)
            wait += spread * self._chance()
        circuit.returning += 1
        circuit.put_off += 1
        return max(wait, 0.05)

    def _changed(self, opened: int) -> None:
        self._open += opened
        self._metrics.circuits_open += opened
        self.version += 1


def never_open() -> HostBreakers:
    """For calls outside of a node."""
    return HostBreakers(0, 0.0, Metrics())


def ran_out(call: Call, began: float) -> bool:
    """Whether a call that was interrupted had used up its time limit: then that is why. The worker measures the limit
    from slightly before `began`."""
    limit = call.timeout_seconds
    return monotonic() - began >= limit - min(0.1, limit / 10)
