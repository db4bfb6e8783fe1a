"""Fixtures for the agent: a server that speaks the protocol, an enrolled home, the agent as a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.__main__ import main
from edge.config import Home
from tests.edge.console_double import Console
from tests.edge.plant import Base, make_base

ROOT = Path(__file__).resolve().parents[2]
GOOD = ["DOWNLOADING", "VERIFIED", "STAGED", "PROBATION", "COMMITTED"]
FAST = {"backoff_max_s": 1.0, "probation_s": 1.0, "probation_frames": 2, "timeout_s": 5.0, "poll_s": 0.2}


@pytest.fixture(scope="session")
def base() -> Base:
    return make_base()


@pytest.fixture
def console() -> Iterator[Console]:
    console = Console()
    console.start()
    yield console
    console.stop()


@pytest.fixture
def home(console: Console, tmp_path: Path) -> Home:
    """Enrolled, with short times."""
    home = Home(tmp_path / "device")
    assert main(["enrol", "--home", str(home.root), "--server", console.address, "--token", "good-token"]) == 0
    configure(home)
    return home


def configure(home: Home, **settings: Any) -> None:
    values = json.loads(home.settings_file.read_bytes())
    home.settings_file.write_text(json.dumps({**values, **FAST, **settings}))


class Device:
    """`python -m edge run` on a home, as a process."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edge", "run", "--home", str(self.home.root)], cwd=ROOT, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(20)

    def show(self, name: str, data: bytes, **facts: str) -> None:
        """What a camera does: sidecar, then the picture by rename."""
        target = self.home.inbox / name
        target.with_name(f"{name}.json").write_text(json.dumps(facts, ensure_ascii=False))
        temp = target.with_name(f".{name}.tmp")
        temp.write_bytes(data)
        os.replace(temp, target)


@pytest.fixture
def device(home: Home) -> Iterator[Device]:
    device = Device(home)
    yield device
    if device.process is not None and device.process.poll() is None:
        device.process.kill()
        device.process.wait()


def wait_for(met: Callable[[], Any], what: str, timeout_s: float = 45.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not met():
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.02)


def committed(console: Console, deployment: str = "dep-1") -> bool:
    return console.states(deployment)[-1:] == ["COMMITTED"]


def wait_for_check_ins(console: Console, more: int) -> None:
    before = len(console.check_ins)
    wait_for(lambda: len(console.check_ins) >= before + more, "more check-ins")


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as handle:
        found = [int(n) for n in handle.read().split()]
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as handle:
            found += [int(n) for n in handle.read().split()]
    return sorted(set(found))


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as handle:
            return handle.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
