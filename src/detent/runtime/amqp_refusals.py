"""Which refusals of a connection a broker of AMQP takes back by itself."""

from __future__ import annotations

import re

# RabbitMQ gives NOT_ALLOWED for them, as for a virtual host that does not exist.
_PASSING_WORDS = re.compile(r"limit .*is reached|is down")


def is_passing(words: str) -> bool:
    """Whether a later connection may be accepted: the broker, the virtual host or the user has as many connections as
    it may have, or the virtual host is being started."""
    return _PASSING_WORDS.search(words) is not None
