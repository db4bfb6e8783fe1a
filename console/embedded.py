"""The embedded default: private PostgreSQL, Valkey and MLflow, from pip packages, started and stopped for you."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

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
    """The folder of the Unix sockets: within the state folder, else (path too long for the kernel) a private one in /tmp."""
    inside = state / "run"
    if len(str(inside / "pg" / ".s.PGSQL.5432")) <= SOCKET_PATH_MAX:
        return inside
    return Path("/tmp") / f"loopline-{os.geteuid()}-{hashlib.sha256(str(state).encode()).hexdigest()[:12]}"


def addresses(state: Path) -> Addresses:
    """The addresses of this state folder's services, running or not: sockets have fixed places, MLflow its last port."""
    run = sockets_folder(state)

    def postgres(user: str, name: str, scheme: str = "postgresql") -> str:
        return f"{scheme}://{user}@/{name}?host={run / 'pg'}"

    port = run / "mlflow.port"
    return Addresses(
        database=postgres(APP, "loopline"),
        owner=postgres(OWNER, "loopline"),
        admin=postgres("postgres", "postgres"),
        tracking_store=postgres(TRACKER, "mlflow", "postgresql+psycopg"),
        redis=f"unix://{run / 'valkey.sock'}?db=0",
        mlflow=f"http://127.0.0.1:{port.read_text().strip()}" if port.exists() else "",
    )
