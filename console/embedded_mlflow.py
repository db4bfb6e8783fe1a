"""A private MLflow server on loopback: no telemetry, no jobs, no pickle. It never faces people.

It runs as one uvicorn process with the settings that `mlflow server` would hand to it: that command keeps a second
process of the same size, and its child outlives it when it is killed. The names with a leading underscore belong to the
locked version; `tests/console/test_embedded.py` holds them to their meaning.
"""

from __future__ import annotations

import os
import subprocess
from importlib import metadata
from pathlib import Path

import httpx

from console import children


class Mlflow:
    """MLflow in `state/mlflow`; the port it took is kept in `port_file` and taken again next time."""

    def __init__(self, state: Path, port_file: Path, store: str) -> None:
        self.home, self.port_file, self.store = state / "mlflow", port_file, store
        self.log = state / "log" / "mlflow.log"
        self.url = ""

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server; it answers some seconds later (`wait`). A restart takes the same port again."""
        for folder in ("artifacts", "tmp"):
            (self.home / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._upgrade_store()
        remembered = self.port_file.read_text().strip() if self.port_file.exists() else ""
        port = children.free_port(int(remembered or 0))
        self.url = f"http://127.0.0.1:{port}"
        process = children.spawn(
            children.python("-m", "uvicorn", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning")
            + ["--no-access-log", "mlflow.server.fastapi_app:app"],
            log=self.log,
            env=self._env(),
            cwd=self.home,
        )
        self.port_file.write_text(str(port))
        return process

    def wait(self, process: subprocess.Popen[bytes], within_s: float = 120) -> None:
        """Return when the server answers from its database (the first answer makes the tables)."""
        children.wait_until(self._answers, process, what="MLflow", log=self.log, within_s=within_s)

    def _answers(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/api/2.0/mlflow/experiments/search", params={"max_results": 1}, timeout=30)
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    def _env(self) -> dict[str, str]:
        return {
            **os.environ,
            "_MLFLOW_SERVER_FILE_STORE": self.store,
            "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
            "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(self.home / "artifacts"),
            "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
            "_MLFLOW_SGI_NAME": "uvicorn",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "true",
            "MLFLOW_MODEL_CATALOG_URI": "",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            # Without the port too: a page elsewhere that rebinds its name to 127.0.0.1 still sends its own name.
            "MLFLOW_SERVER_ALLOWED_HOSTS": "127.0.0.1,127.0.0.1:*",
            "MLFLOW_SERVER_X_FRAME_OPTIONS": "DENY",
            "MLFLOW_CREATE_MODEL_VERSION_SOURCE_VALIDATION_REGEX": "^models:/m-[0-9a-f]{32}$",
            "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.home / "tmp"),
        }

    def _upgrade_store(self) -> None:
        """Bring the tables of an older MLflow up to date; a new store is made by the server itself."""
        stamp, version = self.home / "version", metadata.version("mlflow")
        if stamp.exists() and stamp.read_text() != version:
            command = children.python("-m", "mlflow", "db", "upgrade", self.store)
            process = children.spawn(command, log=self.log, env=self._env(), cwd=self.home)
            if process.wait() != 0:
                raise children.NotStarted(f"MLflow's tables could not be upgraded to {version}. Its log is {self.log}.")
        stamp.write_text(version)
