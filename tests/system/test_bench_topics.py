"""`detent bench topics` measures what it says: both sides send every message to a broker that it starts."""

from __future__ import annotations

import pytest

from detent.devtools.bench import topics


async def test_both_sides_send_every_message_in_turn() -> None:
    told: list[int] = []
    result = await topics.bench_topics(["nats", "mosquitto"], 200, 50, 2, told.append)
    assert told == [800, 1600]
    assert result.missing == []
    for figures in result.brokers:
        assert len(figures.bare.messages_per_second) == len(figures.target.messages_per_second) == 2
        low, high = sorted(
            mine / raw
            for mine, raw in zip(figures.target.messages_per_second, figures.bare.messages_per_second, strict=True)
        )
        assert figures.ratio == pytest.approx((low + high) / 2)
    table = dict(topics.as_table(result))
    assert table["messages"] == "2 rounds of 200 each, 50 at once"
    assert table["nats: ratio"].startswith(f"{result.brokers[0].ratio:.2f} by rate")


async def test_a_broker_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    result = await topics.bench_topics(["redis"], 10, 10, 1, lambda _: None)
    assert (result.brokers, result.missing) == ([], ["redis"])
    assert dict(topics.as_table(result))["not installed"] == "redis"
