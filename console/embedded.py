"""The embedded default: private PostgreSQL, Valkey and MLflow, from pip packages, started and stopped for you.

All it yields is URLs: everything else in the project treats them like a plant's own servers. What owns a `Services`
owns the processes: they die with it, and the next start recovers from whatever was left behind.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from console import children

SOCKET_PATH_MAX = 100  # the kernel's limit is 107 bytes; PostgreSQL adds ".lock" to its socket's name
OWNER, APP, TRACKER = "loopline_owner", "loopline_app", "loopline_mlflow"


@dataclass(frozen=True)
class Addresses:
    """Where the services of a state folder answer. `admin` is the superuser of PostgreSQL, for set-up only."""

    database: str
    owner: str
    admin: str
    tracking_store: str
    redis: str
    mlflow: str


def sockets_folder(state: Path) -> Path:
    """The folder of the Unix sockets: in the state folder, else (path too long for the kernel) one in /tmp."""
    inside = state / "run"
    if len(str(inside / "pg" / ".s.PGSQL.5432")) <= SOCKET_PATH_MAX:
        return inside
    return Path("/tmp") / f"loopline-{os.geteuid()}-{hashlib.sha256(str(state).encode()).hexdigest()[:12]}"


def database_url(state: Path, user: str, name: str, scheme: str = "postgresql") -> str:
    """The URL of one database of this state folder's PostgreSQL, for one of its roles."""
    return f"{scheme}://{user}@/{name}?host={sockets_folder(state) / 'pg'}"


def addresses(state: Path) -> Addresses:
    """The addresses of this state folder's services, running or not: sockets are fixed, MLflow's port is its last."""
    run = sockets_folder(state)
    port = run / "mlflow.port"
    return Addresses(
        database=database_url(state, APP, "loopline"),
        owner=database_url(state, OWNER, "loopline"),
        admin=database_url(state, "postgres", "postgres"),
        tracking_store=database_url(state, TRACKER, "mlflow", "postgresql+psycopg"),
        redis=f"unix://{run / 'valkey.sock'}?db=0",
        mlflow=f"http://127.0.0.1:{port.read_text().strip()}" if port.exists() else "",
    )


@dataclass
class Service:
    """One embedded service: how to start it (returns when it answers) and which signal ends it cleanly."""

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    stop_signal: signal.Signals
    process: subprocess.Popen[bytes] | None = None


class Services:
    """The services of one state folder. `with Services(folder) as services:` starts PostgreSQL and Valkey.

    MLflow takes seconds to start, so it is started by `start_mlflow()`, when somebody needs it. A service that the
    environment already names by URL is left out. `durable=False` gives up crash safety for speed (tests).
    """

    def __init__(
        self,
        state: Path,
        *,
        postgres: bool = True,
        valkey: bool = True,
        mlflow_store: str | None = None,
        durable: bool = True,
    ) -> None:
        from console import embedded_mlflow, embedded_postgres, embedded_valkey

        self.state = state
        self.addresses = addresses(state)
        self._stack = ExitStack()
        self._postgres = embedded_postgres.Postgres(state, sockets_folder(state) / "pg", durable=durable)
        self._mlflow = embedded_mlflow.Mlflow(
            state, sockets_folder(state) / "mlflow.port", mlflow_store or self.addresses.tracking_store
        )
        server = embedded_valkey.Valkey(state, sockets_folder(state) / "valkey.sock")
        self.services: list[Service] = []
        if postgres:
            # SIGINT: PostgreSQL's fast shutdown. SIGTERM would wait for every client to leave.
            self.services.append(Service("postgres", self._postgres.start, signal.SIGINT))
        if valkey:
            self.services.append(Service("valkey", server.start, signal.SIGTERM))

    def start(self) -> None:
        """Start what is not running, in order. Raises `children.Held` when another process owns this state folder."""
        make_folders(self.state)
        self._stack.enter_context(children.lock(self.state / "lock", wait_s=1))
        try:
            for service in self.services:
                service.process = service.start()
        except BaseException:
            self.stop()
            raise

    def start_mlflow(self, *, wait: bool = True) -> str:
        """Start MLflow and give its URL; with `wait=False` it answers some seconds later (`wait_for_mlflow`)."""
        service = Service("mlflow", self._mlflow.start, signal.SIGTERM)
        self.services.append(service)
        service.process = service.start()
        if wait:
            self.wait_for_mlflow()
        return self._mlflow.url

    def wait_for_mlflow(self) -> None:
        """Return when MLflow answers. Raises `children.NotStarted` with the end of its log."""
        process = next(service.process for service in self.services if service.name == "mlflow")
        assert process is not None
        self._mlflow.wait(process)

    def stop(self) -> None:
        """Stop everything, last started first, and release the state folder."""
        for service in reversed(self.services):
            if service.process is not None:
                children.stop(service.process, how=service.stop_signal)
                service.process = None
        self.services = [service for service in self.services if service.name != "mlflow"]
        self._stack.close()

    def clone(self, template: str, name: str) -> None:
        """Copy a database in which nobody is connected: some hundredths of a second, for tests and rehearsals."""
        self._postgres.clone(template, name)

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected."""
        self._postgres.drop(name)

    def __enter__(self) -> Services:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def make_folders(state: Path) -> None:
    """Make the state folder and the sockets' folder, closed to others (as root: passable for PostgreSQL's own user)."""
    closed = 0o711 if os.geteuid() == 0 else 0o700
    for folder in (state, sockets_folder(state)):
        folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise children.NotStarted(f"{folder} belongs to another user. Set LOOPLINE_STATE to a folder of yours.")
        folder.chmod(closed)


def wanted(environment: Mapping[str, str]) -> dict[str, bool]:
    """Which services are ours to start: those that the environment does not name by URL."""

    def given(name: str) -> bool:
        return bool(environment.get(name) or environment.get(f"{name}_FILE"))

    return {
        "postgres": not given("DATABASE_URL"),
        "valkey": not given("REDIS_URL"),
        "mlflow": not given("MLFLOW_TRACKING_URI"),
    }
