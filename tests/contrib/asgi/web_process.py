"""A web application of `examples/` as a real process."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.support.processes import environment
from tests.support.waiting import until

EXAMPLES = Path(__file__).parents[3] / "examples"
READY = re.compile(r"running on (http://\S+)", re.IGNORECASE)
START_SECONDS = 60.0


class WebProcess:
    """Works in `folder`; modules are imported from `source`. Its log is a file, which stays when it dies."""

    def __init__(self, folder: Path, source: Path, *command: str, **variables: str) -> None:
        self.folder = folder
        self.log = folder / f"web-{len(list(folder.glob('web-*.log'))) + 1}.log"
        variables = {"PYTHONPATH": str(source), "PYTHONUNBUFFERED": "1", **variables}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=folder,
                env=environment(folder, **variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    @property
    def url(self) -> str:
        found = READY.search(self.text)
        assert found is not None, self.text
        return found[1]

    async def __aenter__(self) -> WebProcess:
        await until(lambda: READY.search(self.text) or self.is_over, START_SECONDS, "the application to be ready")
        assert READY.search(self.text), f"it ended with code {self.process.returncode}:\n{self.text}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.is_over:
            self.process.kill()
        self.process.wait()

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    async def ended(self) -> int:
        await until(lambda: self.is_over, START_SECONDS, "the application to end")
        return int(self.process.returncode)

    async def terminate(self) -> None:
        """Ask it to end as a service manager does, and wait until it has done so in good order."""
        self.process.send_signal(signal.SIGTERM)
        assert await self.ended() in (0, -signal.SIGTERM)  # uvicorn ends itself by the signal it got
        assert "Application shutdown complete" in self.text, self.text
        assert "Traceback" not in self.text, self.text

    async def get(self, path: str, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as client:
            return await client.get(path, **options)

    async def order(self, *numbers: int) -> list[str]:
        """Place orders all at once; returns their runs."""
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as client:
            answers = await asyncio.gather(
                *(client.post("/orders", json={"number": number, "item": "tea"}) for number in numbers)
            )
        assert {answer.status_code for answer in answers} == {202}, [answer.text for answer in answers]
        return [answer.json()["run"] for answer in answers]

    async def progress(self, run: str) -> dict[str, Any]:
        answer = await self.get(f"/orders/{run}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def finished(self, run: str) -> dict[str, Any]:
        """Ask for the order again and again, as a browser would."""

        async def is_finished() -> dict[str, Any] | None:
            found = await self.progress(run)
            return found if found["status"] == "succeeded" else None

        found: dict[str, Any] = await until(is_finished, START_SECONDS, f"run {run} to succeed")
        return found


def uvicorn(folder: Path, example: str, application: str, *options: str, **variables: str) -> WebProcess:
    """`example`: the folder below examples/."""
    return WebProcess(folder, EXAMPLES / example, "uvicorn", application, "--port", "0", *options, **variables)
