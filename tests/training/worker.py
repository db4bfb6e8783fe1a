"""Runs one job as a worker's child does, in a process that a test can kill: `worker.py JOB_ID SETTINGS_JSON`.

With `celery` in the id's place it is a Celery worker on the queue `train`, with `embed` one round of the idle worker.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")


def main() -> None:
    import django

    django.setup()
    from django.conf import settings

    for name, value in json.loads(sys.argv[2]).items():
        setattr(settings, name, value)
    if sys.argv[1] == "celery":
        from console.celery import app

        app.worker_main(["worker", "--pool", "solo", "-Q", "train", "--without-gossip", "--without-mingle"])
        return
    from training import embedder, runner

    if sys.argv[1] == "embed":
        embedder.run()
        return
    runner.run(sys.argv[1], worker="worker:test@process")


if __name__ == "__main__":
    main()
