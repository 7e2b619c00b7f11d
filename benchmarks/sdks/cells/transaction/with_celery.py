from celery.contrib.django.task import DjangoTask

print([name for name in dir(DjangoTask) if name.endswith("on_commit")])
print(
    "no: the broker is another system; delay_on_commit of Django sends after the commit, and a crash in between loses it"
)
