"""Where a secret could be seen: tables, answers, pages, what commands print; and every form of it to search for."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import aiohttp

from detent.dashboard.views import ALL
from tests.support.processes import environment

Runs = Mapping[str, Mapping[str, Any]]
"""A run of each job, by the job's name."""


def spellings(value: str) -> set[str]:
    """Written anew, not those that the product masks: what it forgets has to be found. Dumps show bytes as hex."""
    plain = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    plain |= {html.escape(value), quote(value, safe=""), quote(value), quote_plus(value)}
    plain |= {re.sub("%..", lambda found: found[0].lower(), form) for form in plain if "%" in form}
    plain |= {form for offset in range(3) for form in _base64(value.encode(), offset)}
    return plain | {form.encode().hex() for form in plain}


def _base64(data: bytes, offset: int) -> tuple[str, str]:
    """As it is where this many bytes come before it, without the characters that its neighbours change."""
    encoded = base64.b64encode(bytes(offset) + data).decode()[-(-offset * 8 // 6) : (len(data) + offset) * 8 // 6]
    return encoded, encoded.translate(str.maketrans("+/", "-_"))


def found_in(text: str, *values: str) -> list[str]:
    return [value for value in values if any(form in text for form in spellings(value))]


async def tables(connection: Any) -> AsyncIterator[tuple[str, str]]:
    """Every table as text."""
    names = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'detent'")
    for (name,) in names:
        rows = await connection.fetch(f'SELECT t::text FROM "{name}" t')
        yield name, "\n".join(row[0] for row in rows)


async def answers(url: str, key: str, runs: Runs) -> AsyncIterator[tuple[str, str]]:
    """Every GET of the OpenAPI document, for every job and run."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:
        document = await (await session.get(f"{url}/openapi.json")).json()
        for path in ["/metrics", "/readyz?verbose", *_filled(document["paths"], runs)]:
            async with session.get(f"{url}{path}") as answer:
                text = await answer.text()
                assert answer.status < 500, (path, answer.status, text)
                yield path, text


def _filled(paths: Any, runs: Runs) -> Iterator[str]:
    for path, methods in paths.items():
        if "get" not in methods:
            continue
        for name, run in runs.items():
            filled = path.replace("/jobs/{id}", f"/jobs/{name}").replace("/runs/{id}", f"/runs/{run['id']}")
            filled = filled.replace("{revision}", "1").replace("{name}", "stored")
            tick = run["scheduled_at"].replace("+", "%2B")
            yield f"{filled}?at={tick}" if path.endswith("explain") else filled
            if filled == path:
                break


async def pages(url: str, key: str, runs: Runs) -> AsyncIterator[tuple[str, str]]:
    """Every page of the dashboard, for every job and run."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        form = {"key": key, "next": "/"}
        async with session.post(f"{url}/login", data=form, headers={"Origin": url}) as answer:
            assert answer.status == 200, await answer.text()
        for view in ALL:
            for name, run in runs.items():
                path = view.path.replace("/jobs/{id}", f"/jobs/{name}").replace("/runs/{id}", f"/runs/{run['id']}")
                async with session.get(f"{url}{path}") as answer:
                    text = await answer.text()
                    assert answer.status in (200, 403), (path, text)  # some are for admins only
                    assert "login" not in str(answer.url)
                    yield path, text
                if path == view.path:
                    break


async def printed(folder: Path, url: str, key: str, arguments: Sequence[str]) -> str:
    """What `detent …` prints, on both streams."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "detent", *arguments),
        cwd=folder,
        env=environment(folder, DETENT_API_URL=url, DETENT_API_KEY=key),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()
