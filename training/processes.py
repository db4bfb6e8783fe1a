"""Process groups of the recipe: started in a session of their own, named beyond doubt, and ended so that nothing lives.

A group is known by (group id, start time of its leader, boot id): process ids are used again, that triple is not. Each
process also carries a mark in its environment, which finds one that left the group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROC = Path("/proc")
MARK = "LOOPLINE_ATTEMPT"
GONE_S = 10.0
# what the recipe may see of the worker's environment: no address of a database, no secret
PASSED_ON = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "XDG_CACHE_HOME",
)
PASSED_ON_PREFIXES = ("CUDA_", "NVIDIA_", "NCCL_", "TORCH_", "PYTORCH_")


@dataclass(frozen=True)
class Group:
    """A process group that was started at one moment of one boot of one machine. `mark` is unique to the attempt."""

    pgid: int
    started: str
    boot_id: str
    mark: str


@dataclass(frozen=True)
class _Stat:
    pid: int
    state: str
    pgrp: int
    session: int
    started: int


def boot_id() -> str:
    """Names this boot of this machine."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def cores() -> int:
    """Cores that this process may use, which in a container is fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def environment(mark: str, threads: int) -> dict[str, str]:
    """The recipe's environment: offline, with the number of threads that its share of the machine allows."""
    found = {key: value for key, value in os.environ.items() if key in PASSED_ON or key.startswith(PASSED_ON_PREFIXES)}
    count = str(threads)
    return found | {
        MARK: mark,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
    }


def start(
    command: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], Group]:
    """Start a command in a session of its own. Its stdin is a pipe that we hold: when we die, it reads end-of-file."""
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            list(command), cwd=cwd, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
            start_new_session=True,
        )  # fmt: skip
    # When memory runs out, the training goes before its supervisor, which can say so.
    with contextlib.suppress(OSError):
        (PROC / str(process.pid) / "oom_score_adj").write_text("500")
    stat = _stat(process.pid)
    return process, Group(process.pid, str(stat.started) if stat else "", boot_id(), env[MARK])


def living(group: Group) -> set[int]:
    """Process ids of the group, of its session, or with its mark, that are alive (a zombie is not)."""
    if group.boot_id != boot_id():
        return set()  # of another boot or machine: nothing of it is here
    stats = [stat for pid in _pids() if (stat := _stat(pid)) is not None]
    leader = next((stat for stat in stats if stat.pid == group.pgid), None)
    # No process gets a number that a group or session with members has: without a leader they are ours.
    ours = leader is None or str(leader.started) == group.started
    started = int(group.started or 0)
    return {
        stat.pid
        for stat in stats
        if stat.state not in "ZX"
        and (
            (ours and group.pgid in (stat.pgrp, stat.session) and stat.started >= started)
            or _marked(stat.pid, group.mark)
        )
    }


def terminate(group: Group) -> None:
    """Ask the whole group to end (SIGTERM)."""
    for pid in living(group):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def end(group: Group, *, process: subprocess.Popen[bytes] | None = None, within_s: float = GONE_S) -> bool:
    """SIGKILL until nothing of the group lives; False when something would not go (stuck in the kernel)."""
    deadline = time.monotonic() + within_s
    while True:
        alive = living(group)
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if process is not None:
            process.poll()  # reap
        if not alive:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def close(process: subprocess.Popen[bytes]) -> None:
    """Close our ends of its pipes, and reap it."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    process.wait()


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]


def _stat(pid: int) -> _Stat | None:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before may hold spaces and brackets
    return _Stat(pid, fields[0], int(fields[2]), int(fields[3]), int(fields[19]))


def _marked(pid: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
