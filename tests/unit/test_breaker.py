"""Circuits of hosts: when they open, who probes, how long the others wait, and what is forgotten."""

from __future__ import annotations

import pytest

from detent.domain.masking import Mask
from detent.domain.run import Failed, NotBegun
from detent.targets import breaker
from detent.targets.breaker import CallPermit, HostBreakers, Unanswered
from detent.targets.called_hosts import HostKey
from detent.telemetry.metrics import Metrics

HOST = HostKey(1, "dead.example", 443)
OTHER = HostKey(1, "other.example", 443)
REFUSED = Unanswered(Failed("connection refused"), sent=False)
TIMEOUT = Unanswered(Failed("no answer", outcome="timeout"), sent=True)


class Hosts(HostBreakers):
    def __init__(self, failures: int = 3, max_pause: float = 30.0, chance: float = 0.5) -> None:
        self.now = 100.0
        self.metrics = Metrics()
        super().__init__(failures, max_pause, self.metrics, clock=lambda: self.now, chance=lambda: chance)

    def call(self, result: Unanswered | None, key: HostKey = HOST) -> Failed | NotBegun | None:
        """A call to the host, with this result; None: it answered."""
        admission = self.admit(key, 10.0)
        if isinstance(admission, NotBegun):
            return admission
        if result is None:
            self.answered(key)
            return None
        return self.failed(key, admission, result)

    def opened(self) -> Hosts:
        for _ in range(3):
            assert self.call(REFUSED) is REFUSED.failed
        return self

    def wait(self) -> float:
        outcome = self.call(None)
        assert isinstance(outcome, NotBegun)
        return outcome.retry_after


def test_fewer_failures_than_the_limit_are_attempts_and_an_answer_forgets_them() -> None:
    hosts = Hosts()
    for _ in range(5):
        assert hosts.call(REFUSED) is REFUSED.failed
        assert hosts.call(TIMEOUT) is TIMEOUT.failed
        assert hosts.call(None) is None
        assert not hosts.troubled


def test_after_so_many_failures_in_a_row_runs_are_put_off() -> None:
    hosts = Hosts().opened()
    outcome = hosts.call(None)
    assert isinstance(outcome, NotBegun)
    assert outcome.why == "dead.example:443 does not answer: connection refused"
    assert 0.8 <= outcome.retry_after <= 1.0
    assert hosts.call(None, OTHER) is None
    assert hosts.call(None, HOST._replace(tenant=2)) is None
    assert (hosts.metrics.circuits_open, hosts.metrics.circuits_opened) == (1, 1)


def test_calls_under_way_when_it_opens_go_back_only_if_nothing_was_sent() -> None:
    hosts = Hosts()
    admissions = [hosts.admit(HOST, 10.0) for _ in range(6)]
    assert set(admissions) == {CallPermit.CALL}
    results = [hosts.failed(HOST, CallPermit.CALL, each) for each in (REFUSED, REFUSED, REFUSED, REFUSED, TIMEOUT)]
    assert [isinstance(result, NotBegun) for result in results] == [False, False, False, True, False]


def test_one_probe_at_a_time_and_its_failure_is_an_attempt() -> None:
    hosts = Hosts().opened()
    hosts.now += 1.0
    assert hosts.admit(HOST, 10.0) is CallPermit.PROBE
    assert isinstance(hosts.admit(HOST, 10.0), NotBegun)
    assert hosts.failed(HOST, CallPermit.PROBE, REFUSED) is REFUSED.failed
    assert 1.6 <= hosts.wait() <= 2.0


def test_the_pause_doubles_up_to_its_limit() -> None:
    hosts = Hosts(max_pause=5.0).opened()
    pauses = []
    for _ in range(5):
        pauses.append(hosts.wait())
        hosts.now += 5.0
        assert hosts.call(REFUSED) is REFUSED.failed
    assert pauses == pytest.approx([0.9, 1.8, 3.6, 4.5, 4.5])


def test_an_answered_probe_closes_the_circuit() -> None:
    hosts = Hosts().opened()
    hosts.now += 1.0
    assert hosts.call(None) is None
    assert not hosts.troubled
    assert hosts.metrics.circuits_open == 0
    assert hosts.call(REFUSED) is REFUSED.failed


def test_a_late_answer_of_a_call_from_before_closes_it_too() -> None:
    hosts = Hosts()
    assert hosts.admit(HOST, 10.0) is CallPermit.CALL
    hosts.opened()
    hosts.answered(HOST)
    assert hosts.call(None) is None


def test_a_probe_that_is_cancelled_leaves_the_next_run_to_probe() -> None:
    hosts = Hosts().opened()
    hosts.now += 1.0
    assert hosts.admit(HOST, 10.0) is CallPermit.PROBE
    hosts.released(HOST, CallPermit.PROBE)
    assert hosts.admit(HOST, 10.0) is CallPermit.PROBE


def test_a_probe_that_never_reports_is_not_waited_for_longer_than_its_time() -> None:
    hosts = Hosts().opened()
    hosts.now += 1.0
    assert hosts.admit(HOST, 10.0) is CallPermit.PROBE
    hosts.now += 10.0 + breaker.PROBE_GRACE
    assert hosts.admit(HOST, 10.0) is CallPermit.PROBE


