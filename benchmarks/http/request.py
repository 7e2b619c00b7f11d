"""The request every client sends: what a target of detent receives."""

from __future__ import annotations

CONNECTIONS = 50
CAP = 16_384
BODY = b'{"order":1234,"text":"hello"}'
HEADERS = {
    "User-Agent": "detent/0",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "traceparent": "00-01987f2e4c00700080000000000004d2-0123456789abcdef-01",
    "Idempotency-Key": "nightly-report:2026-03-01T06:30:00Z",
    "Detent-Run-Id": "01987f2e-4c00-7000-8000-0000000004d2",
    "Detent-Job": "nightly-report",
    "Detent-Job-Id": "01987f2e-0000-7000-8000-000000000001",
    "Detent-Scheduled-At": "2026-03-01T06:30:00Z",
    "Detent-Attempt": "1",
    "Detent-Token": "8589934593",
}
