"""Ports for servers that tests start."""

from __future__ import annotations

import socket
from random import SystemRandom

# Below the ports that Linux gives to outgoing connections: one of those could take a free port before its server does.
PORTS = range(10_000, 32_000)


def free_port() -> int:
    """Chosen at random, so that test processes side by side do not choose the same."""
    for port in SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("None of 100 ports is free.")
