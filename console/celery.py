"""The Celery application: queues `default` and `train`. A message only wakes a worker; the row says what to do."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("loopline")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
