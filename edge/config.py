"""The agent's home directory: settings, identity, key and state, and the one way to put bytes on disk for good.

Nothing is read from the network here. Settings change only by hand or at enrolment; state changes while running.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class ConfigError(Exception):
    """The home directory does not allow to run; the text says what to do."""


@dataclass(frozen=True)
class Settings:
    """`agent.json`. Times in seconds, sizes in bytes. `device` and below are written at enrolment."""

    server: str
    device: str
    code: str = ""
    line: str = ""
    station: str = ""
    task: str = "class"
    ca_file: str = ""  # the plant's own certificate authority, PEM
    threads: int = 1  # of the runtime; more than free cores is slower
    rate: float = 0.0  # pictures per second at most, 0: as they come
    poll_s: float = 10.0  # until the server says otherwise
    timeout_s: float = 20.0
    backoff_max_s: float = 60.0
    outbox_max_bytes: int = 2_000_000_000
    refused_max_files: int = 200
    keep_free_bytes: int = 200_000_000  # a release is not fetched into the last of the disk
    load_timeout_s: float = 120.0
    judge_timeout_s: float = 30.0
    probation_frames: int = 3  # pictures judged by a new release before it counts as good ...
    probation_s: float = 5.0  # ... or this long, on a line that stands still

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Settings:
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"agent.json has unknown settings: {', '.join(unknown)}")
        try:
            return cls(**values)
        except TypeError as error:
            raise ConfigError(f"agent.json is incomplete: {error}") from error


@dataclass
class Deployment:
    """What the agent knows about the deployment that it works on, or last worked on."""

    id: str = ""
    sequence: int = 0  # of the last report made; rises over restarts
    reported: str = ""  # last state put into a report
    code: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    delivered_bytes: int = 0
    base_bytes: int = 0
    max_abs: float | None = None


@dataclass
class State:
    """`state.json`: totals, policy, reports that wait for the network. Guarded by `lock`; saved through Home."""

    counts: dict[str, int] = field(default_factory=dict)
    audit_rate: float = 0.02
    flag_next: int = 0
    poll_s: float = 0.0
    deployment: Deployment = field(default_factory=Deployment)
    reports: list[dict[str, Any]] = field(default_factory=list)
    running: dict[str, Any] = field(default_factory=dict)
    last_contact: str = ""

    def __post_init__(self) -> None:
        self.lock = threading.RLock()

    def count(self, *names: str, by: int = 1) -> None:
        with self.lock:
            for name in names:
                self.counts[name] = self.counts.get(name, 0) + by


class Home:
    """Paths below --home, and reading and writing of what lies there."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).absolute()
        self.settings_file = self.root / "agent.json"
        self.key_file = self.root / "key.pem"
        self.state_file = self.root / "state.json"
        self.inbox = self.root / "inbox"
        self.outbox = self.root / "outbox"
        self.refused = self.root / "refused"
        self.releases = self.root / "releases"
        self.bases = self.root / "base"
        self.pointer_file = self.releases / "pointer.json"
        self.log_file = self.root / "log" / "agent.log"

    def make(self) -> None:
        """Creates the folders. The home itself is for its owner only: it holds the key and pictures of the plant."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.inbox, self.outbox, self.refused, self.releases, self.bases, self.log_file.parent):
            folder.mkdir(exist_ok=True)

    def settings(self) -> Settings:
        try:
            values = json.loads(self.settings_file.read_bytes())
        except FileNotFoundError:
            raise ConfigError(f"{self.root} is not enrolled: run `loopline-edge enrol` first") from None
        except ValueError as error:
            raise ConfigError(f"{self.settings_file} is not JSON: {error}") from error
        return Settings.from_json(values)

    def write_settings(self, settings: Settings) -> None:
        write_json(self.settings_file, asdict(settings))

    def key(self) -> Ed25519PrivateKey:
        """The device's private key. Raises ConfigError."""
        try:
            key = serialization.load_pem_private_key(self.key_file.read_bytes(), password=None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.key_file} cannot be read: {error}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"{self.key_file} is not an ed25519 key")
        return key

    def make_key(self) -> Ed25519PrivateKey:
        """A key is made once: enrolling again with the same key keeps the device's identity provable."""
        if self.key_file.exists():
            return self.key()
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_durably(self.key_file, pem, mode=0o600)
        return key

    def state(self) -> State:
        """The saved state; a fresh one where there is none. A damaged file is set aside, not trusted and not lost."""
        try:
            values = json.loads(self.state_file.read_bytes())
            known = {f.name for f in fields(State)}
            values = {name: value for name, value in values.items() if name in known}
            return State(**{**values, "deployment": Deployment(**values.get("deployment", {}))})
        except FileNotFoundError:
            return State()
        except (ValueError, TypeError, AttributeError):
            self.state_file.replace(self.state_file.with_suffix(".damaged"))
            return State()

    def save_state(self, state: State) -> None:
        with state.lock:
            write_json(self.state_file, asdict(state))

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free

    @contextmanager
    def only_one(self) -> Iterator[None]:
        """Holds the home for this process; two agents would send each picture twice. Raises ConfigError."""
        import fcntl  # POSIX only, as is the agent

        with open(self.root / "lock", "a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                raise ConfigError(f"another agent runs on {self.root}") from error
            yield


def write_durably(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Temporary name, fsync, rename, fsync of the folder: after a power cut the file is the old or the new, whole."""
    temp = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(fd, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temp, path)
    except OSError:
        temp.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_durably(path, json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True).encode())


def sync_folder(folder: Path) -> None:
    """Makes renames and removals in `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
