"""`OPTIONS` of a backend in the setting TASKS."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """`job` has fields of jobs that hold for all tasks of the backend. `modules` are imported by the worker besides
    the `tasks` modules of the installed apps. `register`: an enqueue registers a task that detent does not know.
    `migrate`: `manage.py migrate` also migrates detent's schema. `api_url` and `api_key` are for results, where the
    database role may not read detent's tables."""

    database: str = "default"
    schema: str = "detent"
    tenant: str = "default"
    job: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    register: bool = True
    migrate: bool = False
    api_url: str | None = None
    api_key: str | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> BackendOptions:
        """Raises ValueError with a sentence."""
        known = {each.name: each for each in fields(cls)}
        for name, value in given.items():
            if name not in known:
                near = get_close_matches(name, known, n=1)
                advice = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(known)}."
                raise ValueError(f"OPTIONS has no {name!r}: {advice}")
            _check(name, value)
        return cls(**{**given, **({"modules": tuple(given["modules"])} if "modules" in given else {})})


def _check(name: str, value: object) -> None:
    if name == "job":
        fits, wanted = isinstance(value, Mapping), "a dictionary of job fields, such as {'max_retries': 3}"
    elif name == "modules":
        fits, wanted = isinstance(value, list | tuple), "a list of module names"
    elif name in ("register", "migrate"):
        fits, wanted = isinstance(value, bool), "True or False"
    elif name == "schema":  # a part of statements, therefore as in the setting database_schema
        plain = isinstance(value, str) and re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", value) is not None
        fits, wanted = plain, "a lower-case name of letters, digits and underscores, such as detent"
    else:
        optional = name in ("api_url", "api_key") and value is None
        fits, wanted = optional or (isinstance(value, str) and bool(value)), "text"
    if not fits:
        raise ValueError(f"OPTIONS[{name!r}] is {value!r}: give {wanted}.")
