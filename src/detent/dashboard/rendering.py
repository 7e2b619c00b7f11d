"""Templates and their filters. Everything that a user wrote is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jinja2
import msgspec

from detent.dashboard import formatting
from detent.dashboard.assets import Assets
from detent.dashboard.svg import bars_svg, lane_svg
from detent.domain.counts import plural
from detent.domain.identity import token_text
from detent.domain.text import visible
from detent.version import __version__


def _spelled_out(value: Any) -> Any:
    """Show invisible characters of a text as escapes. A form field writes its value with `|e`: that is not a plain str,
    so the value stays as it is stored."""
    return visible(value) if type(value) is str else value


def environment(assets: Assets) -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("detent.dashboard"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_spelled_out,
    )
    for filter_ in (
        *(formatting.number, formatting.rate, formatting.seconds, formatting.milliseconds, formatting.iso),
        *(formatting.plain_time, formatting.pretty, formatting.sign, formatting.state_class),
    ):
        made.filters[filter_.__name__] = filter_
    made.filters["token"] = token_text
    made.tests["known"] = lambda value: value is not msgspec.UNSET
    made.globals |= {"asset": assets.url, "version": __version__}
    made.globals |= {"plural": plural, "link": formatting.query}
    made.globals |= {"bars": bars_svg, "lane": lane_svg}
    made.globals["ui"] = made.get_template("macros.html").module
    return made


def parts_of(template: jinja2.Template, names: Iterable[str], values: Mapping[str, Any]) -> dict[str, str]:
    """Render only these blocks of a page, by name."""
    context = template.new_context(dict(values))
    return {name: "".join(template.blocks[name](context)) for name in names}
