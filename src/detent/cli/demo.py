"""`detent demo`: a month of history to look at."""

from __future__ import annotations

from detent.cli import output
from detent.cli.base import command, option
from detent.cli.database import reaches_database
from detent.cli.nodes import PANEL
from detent.cli.session import load_settings, read_number


@command(None, "demo", panel=PANEL, examples=("detent demo", "detent demo --days 7 --data-dir .detent"))
@reaches_database
@option("--days", default="30", metavar="N", help="How far back it goes. [30]")
@option("--beside", is_flag=True, help="Add it to a database that has jobs.")
@option("--port", default="8787", metavar="PORT", help="Where `detent serve --demo` will answer its jobs. [8787]")
def demo(days: str, beside: bool, port: str, **flags: str | None) -> None:
    """Fill a database with a month of history, to try detent on.

    Jobs of many schedules, failures, a night in which all was down and an
    afternoon in which a node died. `detent serve --demo` then goes on with it.
    """
    import asyncio

    from detent.devtools.demo.fill import Filled, fill
    from detent.node.database import opened_store, prepared_database
    from detent.telemetry.log import configure

    settings = load_settings(flags)
    back = read_number("--days", days, 1, 90)
    echo = f"http://127.0.0.1:{read_number('--port', port, 1, 65535)}/demo/echo"
    configure("auto", "warning")

    async def work() -> Filled:
        async with prepared_database(settings) as url, opened_store(url, settings) as store:
            return await fill(store, back, echo, beside=beside)

    made = asyncio.run(work())
    output.say(f"Made {made.jobs} jobs with {made.runs:,} runs of {back} days, of which {made.dead} are dead letters.")
    output.say("Look at it with `detent serve --demo`, then open the address that it tells.")
