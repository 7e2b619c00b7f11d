"""Checks of secrets: which keys encrypt them, and credentials that are stored as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from detent.cli.doctor.results import CheckResult, number
from detent.domain.secret_keys import key_id, read_master_keys
from detent.store.db import Row

NEWEST_JOBS = 100_000


def check_secret_keys(rows: Sequence[Row], setting: str | None) -> Iterator[CheckResult]:
    """`setting`: the secret keys of this environment, which need not be that of the nodes."""
    if not rows:
        return
    used = ", ".join(f"{row['key_id']} ({number(row['versions'], 'version')})" for row in rows)
    text = f"Secrets are encrypted with the {'key' if len(rows) == 1 else 'keys'} {used}."
    here = [key_id(key) for key in read_master_keys(setting)]
    missing = [row["key_id"] for row in rows if row["key_id"] not in here]
    if here and missing:
        advice = f"DETENT_SECRET_KEY here has {', '.join(here)}: workers that have only these keys do not start."
        yield CheckResult("secrets", "warn", text, advice)
    elif len(rows) > 1:
        yield CheckResult("secrets", "warn", text, "Run `detent secret rotate-key` to put all under the newest key.")
    else:
        yield CheckResult("secrets", "ok", text)


def check_literal_headers(row: Row) -> Iterator[CheckResult]:
    if row["jobs"]:
        have = "has" if row["jobs"] == 1 else "have"
        text = f"{number(row['jobs'], 'job')} {have} a credential as plain text in a header, such as {row['name']!r}."
        advice = 'Store it with `detent secret set NAME`, and write {"secret": "NAME"} into the header.'
        yield CheckResult("headers", "warn", text, advice)
