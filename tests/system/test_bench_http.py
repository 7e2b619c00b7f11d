"""`detent bench http` measures what it says: both sides send every request to a server of its own."""

from __future__ import annotations

import shutil

import pytest

from detent.devtools.bench import http
from detent.devtools.bench.http_sink import request_length


@pytest.mark.parametrize(("tls", "signed"), [(False, False), (True, False), (False, True)])
async def test_both_sides_send_every_request_in_turn(tls: bool, signed: bool) -> None:
    if tls and shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    told: list[int] = []
    result = await http.bench_http(250, 5, 2, tls, signed, told.append)
    assert told == [500, 1000]
    assert len(result.bare.per_second) == len(result.target.per_second) == 2
    low, high = sorted(mine / raw for mine, raw in zip(result.target.per_second, result.bare.per_second, strict=True))
    assert result.ratio == pytest.approx((low + high) / 2)
    table = dict(http.as_table(result))
    assert table["requests"] == f"2 rounds of 250 each, {'TLS' if tls else 'plain'}{', signed' * signed}"
    assert table["ratio"].startswith(f"{result.ratio:.2f}")


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"", None),
        (b"POST / HTTP/1.1\r\nHost: a\r\n", None),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", None),
        (b"POST / HTTP/1.1\r\ncontent-length:3\r\n\r\nabcGET", 40),
    ],
)
def test_a_request_ends_where_its_head_says(data: bytes, length: int | None) -> None:
    assert request_length(data) == length
