"""Creates the configured coordinator. Its client library is imported only then."""

from __future__ import annotations

from urllib.parse import urlsplit

from detent.cluster.coordinators.coordinator import Coordinator, PostgresCoordinator
from detent.cluster.coordinators.services import Candidate
from detent.errors import UsageError
from detent.store import Database


def choose(named: str, candidate: Candidate, database: Database) -> Coordinator:
    """`named` is as `Settings` has checked it."""
    match urlsplit(named).scheme or named:
        case "postgres":
            return PostgresCoordinator()
        case "advisory":
            return _advisory(candidate, database)
        case "etcd" | "etcds":
            from detent.cluster.coordinators.etcd import EtcdCoordinator

            return EtcdCoordinator(urlsplit(named), candidate)
        case "zookeeper":
            return _zookeeper(named, candidate)
        case "redis" | "rediss":
            return _redis(named, candidate)
        case unknown:
            raise UsageError(f"There is no coordinator {unknown}: name postgres, advisory, etcd, zookeeper or redis.")


def _advisory(candidate: Candidate, database: Database) -> Coordinator:
    if database.pooled:
        raise UsageError(
            "DETENT_COORDINATOR is advisory, which keeps locks on one connection, and DETENT_DATABASE_POOLER says that"
            " connections are shared: use postgres, or connect without the pooler."
        )
    from detent.cluster.coordinators.advisory import AdvisoryCoordinator

    return AdvisoryCoordinator(database, candidate)


def _zookeeper(named: str, candidate: Candidate) -> Coordinator:
    try:
        from detent.cluster.coordinators.zookeeper import ZooKeeperCoordinator
    except ImportError as error:
        raise _missing("ZooKeeper", "zookeeper") from error
    return ZooKeeperCoordinator(urlsplit(named), candidate)


def _redis(named: str, candidate: Candidate) -> Coordinator:
    try:
        from detent.cluster.coordinators.redis import RedisCoordinator
    except ImportError as error:
        raise _missing("Redis", "redis") from error
    return RedisCoordinator(named, candidate)


def _missing(service: str, extra: str) -> UsageError:
    return UsageError(
        f"DETENT_COORDINATOR names {service}, whose client is not installed: pip install 'detent[{extra}]'."
    )
