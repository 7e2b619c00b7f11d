"""Python's HTTP clients beside each other, each kept to the rules of a detent target as far as it can be.

The rules: the address is checked when the socket is made, redirects are not followed, no cookies, no proxies of the
environment, the answer is read up to a cap, and at most CONNECTIONS are open. `make bench-http-clients` runs this in an
interpreter that has the clients; of detent it uses only the address check. The server is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import uvloop
from candidates import CANDIDATES, Candidate
from request import BODY, CONNECTIONS

from detent.domain.target_access import PRIVATE_TOO
from detent.targets.guard import AddressGuard


async def measure(candidate: type[Candidate], url: str, requests: int) -> tuple[float, float]:
    """Requests per second, and microseconds of this process's CPU for each."""
    client = candidate(AddressGuard(PRIVATE_TOO))
    await client.start(url)
    try:
        await _send(client, CONNECTIONS * 2)  # connections are there before the time begins
        cpu, began = _cpu(), time.perf_counter()
        await _send(client, requests)
        seconds = time.perf_counter() - began
        return requests / seconds, (_cpu() - cpu) / requests * 1e6
    finally:
        await client.close()


async def _send(client: Candidate, requests: int) -> None:
    left = requests

    async def one_after_another() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            status, body = await client.post()
            if status != 200 or body != b"ok":
                raise SystemExit(f"{client.name} got {status} and {body!r}.")

    await asyncio.gather(*(one_after_another() for _ in range(CONNECTIONS)))


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def run(candidates: Sequence[type[Candidate]], rounds: int, requests: int, sink: str) -> list[dict[str, Any]]:
    process = await asyncio.create_subprocess_exec(
        *(sink, "-m", "detent.devtools.bench.http_sink"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    url = f"http://127.0.0.1:{int(await process.stdout.readline())}/hook"
    seen: dict[str, list[tuple[float, float]]] = {candidate.name: [] for candidate in candidates}
    try:
        for number in range(rounds):
            for candidate in candidates:
                figures = await measure(candidate, url, max(int(requests * candidate.share), 200))
                seen[candidate.name].append(figures)
                print(f"round {number + 1}: {candidate.name} {figures[0]:,.0f}/s", file=sys.stderr, flush=True)
    finally:
        process.terminate()
        await process.wait()
    return [_row(candidate, seen[candidate.name]) for candidate in candidates]


def _row(candidate: type[Candidate], figures: Sequence[tuple[float, float]]) -> dict[str, Any]:
    rates, costs = zip(*figures, strict=True)
    return {
        "client": candidate.name,
        "requests_per_second": statistics.median(rates),
        "lowest": min(rates),
        "highest": max(rates),
        "cpu_microseconds": statistics.median(costs),
    }


def as_text(rows: Sequence[dict[str, Any]]) -> str:
    base = next((row["requests_per_second"] for row in rows if row["client"] == "aiohttp"), None)
    lines = [f"{'client':34}{'requests/s':>12}{'lowest - highest':>20}{'CPU us':>8}{'x aiohttp':>11}"]
    for row in rows:
        spread = f"{row['lowest']:,.0f} - {row['highest']:,.0f}"
        ratio = f"{row['requests_per_second'] / base:.2f}" if base else ""
        figures = f"{row['requests_per_second']:>12,.0f}{spread:>20}{row['cpu_microseconds']:>8,.0f}{ratio:>11}"
        lines.append(f"{row['client']:34}{figures}")
    return "\n".join([*lines, "", f"POST of {len(BODY)} bytes, {CONNECTIONS} connections, kept open."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--sink-python", required=True, help="the interpreter in which detent is installed")
    parser.add_argument("--rounds", type=int, default=5, help="[5]")
    parser.add_argument("--requests", type=int, default=10_000, help="in a round; the slowest do fewer [10000]")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    chosen = [one for one in CANDIDATES if not given.only or any(word in one.name for word in given.only)]
    rows = uvloop.run(run(chosen, given.rounds, given.requests, given.sink_python))
    print(json.dumps(rows, indent=2) if given.json else as_text(rows))


if __name__ == "__main__":
    main()
