"""`detent demo`: a month of example history."""

from __future__ import annotations

from detent.cli import output
from detent.cli.base import command, option
from detent.cli.database import reaches_database
from detent.cli.invocation import load_settings, read_number
from detent.cli.nodes import PANEL
from detent.domain.counts import plural


@command(None, "demo", panel=PANEL, examples=("detent demo", "detent demo --days 7 --data-dir .detent"))
@reaches_database
@option("--days", default="30", metavar="N", help="Days of history. [30]")
@option("--beside", is_flag=True, help="Allow a database that already has jobs.")
@option("--port", default="8787", metavar="PORT", help="Port of `detent serve --demo`, which its jobs call. [8787]")
def demo(days: str, beside: bool, port: str, **flags: str | None) -> None:
    """Fill a database with a month of example history.

    The history has jobs with many schedules, failures, a night of downtime and
    the loss of a node. Start `detent serve --demo` afterwards: it runs these
    jobs, answers their calls, and adds three more jobs.
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
    output.say(
        f"Created {plural(made.jobs, 'job')} with {plural(made.runs, 'run')} over {plural(back, 'day')}; "
        f"{plural(made.dead, 'run is', 'runs are')} dead."
    )
    output.say("Run `detent serve --demo` and open the address that it prints.")
