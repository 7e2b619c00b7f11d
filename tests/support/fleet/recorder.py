"""The target that the jobs call, in a separate process: nothing the harness does can delay its timestamps.

It is the Sink of the system tests with a file under it: a line for every call when it arrives, and one when it has been
answered. `python -m tests.support.fleet.recorder FILE` prints its address and serves until it is ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
from aiohttp import web

from tests.support.fleet.records import Call
from tests.support.sink import Received, Sink

ROOT = Path(__file__).parents[3]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    key: str
    token: int
    at: float


class WritingSink(Sink):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("ab")

    async def _take(self, request: web.Request) -> web.Response:
        response = await super()._take(request)
        headers = request.headers
        self._line(Answer(headers["Idempotency-Key"], int(headers["Detent-Token"]), time.time()))
        return response

    def arrived(self, call: Received, effect: str) -> None:
        scheduled_at = call.scheduled_at.timestamp()
        self._line(
            Call(call.key, call.run_id, call.job, scheduled_at, call.attempt, call.token, call.body, call.at, effect)
        )

    def _line(self, item: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(item) + b"\n")
        self._file.flush()


class Recorder:
    """The process, as the harness sees it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "calls.jsonl"
        self.path.touch()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fleet.recorder", self.path],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the recording target did not start"

    def calls(self) -> list[Call]:
        return read_calls(self.path)

    def close(self) -> None:
        self._process.communicate(timeout=30)  # the end of its standard input is its end


def read_calls(path: Path) -> list[Call]:
    calls: list[Call] = []
    answered: dict[tuple[str, int], float] = {}
    for line in path.read_bytes().splitlines():
        values = msgspec.json.decode(line)
        if len(values) == len(Answer.__struct_fields__):
            answered[values[0], values[1]] = values[2]
        else:
            calls.append(msgspec.convert(values, Call))
    return [msgspec.structs.replace(call, answered=answered.get((call.key, call.token))) for call in calls]


def main(path: str) -> None:
    with WritingSink(Path(path)) as sink:
        sys.stdout.write(f"{sink.url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
