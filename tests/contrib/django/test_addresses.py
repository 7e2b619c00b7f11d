"""DATABASES of Django as the address of a node's database, and exceptions out of the text of tracebacks."""

from __future__ import annotations

from typing import Any

import pytest

from detent.contrib.django.failures import class_path
from detent.contrib.django.options import BackendOptions
from detent.contrib.django.setup import url_of_settings
from detent.errors import UsageError
from detent.store.servers import servers_of

BASE = {"NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": ""}


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "postgresql:///shop"),
        ({"USER": "ada", "HOST": "db", "PORT": 5433}, "postgresql://ada@db:5433/shop"),
        ({"USER": "a:b", "PASSWORD": "p@s/s %", "HOST": "db"}, "postgresql://a%3Ab:p%40s%2Fs%20%25@db/shop"),
        ({"HOST": "/run/postgresql", "PORT": "5433"}, "postgresql:///shop?host=%2Frun%2Fpostgresql&port=5433"),
        ({"HOST": "::1", "PORT": "5433"}, "postgresql://[::1]:5433/shop"),
        (
            {"HOST": "db", "OPTIONS": {"sslmode": "verify-full", "sslrootcert": "/ca.pem", "isolation_level": 3}},
            "postgresql://db/shop?sslmode=verify-full&sslrootcert=%2Fca.pem",
        ),
    ],
)
def test_settings_of_django_become_an_address(given: dict[str, Any], url: str) -> None:
    assert url_of_settings("default", {**BASE, **given}) == url
    if "sslrootcert" not in url:
        servers_of(url)  # the store can read it


def test_a_service_of_libpq_is_refused() -> None:
    with pytest.raises(UsageError, match="names a service of libpq"):
        url_of_settings("default", {**BASE, "OPTIONS": {"service": "shop"}})


CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in <module>
shop.errors.Late: first line
ValueError: second line of its text
a note"""


@pytest.mark.parametrize(
    ("traceback", "error", "path"),
    [
        (CHAINED, "Late: first line", "shop.errors.Late"),
        (None, "KeyError: 'a'", "builtins.KeyError"),
        ("Traceback (most recent call last):\n  File x\nSystemExit", "SystemExit", "builtins.SystemExit"),
        ("no traceback at all", "TimeoutError: late", "builtins.TimeoutError"),
        (None, "something else happened", "Exception"),
    ],
)
def test_the_class_of_an_exception_is_read_from_the_end_of_its_traceback(
    traceback: str | None, error: str, path: str
) -> None:
    assert class_path(traceback, error) in (path, f"builtins.{path}")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"databse": "x"}, "did you mean 'database'?"),
        ({"register": 1}, "give True or False"),
        ({"tenant": ""}, "give text"),
        ({"schema": "x; DROP TABLE y"}, "give a lower-case name"),
        ({"job": 3}, "give a dictionary of job fields"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        BackendOptions.read(given)
