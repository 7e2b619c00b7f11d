"""Notices and pings: their status says whether they arrived."""

from __future__ import annotations

import asyncio

import pytest

from detent.domain.target_access import PRIVATE_TOO
from detent.targets.messenger import Delivery, Message, Messenger
from detent.targets.policies import FixedPolicy
from tests.targets.target_helpers import Received, Sink

NOTICE = Message("notice", b"{}", {"Content-Type": "application/json"})


@pytest.mark.parametrize("head", ["Transfer-Encoding: chunked", "Content-Length: 5", "Connection: close"])
async def test_a_message_has_arrived_when_its_status_says_so_also_if_the_body_never_comes(
    sink: Sink, head: str
) -> None:
    async def write(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())

    sink.answer = write
    messenger = Messenger(FixedPolicy(PRIVATE_TOO))
    assert await messenger.send(NOTICE, sink.url) == Delivery(True)
    await asyncio.wait_for(sink.gone.wait(), 10)
    await messenger.close()


async def test_messages_whose_answers_have_no_body_share_a_connection(sink: Sink) -> None:
    messenger = Messenger(FixedPolicy(PRIVATE_TOO))
    for _ in range(3):
        assert await messenger.send(NOTICE, sink.url) == Delivery(True)
    assert sink.connections == 1
    await messenger.close()
