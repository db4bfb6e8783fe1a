"""The real `manage.py up` as a subprocess, for tests that click, kill and wait."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx

from console import children, embedded

START_S = 120
T = TypeVar("T")


@dataclass
class Running:
    """`env` names the services to use; without any, `up` starts its own in `state`. `command` may be demo, too."""

    checkout: Path
    state: Path
    env: Mapping[str, str]
    command: tuple[str, ...] = ("up", "--port", "0")
    process: subprocess.Popen[bytes] | None = None
    base_url: str = ""
    full_env: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        """Start and wait until the web answers; fails with the end of the log."""
        drop = {"DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "MLFLOW_TRACKING_URI", "LOOPLINE_DATABASE_POOL"}
        base = {key: value for key, value in os.environ.items() if key not in drop}
        self.full_env = {**base, "LOOPLINE_STATE": str(self.state), **self.env}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        self._url_file.unlink(missing_ok=True)
        self.process = children.spawn(
            children.python("manage.py", *self.command), log=self.log, env=self.full_env, cwd=self.checkout
        )
        children.wait_until(self._answers, self.process, what=" ".join(self.command), log=self.log, within_s=START_S)

    def stop(self) -> int:
        """Ctrl-C, and the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(40)
        children.stop(self.process, patience_s=0)
        return self.process.returncode

    def kill(self) -> None:
        """SIGKILL to `up` itself, as the kernel's out-of-memory killer does it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pids(self) -> dict[str, int]:
        """Name -> process id of what runs now: web, worker, train, beat, and services when they are its own."""
        file = embedded.sockets_folder(self.state) / "children.json"
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def kill_child(self, name: str) -> int:
        """SIGKILL one child; returns the process id that it had."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def wait_for_restart(self, name: str, old_pid: int, within_s: float = 60) -> int:
        """The process id of the child that took the killed one's place."""
        return wait_for(lambda: pid if (pid := self.pids().get(name, old_pid)) != old_pid else None, within_s=within_s)

    @contextlib.contextmanager
    def database(self) -> Iterator[None]:
        """Django's default connection of the test process, turned to this console's database. Commits are real."""
        from django.db import connections

        parts = urlsplit(self.env.get("DATABASE_URL") or embedded.addresses(self.state).database)
        connection = connections["default"]
        before = dict(connection.settings_dict)
        connection.close()
        connection.settings_dict |= {"NAME": parts.path.lstrip("/"), "HOST": parse_qs(parts.query)["host"][0]}
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict |= {"NAME": before["NAME"], "HOST": before["HOST"]}

    @property
    def log(self) -> Path:
        return self.state / "up.log"

    @property
    def _url_file(self) -> Path:
        return embedded.sockets_folder(self.state) / "url"

    def _answers(self) -> bool:
        if b"Loopline answers at" not in self.log.read_bytes():
            return False
        self.base_url = self._url_file.read_text()
        return httpx.get(self.base_url + "/", timeout=20).status_code < 500

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def wait_for(get: Callable[[], T | None], *, within_s: float, every_s: float = 0.1) -> T:
    """Call until it gives something true, and give that. Fails after `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        if found := get():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing within {within_s} s")
        time.sleep(every_s)
