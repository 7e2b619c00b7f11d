"""Two databases that detent has migrated: `default` with a worker, `quiet` without one."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, urlsplit


def _database(url: str) -> dict[str, str]:
    parts, query = urlsplit(url), parse_qs(urlsplit(url).query)
    where = {"HOST": query["host"][0], "PORT": query["port"][0], "USER": parts.username or ""}
    return {"ENGINE": "django.db.backends.postgresql", "NAME": parts.path.lstrip("/"), **where}


SECRET_KEY = "tests"
USE_TZ = True
DATABASES = {name: _database(os.environ[f"{name.upper()}_URL"]) for name in ("default", "quiet")}
INSTALLED_APPS = ["detent.contrib.django"]
TASKS = {"default": {"BACKEND": "detent.contrib.django.DetentBackend", "QUEUES": []}}
