"""The steps of an order, tested without waiting."""

import fulfilment


def test_a_carrier_who_is_away_costs_no_second_charge() -> None:
    with fulfilment.app.test() as t:
        handle = fulfilment.fulfil.enqueue_sync(order=17, cents=4200)
        t.advance(minutes=1)
        assert handle.result() == "parcel 2"
        assert [attempt.outcome for attempt in t.runs[0].attempts] == ["failed", "succeeded"]
    assert fulfilment.bank.calls == 1
    assert fulfilment.parcels == ["ch-1", "ch-1"]
