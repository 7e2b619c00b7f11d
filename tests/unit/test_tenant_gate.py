"""Threads and processes for handlers, shared between tenants."""

from __future__ import annotations

import asyncio

import pytest

from detent.targets.gate import TenantGate

LONG, AT_ONCE = 60.0, 0.0
BOTH = {1: 1, 2: 1}


async def entered(gate: TenantGate, tenant: int, count: int) -> list[asyncio.Task[bool]]:
    """Start `count` calls of the tenant; the tasks of those that have to wait are not done."""
    tasks = [asyncio.create_task(gate.enter(tenant, LONG)) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def done(tasks: list[asyncio.Task[bool]]) -> int:
    return sum(task.done() for task in tasks)


async def cancel(tasks: list[asyncio.Task[bool]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_tenant_that_is_alone_is_not_limited() -> None:
    gate = TenantGate(5, 0.2)
    tasks = await entered(gate, 1, 20)
    assert done(tasks) == 20


async def test_a_call_beyond_its_tenants_share_waits_for_one_of_that_tenant() -> None:
    gate = TenantGate(5, 0.2)
    gate.share_among(BOTH)
    tasks = await entered(gate, 1, 6)
    assert done(tasks) == 4
    assert await gate.enter(2, AT_ONCE)
    gate.leave(2)
    assert done(tasks) == 4
    gate.leave(1)
    await asyncio.sleep(0)
    assert done(tasks) == 5
    await cancel(tasks)


async def test_a_tenant_whose_call_waited_too_long_is_short_until_one_of_its_calls_ends() -> None:
    gate = TenantGate(5, 0.2)
    changes: list[bool] = []
    gate.changed = lambda: changes.append(gate.is_short(1))
    gate.share_among(BOTH)
    await entered(gate, 1, 4)
    assert not await gate.enter(1, AT_ONCE)
    assert gate.is_short(1) and not gate.is_short(2)
    gate.leave(1)
    assert not gate.is_short(1) and changes == [True, False]


async def test_calls_that_began_before_there_was_another_tenant_count() -> None:
    gate = TenantGate(5, 0.2)
    await entered(gate, 1, 4)
    gate.share_among(BOTH)
    waiting = await entered(gate, 1, 1)
    assert done(waiting) == 0
    gate.share_among({1: 1})
    await asyncio.sleep(0)
    assert done(waiting) == 1


@pytest.mark.parametrize("came", [False, True])
async def test_a_call_that_is_cancelled_while_it_waits_takes_no_place(came: bool) -> None:
    """Also where its turn comes at the same moment."""
    gate = TenantGate(5, 0.2)
    gate.share_among(BOTH)
    await entered(gate, 1, 4)
    waiting = await entered(gate, 1, 1)
    if came:
        gate.leave(1)
    await cancel(waiting)
    if not came:
        gate.leave(1)
    assert done(await entered(gate, 1, 1)) == 1


async def test_a_tenant_whose_calls_end_while_another_call_times_out_is_not_short() -> None:
    """No call of the tenant is left that could end the shortage."""
    gate = TenantGate(5, 0.2)
    gate.share_among(BOTH)
    await entered(gate, 1, 4)
    waiting = asyncio.create_task(gate.enter(1, AT_ONCE))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it is cancelled by its timeout, and has not noticed
    assert not waiting.done()
    for _ in range(4):
        gate.leave(1)
    assert not await waiting and not gate.is_short(1)
