"""The settings of the example, with the tasks of `probe` and what a test chooses."""

from __future__ import annotations

import json
import os
from typing import Any

import shop.settings as example  # type: ignore[import-not-found]  # only processes of a project have it in their path

globals().update({name: value for name, value in vars(example).items() if name.isupper()})
TASKS: Any = example.TASKS
DATABASES: Any = example.DATABASES
INSTALLED_APPS = [*example.INSTALLED_APPS, "tests.contrib.django.probe"]
TASKS["default"]["QUEUES"] = []
TASKS["default"]["OPTIONS"] = {**TASKS["default"]["OPTIONS"], **json.loads(os.environ.get("TASK_OPTIONS", "{}"))}
DATABASES["default"] = {**DATABASES["default"], **json.loads(os.environ.get("DATABASE", "{}"))}
