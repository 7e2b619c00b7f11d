"""Signatures of requests to AWS (version 4). Pure: the time is an argument.

The client library of AWS would sign as well, but takes half a second to load and a millisecond for each request, on the
loop that fires.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

ALGORITHM = "AWS4-HMAC-SHA256"


class AwsCredentials(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None = None
    """Of a session, for temporary keys."""

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"AwsCredentials({self.access_key!r})"


def signed_headers(
    headers: Mapping[str, str], body: bytes, credentials: AwsCredentials, *, region: str, service: str, at: datetime
) -> dict[str, str]:
    """The headers of a POST to `/`, which have to contain Host, with those that sign them."""
    moment = f"{at:%Y%m%dT%H%M%SZ}"
    merged = {**headers, "X-Amz-Date": moment}
    if credentials.token is not None:
        merged["X-Amz-Security-Token"] = credentials.token
    lowered = sorted((name.lower(), " ".join(value.split())) for name, value in merged.items())
    names = ";".join(name for name, _ in lowered)
    lines = "".join(f"{name}:{value}\n" for name, value in lowered)
    request = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    text = f"{ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = _signing_key(credentials.secret_key, moment[:8], region, service)
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    merged["Authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return merged


@lru_cache(maxsize=64)
def _signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
