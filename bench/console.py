"""A real console for a measurement: `manage.py up` on a state folder of its own, and Django turned to its database."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
START_S = 180


@contextmanager
def running() -> Iterator[str]:
    """The address of a console that runs on an empty database; this process's Django is set up on it, too."""
    with tempfile.TemporaryDirectory(prefix="loopline-bench-") as folder:
        state = Path(folder)
        state.chmod(0o711)  # as root, PostgreSQL's own user passes through
        for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "MLFLOW_TRACKING_URI"):
            os.environ.pop(name, None)
        os.environ |= {"LOOPLINE_STATE": folder, "DJANGO_SETTINGS_MODULE": "console.settings"}
        from console import children, embedded

        log = state / "up.log"
        process = children.spawn(
            children.python("manage.py", "up", "--port", "0", "--no-train"), log=log, env=os.environ, cwd=CHECKOUT
        )
        try:
            _wait(process, log)
            import django

            django.setup()
            yield (embedded.sockets_folder(state) / "url").read_text()
        finally:
            _close_database()
            process.send_signal(signal.SIGINT)
            process.wait(60)


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while b"Loopline answers at" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the console did not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.2)


def _close_database() -> None:
    from django.db import connections

    connections.close_all()
