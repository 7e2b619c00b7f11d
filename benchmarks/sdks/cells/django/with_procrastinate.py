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
settings.configure(DATABASES={"default": database}, INSTALLED_APPS=["procrastinate.contrib.django"], USE_TZ=True)
django.setup()

from django.core.management import call_command
from django.db import transaction
from procrastinate.contrib.django import app
from procrastinate.contrib.django.models import ProcrastinateJob


@app.task
def send_mail(to: str) -> None: ...


call_command("migrate", verbosity=0)
for name, fails in (("rolled back", True), ("committed", False)):
    try:
        with transaction.atomic():
            send_mail.defer(to=name)
            if fails:
                raise ValueError
    except ValueError:
        pass
jobs = [job.args for job in ProcrastinateJob.objects.all()]
print(jobs)
assert jobs == [{"to": "committed"}]
print("partly: atomic, with models, an admin and manage.py procrastinate worker; it is no backend of django.tasks")
