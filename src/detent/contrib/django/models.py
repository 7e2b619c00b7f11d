"""No table of Django's: a name for the admin's pages and permissions. The rows are detent's."""

from __future__ import annotations

from django.db import models


class TaskRun(models.Model):  # type: ignore[misc]  # Django has no types
    """`view_taskrun` permits to see runs, `change_taskrun` to retry and cancel them."""

    id = models.UUIDField(primary_key=True)

    class Meta:
        managed = False
        app_label = "detent"
        default_permissions = ("view", "change")
        verbose_name = "task run"