def test_a_few_runs_return_for_the_probe_and_the_others_spread_out_by_their_number() -> None:
    hosts = Hosts(chance=0.999).opened()
    waits = [hosts.wait() for _ in range(10_000)]
    first = waits[: breaker.PROBE_CANDIDATES]
    assert max(first) <= 1.0 < min(waits[breaker.PROBE_CANDIDATES :])
    assert max(waits) == pytest.approx(1.0 + 10_000 / breaker.RETURNS_PER_SECOND, rel=0.01)
    assert max(Hosts(chance=0.999, max_pause=5.0).opened().wait() for _ in range(5)) <= 6.0


def test_failures_long_ago_do_not_count() -> None:
    hosts = Hosts()
    for _ in range(10):
        assert hosts.call(REFUSED) is REFUSED.failed
        hosts.now += breaker.FORGOTTEN_SECONDS + 1
    assert not hosts.open_circuits()


def test_a_host_that_no_run_calls_any_more_is_forgotten_also_if_its_circuit_is_open() -> None:
    hosts = Hosts().opened()
    hosts.call(REFUSED, OTHER)
    hosts.now += breaker.FORGOTTEN_SECONDS
    hosts.call(REFUSED, OTHER)
    hosts.forget_unused()
    assert list(hosts.troubled) == [HOST, OTHER]  # the probe was due after the last failure
    version = hosts.version
    hosts.now += 1.0
    hosts.forget_unused()
    assert list(hosts.troubled) == [OTHER]
    assert (hosts.metrics.circuits_open, hosts.version > version) == (0, True)
    assert hosts.admit(HOST, 10.0) is CallPermit.CALL


def test_a_circuit_with_long_pauses_is_not_forgotten_while_its_runs_wait() -> None:
    hosts = Hosts(max_pause=3600.0).opened()
    for _ in range(20):
        hosts.now += 3600.0
        hosts.forget_unused()
        assert hosts.call(REFUSED) is REFUSED.failed
    hosts.now += 0.9 * 3600.0 + 3500.0
    hosts.forget_unused()
    assert hosts.open_circuits()


def test_a_call_that_failed_for_a_reason_of_its_own_neither_opens_nor_closes_a_circuit() -> None:
    own = Unanswered(Failed("the certificate was not accepted"), sent=False, counts=False)
    hosts = Hosts()
    for _ in range(10):
        assert hosts.call(own) is own.failed
    assert not hosts.troubled
    hosts.opened().now += 1.0
    assert hosts.call(own) is own.failed  # as the probe
    assert len(hosts.open_circuits()) == 1
    assert hosts.admit(HOST, 10.0) is CallPermit.PROBE


def test_the_error_of_a_circuit_has_no_secrets_of_the_call() -> None:
    hosts = Hosts(failures=1)
    refused = Unanswered(Failed("No connection for https://dead.example/k3y-of-the-shop/"), sent=False)
    hosts.failed(HOST, CallPermit.CALL, refused, Mask(("k3y-of-the-shop",)))
    outcome = hosts.call(None)
    assert isinstance(outcome, NotBegun)
    for shown in (outcome.why, hosts.open_circuits()[0].error):
        assert "k3y" not in shown
        assert "https://dead.example/" in shown


def test_it_can_be_turned_off() -> None:
    hosts = Hosts(failures=0)
    for _ in range(100):
        assert hosts.call(REFUSED) is REFUSED.failed
    assert not hosts.troubled


def test_the_hosts_that_are_remembered_are_bounded_and_the_gauge_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "MOST_HOSTS", 5)
    hosts = Hosts(failures=1)
    for number in range(20):
        hosts.call(REFUSED, HostKey(1, f"host{number}", 80))
    assert [key.host for key in hosts.troubled] == [f"host{number}" for number in range(15, 20)]
    assert hosts.metrics.circuits_open == len(hosts.open_circuits()) == 5


def test_what_is_reported_of_an_open_circuit() -> None:
    hosts = Hosts().opened()
    hosts.call(None)
    (circuit,) = hosts.open_circuits()
    assert (circuit.key, circuit.opened_at, circuit.put_off, circuit.error) == (HOST, 100.0, 1, "connection refused")
    assert circuit.next_probe == pytest.approx(100.9)


def test_a_run_is_put_off_before_it_has_a_slot_only_while_its_circuit_is_shut() -> None:
    hosts = Hosts()
    assert not hosts.may_put_off
    assert hosts.opened().may_put_off
    assert 0.8 <= hosts.waiting_time(HOST) <= 1.0
    assert hosts.waiting_time(OTHER) == 0.0
    hosts.now += 1.0
    assert hosts.waiting_time(HOST) == 0.0, "the next run is the probe"
    assert hosts.admit(HOST, 10.0) is CallPermit.PROBE
    assert hosts.waiting_time(HOST) > 0.0, "and the others wait for it"
    hosts.answered(HOST)
    assert not hosts.may_put_off
