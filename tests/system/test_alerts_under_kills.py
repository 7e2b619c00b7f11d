"""Dead runs are reported though the node that saw them die, and the one that was sending, are killed."""

from __future__ import annotations

from typing import Any

from tests.observability.receiver import Receiver, receiving
from tests.support.processes import Nodes
from tests.support.sink import Sink, http_target
from tests.support.waiting import until

RUNS = 20


async def test_a_message_whose_sender_is_killed_arrives_under_the_same_id_with_all_events(
    cluster: Nodes, look: Any, sink: Sink
) -> None:
    async with receiving() as receiver:
        receiver.answers = [500] * 1_000
        victim = await cluster.start("serve")
        hook = {"type": "webhook", "url": f"{receiver.url}/hook"}
        victim.client.create_alert_rule("ops", {"events": ["dead"], "receiver": hook, "group_seconds": 3})
        # Without `statuses`, the circuit of a host that answers 503 opens, and its runs wait instead of dying.
        target = http_target(sink, "fail/99") | {"statuses": {"no_retry": [503]}}
        victim.client.create_job({"name": "task", "target": target, "max_retries": 0})
        for number in range(RUNS):
            victim.client.enqueue("task", {"order": number})
        await until(lambda: receiver.messages, 60, "a try that is refused")
        await until(lambda: _dead(look), 60, "every run to die")
        await victim.kill()
        first, tried = receiver.messages[0], len(receiver.messages)
        receiver.answers = []
        await look.execute("UPDATE notices SET due_at = now()")  # else it waits for the end of the dead node's lease
        await cluster.start("serve")
        await until(lambda: _reported(receiver, tried) == RUNS, 120, "all dead runs to be reported")
        again = receiver.messages[tried]
        assert again.headers["webhook-id"] == first.headers["webhook-id"] and again.body == first.body
        assert len({message.document["data"]["key"] for message in receiver.messages}) == 1


async def _dead(look: Any) -> bool:
    return bool(await look.fetchval("SELECT count(*) = $1 FROM run_history WHERE status = 2", RUNS))


def _reported(receiver: Receiver, tried: int) -> int:
    """How many dead runs the messages that were accepted tell of, each message once."""
    accepted = {message.headers["webhook-id"]: message.document["data"] for message in receiver.messages[tried:]}
    return sum(count["count"] for data in accepted.values() for count in data["counts"])
