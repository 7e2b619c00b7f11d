"""The mock brokers of librdkafka in a process of their own, until it is ended. Their port is chosen by the library; the
program writes it into a file `port` of its folder."""

from __future__ import annotations

import time
from pathlib import Path


def main() -> None:
    from confluent_kafka import Producer

    host = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused", "log_level": 0})
    broker = next(iter(host.list_topics(timeout=10).brokers.values()))
    Path("port.new").write_text(str(broker.port))
    Path("port.new").rename("port")
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
