"""How long values are kept in memory, what happens while the database is away, and what providers give."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from detent.domain.job import Definition, HttpTarget, JobSpec, PythonTarget
from detent.domain.run import Call
from detent.domain.secret_ref import SecretRef
from detent.errors import Unavailable
from detent.runtime.envelope import MasterKeys, SecretPlace
from detent.store.secrets import SealedVersion
from detent.worker import secrets as secrets_module
from detent.worker.secret_providers import SecretFault, SecretProviders
from detent.worker.secrets import LAST_KNOWN_SECONDS, VALID_SECONDS, SecretValues
from tests.targets.target_helpers import call_of

KEYS = MasterKeys([bytes(range(32))])
NOW = datetime(2026, 11, 16, tzinfo=UTC)
URL = "https://example.com/"


class Reader:
    """A store whose answers a test decides."""

    def __init__(self) -> None:
        self.stored: dict[tuple[int, str], list[tuple[str, float | None]]] = {}
        self.signs: dict[int, str] = {}
        self.away = False
        self.hangs = False
        self.readings: list[list[tuple[int, str]]] = []
        self.signing_readings = 0

    async def values(self, wanted: Sequence[tuple[int, str]]) -> list[SealedVersion]:
        self.readings.append(sorted(wanted))
        await self._answer()
        return [
            SealedVersion(place := SecretPlace(*key, version), KEYS.seal(place, value), left)
            for key in wanted
            for version, (value, left) in enumerate(self.stored.get(key, []), 1)
        ]

    async def signing(self) -> dict[int, str]:
        self.signing_readings += 1
        await self._answer()
        return dict(self.signs)

    async def _answer(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.away:
            raise Unavailable("The database does not answer.")


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def values(reader: Reader, clock: Clock) -> SecretValues:
    return SecretValues(reader, KEYS, SecretProviders(), now=clock)


def definition(name: str | None = "payments", tenant: int = 1, **fields: Any) -> Definition:
    payload = None if name is None else {"secret": name}
    spec = JobSpec(schedule="@daily", **{"target": HttpTarget(url=URL), "payload": payload, **fields})
    return Definition(UUID(int=1), "job", spec, NOW, tenant=tenant, refers=name is not None)


async def filled(values: SecretValues, of: Definition) -> Call:
    return await values.fill(call_of(of.spec.target, of.spec.payload), of, NOW)


async def test_a_value_is_read_once_while_it_is_fresh(values: SecretValues, reader: Reader, clock: Clock) -> None:
    reader.stored[1, "payments"] = [("first value", None)]
    for _ in range(3):
        assert (await filled(values, definition())).payload == "first value"
    assert len(reader.readings) == 1
    reader.stored[1, "payments"] = [("second value", None)]
    clock.seconds += VALID_SECONDS
    assert (await filled(values, definition())).payload == "second value"


async def test_calls_that_come_together_share_a_reading(values: SecretValues, reader: Reader) -> None:
    reader.stored = {(tenant, name): [(f"{name}-{tenant}", None)] for tenant in (1, 2) for name in ("aaaaaa", "bbbbbb")}
    wanted = [definition(name, tenant) for _ in range(20) for tenant, name in reader.stored]
    calls = await asyncio.gather(*(filled(values, one) for one in wanted))
    assert [call.payload for call in calls] == [f"{one.spec.payload['secret']}-{one.tenant}" for one in wanted]
    assert sum(map(len, reader.readings)) == len(reader.stored)


async def test_the_last_value_holds_while_the_database_is_away(
    values: SecretValues, reader: Reader, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets_module, "PATIENCE_SECONDS", 0.01)
    reader.stored[1, "payments"] = [("first value", None)]
    await filled(values, definition())
    for away, hangs in ((True, False), (False, True)):
        reader.away, reader.hangs = away, hangs
        clock.seconds += VALID_SECONDS
        assert (await filled(values, definition())).payload == "first value"


async def test_a_run_waits_when_the_database_has_been_away_for_long(
    values: SecretValues, reader: Reader, clock: Clock
) -> None:
    reader.stored[1, "payments"] = [("first value", None)]
    await filled(values, definition())
    reader.away = True
    clock.seconds += LAST_KNOWN_SECONDS
    with pytest.raises(Unavailable):
        await filled(values, definition())


async def test_a_former_version_is_not_used_after_its_time(values: SecretValues, reader: Reader, clock: Clock) -> None:
    """Also while the values in memory are fresh."""
    reader.stored[1, "payments"] = [("first value", 1.0)]
    await filled(values, definition())
    clock.seconds += 1.0
    with pytest.raises(SecretFault, match="there is none of this name"):
        await filled(values, definition())


async def test_no_value_stays_in_memory_that_nothing_uses(
    values: SecretValues, reader: Reader, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets_module, "MAX_SECRETS", 3)
    for number in range(5):
        reader.stored[1, f"secret-{number}"] = [(f"value-{number}", None)]
        await filled(values, definition(f"secret-{number}"))
    assert len(values._open) == 3
    clock.seconds += LAST_KNOWN_SECONDS
    values._forget()
    assert not values._open


async def test_a_job_without_references_costs_no_reading_of_values(
    values: SecretValues, reader: Reader, clock: Clock
) -> None:
    plain = definition(None)
    assert values.concern(plain)  # until it is known which tenants sign
    await filled(values, plain)
    assert not values.concern(plain)
    assert not values.concern(definition(None, target=PythonTarget(function="a:b")))
    assert (reader.readings, reader.signing_readings) == ([], 1)
    reader.signs = {1: "webhooks"}
    clock.seconds += VALID_SECONDS
    assert values.concern(plain)


async def test_no_call_goes_unsigned_because_the_database_was_away(
    values: SecretValues, reader: Reader, clock: Clock
) -> None:
    reader.away = True
    with pytest.raises(Unavailable):
        await filled(values, definition(None))
    reader.away = False
    reader.signs = {1: "webhooks"}
    reader.stored[1, "webhooks"] = [("whsec_" + "A" * 32, None)]
    assert (await filled(values, definition(None))).signing is not None
    reader.away = True
    clock.seconds += VALID_SECONDS
    assert (await filled(values, definition(None))).signing is not None


async def test_a_call_with_secrets_shows_none_when_it_is_printed(values: SecretValues, reader: Reader) -> None:
    reader.stored[1, "payments"] = [("first value", None)]
    reader.stored[1, "webhooks"] = [("whsec_" + "A" * 32, None)]
    call = await filled(values, definition(signing=SecretRef("webhooks")))
    assert "first value" not in repr(call)
    assert "AAAA" not in repr(call) + repr(call.signing) + repr(values._open)


# --- providers ---


@pytest.fixture
def provided(reader: Reader, clock: Clock, tmp_path: Path) -> SecretValues:
    (tmp_path / "token").write_text("from a file\n")
    (tmp_path / "short").write_text("abc")
    (tmp_path / "binary").write_bytes(b"\xff" * 20)
    environ = {"PAYMENT_KEY": "from the environment", "OTHER_KEY": "not opened", "DETENT_DATABASE_URL": "postgresql://"}
    providers = SecretProviders(("PAYMENT_*", "DETENT_*"), tmp_path, (1,), environ)
    return SecretValues(reader, KEYS, providers, now=clock)


@pytest.mark.parametrize(
    ("name", "value"), [("env:PAYMENT_KEY", "from the environment"), ("file:token", "from a file")]
)
async def test_a_provider_gives_what_the_operator_opened(provided: SecretValues, name: str, value: str) -> None:
    call = await filled(provided, definition(name))
    assert call.payload == value
    assert call.mask is not None
    assert call.mask.text(f"x {value}") == "x ********"


@pytest.mark.parametrize(
    ("name", "tenant", "why"),
    [
        ("env:OTHER_KEY", 1, "does not open that variable"),
        ("env:DETENT_DATABASE_URL", 1, "does not open that variable"),
        ("env:PAYMENT_NOTHING", 1, "has no such variable"),
        ("env:PAYMENT_KEY", 2, "not in secret_provider_tenants"),
        ("file:token", 2, "not in secret_provider_tenants"),
        ("file:nothing", 1, r"cannot be read \(No such file or directory\)"),
        ("file:short", 1, "fewer than 6 characters"),
        ("file:binary", 1, "not UTF-8 text"),
    ],
)
async def test_a_provider_gives_nothing_else(provided: SecretValues, name: str, tenant: int, why: str) -> None:
    with pytest.raises(SecretFault, match=why) as fault:
        await filled(provided, definition(name, tenant))
    assert name in str(fault.value)


async def test_a_worker_that_pulls_gets_references_to_providers_as_they_are(reader: Reader, clock: Clock) -> None:
    reader.stored[1, "payments"] = [("first value", None)]
    values = SecretValues(reader, KEYS, now=clock)
    of = definition("payments", payload=[{"secret": "payments"}, {"secret": "env:PAYMENT_KEY"}])
    call = await values.fill_for_pull(call_of(of.spec.target, of.spec.payload), of)
    assert call.payload == ["first value", {"secret": "env:PAYMENT_KEY"}]
