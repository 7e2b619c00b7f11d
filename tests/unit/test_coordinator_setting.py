"""Which coordinators can be named, and that none is named by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.errors import UsageError
from detent.settings.settings import Settings


def load(named: str, folder: Path) -> str:
    return Settings.load({}, {"HOME": str(folder), "DETENT_COORDINATOR": named}, folder).coordinator


@pytest.mark.parametrize(
    "named",
    [
        "postgres",
        "advisory",
        "etcd://localhost",
        "etcd://a.example.com:2379,b.example.com:2379,[::1]:2379/team/scheduler",
        "etcds://user:p%40ss@a:2379",
        "zookeeper://h1:2181,h2:2181",
        "zookeeper://h1:2181/chroot/",
        "redis://:secret@127.0.0.1:6379/0",
        "redis://[::1]",
        "rediss://user:secret@cache.example.com:6380/12",
    ],
)
def test_an_address_of_a_known_service_is_taken(named: str, tmp_path: Path) -> None:
    assert load(named, tmp_path) == named


@pytest.mark.parametrize(
    "named",
    [
        "etcd",
        "consul://h:8500",
        "Postgres",
        "etcd:/h:2379",
        "etcd://",
        "etcd://h:2379,",
        "etcd://h:70000",
        "etcd://h:2379?x=1",
        "zookeeper://user:secret@h:2181",
        "zookeeper://h:2181//twice",
        "redis://h:6379,h2:6379/0",
        "redis://h:6379/zero",
        "redis://h:6379/0?db=1",
        "rediss://h :6379",
    ],
)
def test_anything_else_is_refused_with_what_to_give_and_without_a_password(named: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        load(named, tmp_path)
    message = str(refused.value)
    assert message.startswith(
        "DETENT_COORDINATOR is not usable: give postgres, advisory, or an address such as etcd://"
    )
    assert "hunter2" not in message


def test_an_address_with_a_password_may_be_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "address").write_text("redis://:hunter2@h:6379/0\n")
    environ = {"HOME": str(tmp_path), "DETENT_COORDINATOR_FILE": "address"}
    settings = Settings.load({}, environ, tmp_path)
    assert settings.coordinator == "redis://:hunter2@h:6379/0"
    assert "hunter2" not in repr(settings)
