"""One frame of `detent top`: the state of the cluster, drawn for a terminal of any width.

Every node has a letter and a colour, in the table and in the map of partitions, so that the map can be read without
colours too. A node keeps its letter as long as the view runs.
"""

from __future__ import annotations

import string
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from detent.cli import output, times
from detent.cli.cluster import SHORT, offset
from detent.cli.output import Column, Item
from detent.cli.text import flat
from detent.domain.counts import plural

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Group as Lines
    from rich.console import RenderableType
    from rich.text import Text

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red", "bright_cyan", "bright_green", "bright_magenta")
LETTERS = string.ascii_uppercase + string.ascii_lowercase
NO_LEADER = "·"
BARS = "▁▂▃▄▅▆▇█"
SAMPLES = 60
LABEL = 12
TAKE_OVERS = 6
ROLES = 3
TITLES = 4  # lines: the headings of nodes and elections, and an empty one before and after the nodes


class TopView:
    def __init__(self, server: str, hint: str) -> None:
        """`server` is the address, `hint` says how to quit."""
        self._server = server
        self._hint = hint
        self.letters: dict[str, str] = {}
        self._rates: deque[float] = deque(maxlen=SAMPLES)

    def sample(self, cluster: Item) -> None:
        """Keep what the next frames need: the rate and the letters of the nodes."""
        if cluster["throughput"] is not None:
            self._rates.append(cluster["throughput"]["last_10s"] / 10)
        present = {node["id"] for node in cluster["nodes"]}
        self.letters = {node: letter for node, letter in self.letters.items() if node in present}
        free = (letter for letter in LETTERS if letter not in self.letters.values())
        for node in cluster["nodes"]:
            if node["id"] not in self.letters:
                self.letters[node["id"]] = next(free, "+")

    def frame(self, cluster: Item, at: datetime, width: int, height: int, trouble: str = "") -> Lines:
        """Draw a frame. What does not fit the height is left out: take-overs first, then nodes; never problems."""
        from rich.console import Group as Lines

        head = [*self._head(cluster, at, width, trouble), *_problems(cluster)]
        rest = [*self._map(cluster, width), _blank(), *self._work(cluster, width)]
        used = sum(-(-line.cell_len // width) for line in head) + len(rest) + TITLES
        nodes = max(2, min(len(cluster["nodes"]), height - used - 1))
        taken = max(1, min(TAKE_OVERS, height - used - nodes))
        shown = self._nodes(cluster, at, width, nodes)
        return Lines(*head, _blank(), *shown, _blank(), *rest, *self._elections(cluster, at, taken))

    # --- the parts of a frame ---

    def _head(self, cluster: Item, at: datetime, width: int, trouble: str) -> Iterator[Text]:
        from rich.text import Text

        left, right = f"detent at {self._server}", f"{at:%H:%M:%S} UTC{self._hint}"
        yield Text.assemble((left, "bold"), " " * max(2, width - len(left) - len(right)), (right, "dim"))
        if trouble:
            yield Text(flat(trouble), style="bold red")
        alive = Counter(node["state"] for node in cluster["nodes"])
        count = len(cluster["problems"])
        health = "healthy" if not count else plural(count, "problem")
        states = ", ".join(f"{alive[state]} {state}" for state in ("alive", "draining", "evicted") if alive[state])
        health = f"● {'paused, ' if cluster['held'] else ''}{health}"
        yield Text.assemble((health, "green" if not count else "bold red"), f"   nodes: {states or 'none'}")

    def _nodes(self, cluster: Item, at: datetime, width: int, most: int) -> Iterator[RenderableType]:
        from rich.text import Text

        nodes = cluster["nodes"]
        shown = nodes if len(nodes) <= most else nodes[: most - 1]
        if shown:
            yield output.table(shown, self._columns(), at, width)
        if len(shown) < len(nodes):
            yield Text(f"and {plural(len(nodes) - len(shown), 'more node')}: `detent node list` shows all", style="dim")

    def _columns(self) -> Sequence[Column]:
        return (
            Column("", lambda node: self.letters[node["id"]], style=self._style),
            Column("NODE", lambda node: node["id"][:SHORT]),
            Column("STATE", lambda node: node["state"], status=True),
            Column("ROLES", _roles),
            Column("LEADS", lambda node: node["partitions"], right=True),
            Column("RUNS", lambda node: node["running"], extra=True, right=True),
            Column("HEARTBEAT", lambda node: times.span(node["heartbeat_age_ms"]), right=True, style=_beat_style),
            Column("LEASE", lambda node: times.span(node["lease_ms"]), extra=True, right=True),
            Column("CLOCK", offset, right=True),
            Column("STARTED", lambda node: node["started_at"], lambda node, at: times.relative(node["started_at"], at)),
            Column("HOST", lambda node: node["host"] or "", extra=True),
            Column("VERSION", lambda node: node["version"], extra=True),
            Column("ZONE DATA", lambda node: node["tzdata"], extra=True),
            Column("API", lambda node: node["address"] or "", extra=True),
        )

    def _style(self, node: Item) -> str:
        return f"bold {self._colour(node['id'])}"

    def _map(self, cluster: Item, width: int) -> Iterator[Text]:
        """All 256 partitions, row by row."""
        from rich.text import Text

        led = sum(partition["node"] in self.letters for partition in cluster["partitions"])
        total = len(cluster["partitions"])
        yield _labelled("partitions", Text(f"{led} of {total} have a leader"), "" if led == total else "bold red")
        columns = next(size for size in (128, 64, 32, 16) if size <= max(width, 16))
        for start in range(0, total, columns):
            line = Text(no_wrap=True)
            for partition in cluster["partitions"][start : start + columns]:
                owner = partition["node"]
                if owner in self.letters:
                    line.append(self.letters[owner], style=f"black on {self._colour(owner)}")
                else:
                    line.append(NO_LEADER, style="bold red")
            yield line

    def _work(self, cluster: Item, width: int) -> Iterator[Text]:
        from rich.text import Text

        due, ready = cluster["lag"]["oldest_due_ms"], cluster["lag"]["oldest_ready_ms"]
        ticks = "no tick is overdue" if due is None else f"a tick is overdue by {times.span(due)}"
        runs = "no run waits" if ready is None else f"a run has waited for {times.span(ready)}"
        yield _labelled("lag", Text(f"{ticks}, {runs}"))
        flow = cluster["throughput"]
        if flow is not None:
            rates = f"{_rate(flow['last_10s'] / 10)} over 10 s, {_rate(flow['last_60s'] / 60)} over 60 s "
            yield _labelled("finished", Text.assemble(rates, (self._spark(width - LABEL - len(rates)), "cyan")))

    def _spark(self, room: int) -> str:
        rates = list(self._rates)[-max(room, 0) :] if room > 0 else []
        if len(rates) < 2:
            return ""
        top = max(1.0, *rates)
        return "".join(BARS[min(len(BARS) - 1, round(rate / top * (len(BARS) - 1)))] for rate in rates)

    def _elections(self, cluster: Item, at: datetime, most: int) -> Iterator[Text]:
        from rich.text import Text

        elections = cluster["elections"]
        yield _labelled("elections", Text(f"{plural(elections['last_hour'], 'partition')} taken in the last hour"))
        for taken in elections["recent"][:most]:
            when = f"{times.relative(taken['at'], at):>{LABEL - 2}}  "
            letter = self.letters.get(taken["node"], " ")
            name = (f"{letter} {flat(taken['node'][:SHORT])}", self._colour(taken["node"]))
            count = taken["partitions"]
            yield Text.assemble((when, "dim"), name, f" took {plural(count, 'partition')}")

    def _colour(self, node: str) -> str:
        letter = self.letters.get(node)
        if letter is None or letter not in LETTERS:
            return "white"
        return COLOURS[LETTERS.index(letter) % len(COLOURS)]


def _problems(cluster: Item) -> Iterator[Text]:
    from rich.text import Text

    for problem in cluster["problems"]:
        yield Text(f"▲ {flat(problem)}", style="yellow", overflow="fold")


def _labelled(label: str, value: Text, style: str = "") -> Text:
    from rich.text import Text

    value.stylize(style)
    return Text.assemble((f"{label:<{LABEL}}", "bold"), value, overflow="ellipsis", no_wrap=True)


def _blank() -> Text:
    from rich.text import Text

    return Text("")


def _beat_style(node: Item) -> str:
    """A healthy node has more than half of its lease left."""
    return "yellow" if node["heartbeat_age_ms"] > node["lease_ms"] else ""


def _roles(node: Item) -> str:
    return "all" if len(node["roles"]) == ROLES else " ".join(node["roles"])


def _rate(per_second: float) -> str:
    return f"{per_second:,.1f}/s" if per_second < 100 else f"{per_second:,.0f}/s"
