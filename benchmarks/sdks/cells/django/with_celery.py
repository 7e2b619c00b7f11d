from celery.contrib.django.task import DjangoTask

print([name for name in dir(DjangoTask) if name.endswith("on_commit")])
print("partly: a documented set-up, and delay_on_commit; not atomic, and no backend of django.tasks in the package")
