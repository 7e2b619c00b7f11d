"""moto's SQS, which can be stopped and started again on the same port. Its queues are in the memory of the process."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tests.support.ports import free_port
from tests.topics.cloud_brokers import SqsBroker
from tests.topics.cloud_servers import SqsServer


class TransportSqs(SqsBroker):
    can_restart = True
    running: Any = None

    def begin(self, stack: ExitStack) -> int:
        self.port = free_port()
        self.ensure()
        self.server = SqsServer(self.port)
        return self.port

    def start(self) -> None:
        if not hasattr(self, "server"):
            super().start()
        self.ensure()

    def ensure(self) -> None:
        if self.running is None:
            from moto.server import ThreadedMotoServer

            self.running = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
            self.running.start()

    def kill(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.stop()
