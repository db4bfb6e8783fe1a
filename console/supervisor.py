"""Runs the whole console on one machine: services, web, workers and beat, each restarted when it dies.

`up` owns every process: they end with it, even when it is killed with SIGKILL. State is in files and in the database:
stopping at any moment loses nothing, and starting is recovery.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx
from django.conf import settings
from django.db import connections

from console import children, database, embedded

PATIENCE_S = 15.0  # for the workers; the services get ten more
STEADY_S = 60.0  # who lived this long starts again at once
LONGEST_PAUSE_S = 30.0


class StopAsked(BaseException):
    """Ctrl-C or SIGTERM: raised wherever the supervisor happens to be."""


@dataclass(kw_only=True)
class Child:
    """A process that shall run: how to start it, and how it fared."""

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    stop_signal: signal.Signals = signal.SIGTERM
    once: bool = False  # ends by itself when its work is done
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause_s: float = 0.0
    start_again_at: float = 0.0


def console_commands(door: int) -> dict[str, list[str]]:
    """The console's own processes. One process each: a pool's children would outlive a killed parent.

    `door`: file descriptor of the listening socket that all web processes accept from.
    """
    worker = children.python("-m", "celery", "-A", "console", "worker", "--loglevel", "INFO", "--without-gossip")
    web = children.python("-m", "uvicorn", "console.asgi:application", "--fd", str(door), "--lifespan", "off")
    web += ["--no-access-log", "--no-server-header", "--timeout-graceful-shutdown", "5"]
    # Sockets have their own heartbeat (console.live); a page on a busy line PC may answer the protocol's late.
    web += ["--ws-ping-interval", "30", "--ws-ping-timeout", "60"]
    return {
        **{"web" if n == 1 else f"web-{n}": web for n in range(1, settings.WEB_PROCESSES + 1)},
        "worker": [*worker, "--without-mingle", "-Q", "default", "--pool", "threads", "-c", "4", "-n", "default@%h"],
        "train": [*worker, "--without-mingle", "-Q", "train", "--pool", "solo", "-n", "train@%h"],
        "beat": children.python("-m", "celery", "-A", "console", "beat", "--loglevel", "WARNING", "--pidfile="),
    }


class Supervisor:
    """`run()` does everything; `start`, `add`, `watch` and `stop` are its steps."""

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 8000, say: Callable[[str], None] = print, train: bool = True
    ) -> None:
        self.state: Path = settings.STATE
        self.host, self.wanted_port, self.say, self.train = host, port, say, train
        self.children: list[Child] = []
        self.url = ""
        self.owns_state = False
        self.door: socket.socket | None = None
        self.env: dict[str, str] = dict(os.environ)
        self.ours = embedded.wanted(os.environ)
        self.services = embedded.Services(
            self.state,
            postgres=self.ours["postgres"],
            valkey=self.ours["valkey"],
            mlflow_store=settings.MLFLOW_STORE or None,
        )

    def run(self, then: Callable[[Supervisor], None] | None = None) -> None:
        """Start everything, call `then(self)`, watch until Ctrl-C or SIGTERM, stop everything."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _ask_to_stop)
        try:
            self.start()
            if then is not None:
                then(self)
            self.watch()
        except StopAsked:
            self.say("Stopping ...")
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            self.stop()

    def start(self) -> None:
        """Start services, bring the database up to date, start web, workers and beat; return when the web answers."""
        began = time.monotonic()
        if self.ours["mlflow"] and not self.ours["postgres"] and not settings.MLFLOW_STORE:
            raise children.NotStarted(
                "DATABASE_URL is set and MLFLOW_TRACKING_URI is not. Set MLFLOW_TRACKING_URI to your MLflow, or "
                "LOOPLINE_MLFLOW_STORE=postgresql+psycopg://... to a database for the one that starts here."
            )
        self.services.start()
        self.owns_state = True
        for service in self.services.services:
            self._adopt(service)
        self._choose_addresses()
        if self.ours["mlflow"]:
            self.env["MLFLOW_TRACKING_URI"] = self.services.start_mlflow(wait=False)
            self._adopt(self.services.services[-1])
        self._prepare_database()
        self.door = children.listen(self.wanted_port, host=self.host)
        port = self.door.getsockname()[1]
        if self.wanted_port and port != self.wanted_port:
            self.say(f"Port {self.wanted_port} is taken: using {port}.")
        self.url = f"http://{self.host}:{port}"
        for name, command in console_commands(self.door.fileno()).items():
            if self.train or name != "train":
                self.add(name, command, doors=[self.door.fileno()] if name.startswith("web") else [])
        web = self._child("web")
        assert web.process is not None
        children.wait_until(self._web_answers, web.process, what="The web", log=self._log("web"), within_s=60)
        if self.ours["mlflow"]:
            self.services.wait_for_mlflow()
        self.say(f"Loopline answers at {self.url} ({time.monotonic() - began:.0f} s). State and logs: {self.state}")

    def add(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        once: bool = False,
        doors: Sequence[int] = (),
    ) -> Child:
        """Run one more command while the supervisor lives (`once`: until it ends well); log: `log/NAME.log`."""

        def start() -> subprocess.Popen[bytes]:
            return children.spawn(
                command, log=self._log(name), env={**self.env, **(env or {})}, cwd=cwd or settings.BASE_DIR, doors=doors
            )

        child = Child(name=name, start=start, stop_signal=stop_signal, once=once)
        self.children.append(child)
        if threading.current_thread() is threading.main_thread():
            self._start(child)
        # else the next look at it starts it: a child dies with the thread that started it
        return child

    def watch(self) -> None:
        """Restart whatever dies, for ever: the first time at once, then with pauses that double up to half a minute."""
        while True:
            self.tend()
            time.sleep(0.25)

    def tend(self) -> None:
        """One look at every child; for those who wait for something else meanwhile."""
        for child in self.children:
            self._look_after(child)

    def tend_during(self, work: Callable[[], None]) -> None:
        """Do `work` on a thread and look after the children meanwhile; raises what it raised."""
        raised: list[Exception] = []

        def on_thread() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001  raised again below, on the main thread
                raised.append(error)
            finally:
                connections.close_all()

        worker = threading.Thread(target=on_thread, name="work", daemon=True)
        worker.start()
        while worker.is_alive():
            self.tend()
            worker.join(0.25)
        if raised:
            raise raised[0]

    def stop(self) -> None:
        """Stop the console's processes together, then the services, last started first."""
        if not self.owns_state:  # refused before anything started: what runs belongs to another
            return
        mine = [child for child in self.children if child.process is not None and not self._is_service(child)]
        for child in mine:
            assert child.process is not None
            if child.process.poll() is None:
                child.process.send_signal(child.stop_signal)
        killed = not children.stop_all([child.process for child in mine if child.process], patience_s=PATIENCE_S)
        for service in self.services.services:  # after a restart the process is another one
            service.process = next(child.process for child in self.children if child.name == service.name)
        self.services.stop()
        if self.door is not None:
            self.door.close()
        self._file("children.json").unlink(missing_ok=True)
        self._file("url").unlink(missing_ok=True)
        self.say("Stopped." if not killed else "Stopped; what did not end in time was killed.")

    def _look_after(self, child: Child) -> None:
        if child.process is None:
            if time.monotonic() >= child.start_again_at:
                self._start_again(child)
            return
        if child.process.poll() is None:
            return
        if child.once and child.process.returncode == 0:
            child.process, child.start_again_at = None, math.inf
            return
        lived = time.monotonic() - child.started_at
        child.pause_s = 0.0 if lived > STEADY_S else min(LONGEST_PAUSE_S, child.pause_s * 2 or 1.0)
        child.start_again_at = time.monotonic() + child.pause_s
        self.say(
            f"{child.name} ended (exit {child.process.returncode}) after {lived:.0f} s; starting it again"
            f"{f' in {child.pause_s:.0f} s' if child.pause_s else ''}. Its log: {self._log(child.name)}"
        )
        children.stop(child.process)  # what it left behind
        child.process = None

    def _start_again(self, child: Child) -> None:
        try:
            self._start(child)
        except children.NotStarted as error:
            child.pause_s = min(LONGEST_PAUSE_S, child.pause_s * 2 or 1.0)
            child.start_again_at = time.monotonic() + child.pause_s
            self.say(f"{error}\nTrying again in {child.pause_s:.0f} s.")

    def _start(self, child: Child) -> None:
        child.process = child.start()
        child.started_at = time.monotonic()
        self._publish()

    def _adopt(self, service: embedded.Service) -> None:
        self.children.append(
            Child(
                name=service.name,
                start=service.start,
                stop_signal=service.stop_signal,
                process=service.process,
                started_at=time.monotonic(),
            )
        )
        self._publish()

    def _is_service(self, child: Child) -> bool:
        return child.name in {service.name for service in self.services.services}

    def _choose_addresses(self) -> None:
        here = self.services.addresses
        self.env["LOOPLINE_STATE"] = str(self.state)
        if self.ours["postgres"]:
            self.env["DATABASE_URL"] = here.database
        if self.ours["valkey"]:
            self.env["REDIS_URL"] = here.redis
        # Clients ask no host outside the plant, and nothing is ever unpickled.
        self.env |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_MODEL_CATALOG_URI": ""}
        self.env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"}
        self.env |= {"DJANGO_SETTINGS_MODULE": "console.settings", "PYTHONUNBUFFERED": "1"}

    def _prepare_database(self) -> None:
        here = self.services.addresses
        app = here.database if self.ours["postgres"] else _url_of("DATABASE_URL")
        owner = here.owner if self.ours["postgres"] else settings.DATABASE_OWNER_URL or app
        if owner == app:
            self.say("DATABASE_OWNER_URL is not set: the console's own role owns the tables and could alter the audit.")
        database.prepare(owner_url=owner, app_url=app, checkout=settings.BASE_DIR)

    def _web_answers(self) -> bool:
        try:
            return httpx.get(self.url + "/", timeout=10).status_code < 500
        except httpx.TransportError:
            return False

    def _child(self, name: str) -> Child:
        return next(child for child in self.children if child.name == name)

    def _log(self, name: str) -> Path:
        return self.state / "log" / f"{name}.log"

    def _file(self, name: str) -> Path:
        return embedded.sockets_folder(self.state) / name

    def _publish(self) -> None:
        """Say in files who runs (for people, and for tests that kill)."""
        running = {child.name: child.process.pid for child in self.children if child.process is not None}
        fresh = self._file(".children.json")
        fresh.write_text(json.dumps(running))
        fresh.replace(self._file("children.json"))
        if self.url:
            self._file("url").write_text(self.url)


def _ask_to_stop(number: int, frame: FrameType | None) -> None:
    raise StopAsked(signal.Signals(number).name)


def _url_of(name: str) -> str:
    from console.environment import envsecret

    return envsecret(name)


def already_running(state: Path) -> str:
    """The address of the console that owns this state folder, as it published it; empty before it has one."""
    file = embedded.sockets_folder(state) / "url"
    return file.read_text() if file.exists() else ""
