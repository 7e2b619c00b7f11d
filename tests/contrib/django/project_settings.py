"""The settings of the example, with the tasks of `probe` and what a test chooses."""

from __future__ import annotations

import json
import os

from shop.settings import *  # noqa: F403
from shop.settings import DATABASES, INSTALLED_APPS, TASKS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.contrib.django.probe"]
TASKS["default"]["QUEUES"] = []
TASKS["default"]["OPTIONS"] = {**TASKS["default"]["OPTIONS"], **json.loads(os.environ.get("TASK_OPTIONS", "{}"))}
DATABASES["default"] = {**DATABASES["default"], **json.loads(os.environ.get("DATABASE", "{}"))}
