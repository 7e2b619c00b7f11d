"""The mock brokers inside librdkafka, with what its Python client does not offer: they can go down and lose records,
and a consumer group does not wait three seconds for more members."""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from tests.topics.brokers import unavailable
from tests.topics.cloud_brokers import KafkaBroker
from tests.topics.cloud_servers import KafkaServer

BROKERS = 3
PARTITIONS = 4
"""Of a topic that the mock brokers create."""
_PRODUCER = 0


class MockKafka:
    def __init__(self) -> None:
        self._library = _library()
        handle = self._call("rd_kafka_new", _PRODUCER, self._call("rd_kafka_conf_new"), None, 0)
        self._library.rd_kafka_set_log_level(handle, 0)
        self._cluster = self._call("rd_kafka_mock_cluster_new", handle, BROKERS)
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self._library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def _call(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        function = getattr(self._library, name)
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(*arguments))

    def set_down(self) -> None:
        for number in range(1, BROKERS + 1):
            self._library.rd_kafka_mock_broker_set_down(self._cluster, number)

    def set_up(self) -> None:
        for number in range(1, BROKERS + 1):
            self._library.rd_kafka_mock_broker_set_up(self._cluster, number)

    def refuse(self, request: int, error: int, times: int = 100) -> None:
        """Answers requests of this kind, by its number in the protocol, with the error. With `times` 0, no longer."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(request))
        if times:
            errors = (ctypes.c_int * times)(*[error] * times)
            self._library.rd_kafka_mock_push_request_errors_array(
                self._cluster, ctypes.c_int16(request), ctypes.c_size_t(times), errors
            )

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._library.rd_kafka_mock_partition_delete_records(
            self._cluster, topic.encode(), partition, ctypes.c_int64(before)
        )


@cache
def _library() -> ctypes.CDLL:
    import confluent_kafka

    place = Path(confluent_kafka.__file__).parent
    found = [*place.parent.glob("confluent_kafka.libs/librdkafka*"), *place.glob(".dylibs/librdkafka*")]
    if not found:
        unavailable("confluent-kafka must be installed from a wheel that contains librdkafka")
    return ctypes.CDLL(str(found[0]))


@cache
def mock_kafka() -> MockKafka:
    """One for the test process, with which it ends."""
    return MockKafka()


class TransportKafka(KafkaBroker):
    """These mock brokers, or the cluster of KAFKA_BOOTSTRAP, which is not killed."""

    can_restart = "KAFKA_BOOTSTRAP" not in os.environ

    def begin(self, stack: ExitStack) -> int:
        self.mock = mock_kafka() if self.can_restart else None
        bootstrap = os.environ["KAFKA_BOOTSTRAP"] if self.mock is None else self.mock.bootstrap
        self.server = KafkaServer(bootstrap, mocked=True)
        self.host, _, port = bootstrap.partition(",")[0].rpartition(":")
        self.ensure()
        return int(port)

    def ensure(self) -> None:
        if self.mock is not None:
            self.mock.set_up()

    def kill(self) -> None:
        if self.mock is not None:
            self.mock.set_down()
