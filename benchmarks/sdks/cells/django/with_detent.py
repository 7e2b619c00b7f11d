import os

import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

where = conninfo_to_dict(os.environ["DATABASE_URL"])
database = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": where["dbname"],
    "HOST": where["host"],
    "USER": where["user"],
}
settings.configure(
    DATABASES={"default": database},
    INSTALLED_APPS=["detent.contrib.django"],
    TASKS={"default": {"BACKEND": "detent.contrib.django.DetentBackend"}},
    USE_TZ=True,
)
django.setup()

import asyncio

from detent_setup import app, worker
from django.db import transaction

try:
    from django.tasks import task  # Django 6
except ImportError:
    from django_tasks import task


@app.task
def nothing() -> None: ...  # a node that migrates the database needs something to serve


@task
def send_mail(to: str) -> None: ...


async def migrate() -> None:
    async with worker():
        pass


asyncio.run(migrate())
results = []
for name, fails in (("rolled back", True), ("committed", False)):
    try:
        with transaction.atomic():
            results.append(send_mail.enqueue(to=name))
            if fails:
                raise ValueError
    except ValueError:
        pass
found = []
for result in results:
    try:
        found.append(send_mail.get_result(result.id).kwargs)
    except Exception as error:
        print(type(error).__name__)
print(found)
assert found == [{"to": "committed"}]
print("yes: a backend of django.tasks, atomic with the request, with schedules, an admin page and manage.py detent")
