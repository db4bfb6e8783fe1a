"""Runs one job as a worker's child does, in a process that a test can kill: `worker.py JOB_ID SETTINGS_JSON`."""

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
    from training import runner

    runner.run(sys.argv[1], worker="worker:test@process")


if __name__ == "__main__":
    main()
