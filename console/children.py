"""Child processes that never outlive us: the kernel kills them when their parent dies, however it dies.

Start them from a thread that lives as long as they shall: the kernel watches the thread, not the process. In practice
that is the main thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOG_MAX_BYTES = 20_000_000  # a longer log is put aside when its process starts anew
_libc = ctypes.CDLL(None, use_errno=True)  # looked up before any fork: nothing may be imported between fork and exec


def _die_with_parent(parent: int, how: signal.Signals) -> Callable[[], None]:
    prctl, getppid, leave = _libc.prctl, os.getppid, os._exit

    def between_fork_and_exec() -> None:
        prctl(PR_SET_PDEATHSIG, int(how))
        if getppid() != parent:  # it died before prctl
            leave(1)

    return between_fork_and_exec


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: str | None = None,
    death_signal: signal.Signals = signal.SIGKILL,
    doors: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child with its output appended to `log`, in its own session (a terminal's Ctrl-C reaches only us).

    `user` needs root. `death_signal` is what the child gets when the calling thread dies. `doors`: file descriptors
    of ours that it keeps, under the same numbers.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_MAX_BYTES:
        log.replace(log.with_suffix(".log.1"))
    with log.open("ab") as out:
        return subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            user=user,
            group=user,
            extra_groups=[] if user else None,
            start_new_session=True,
            pass_fds=doors,
            preexec_fn=_die_with_parent(os.getpid(), death_signal),
        )


def stop(child: subprocess.Popen[bytes], *, how: signal.Signals = signal.SIGTERM, patience_s: float = 10) -> bool:
    """Ask a child to end, then kill its whole session. True when it ended by itself."""
    return stop_all([child], how=how, patience_s=patience_s)


def stop_all(
    children: Sequence[subprocess.Popen[bytes]], *, how: signal.Signals = signal.SIGTERM, patience_s: float = 10
) -> bool:
    """Ask all children at once, wait for all together, then kill what is left. True when none had to be killed."""
    for child in children:
        if child.poll() is None:
            child.send_signal(how)
    deadline = time.monotonic() + patience_s
    gently = True
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            gently = False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what it started and left behind
        child.wait()
    return gently


def free_port(preferred: int = 0, *, host: str = "127.0.0.1") -> int:
    """A port that nobody listens on: `preferred`, else one of the next, else any."""
    with _bound(preferred, host) as probe:
        return int(probe.getsockname()[1])


def listen(preferred: int = 0, *, host: str = "127.0.0.1") -> socket.socket:
    """A listening TCP socket, on `preferred` or as `free_port` chooses, for several children to accept from.

    While they start anew, who connects waits in its backlog.
    """
    door = _bound(preferred, host)
    door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is accepted inherits it; servers may not know
    door.listen(1024)
    return door


def _bound(preferred: int, host: str, tries: int = 50) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in [*range(preferred, preferred + tries), 0] if preferred else [0]:
        found = socket.socket(family)
        # As servers do it: a port in TIME_WAIT is free, one that is listened on is not.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
        except OSError:
            found.close()
            continue
        return found
    raise OSError(f"no free port on {host}")


def wait_until(
    ready: Callable[[], bool], child: subprocess.Popen[bytes], *, what: str, log: Path, within_s: float
) -> None:
    """Wait for a child to be ready; when it ends or takes too long, raise with the end of its log."""
    deadline = time.monotonic() + within_s
    while not ready():
        if child.poll() is not None:
            raise NotStarted(f"{what} ended at once (exit {child.returncode}). {_tail(log)}")
        if time.monotonic() > deadline:
            raise NotStarted(f"{what} did not answer within {within_s:.0f} s. {_tail(log)}")
        time.sleep(0.05)


class NotStarted(RuntimeError):
    """A service did not start; the message ends with what its log said last."""


def _tail(log: Path, lines: int = 12) -> str:
    if not log.exists():
        return f"It wrote no log ({log})."
    return f"Its log, {log}, ends:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


@contextlib.contextmanager
def lock(file: Path, *, wait_s: float = 0) -> Iterator[None]:
    """Hold an exclusive lock on a file for as long as the block runs. Raises `Held` when another process has it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    with file.open("a+") as held:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    held.seek(0)
                    raise Held(held.read().strip()) from None
                time.sleep(0.1)
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
        yield


class Held(RuntimeError):
    """Another process holds the lock; its process id is the message."""


def package_folder(name: str) -> Path:
    """The folder of an installed package, found without importing it (carriers do things when they are imported)."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotStarted(f"The package {name} is not installed here: run `make setup`.")
    return Path(spec.origin).parent


def python(*arguments: str) -> list[str]:
    """The command of a Python of this environment, deaf to the user's own site-packages and current folder."""
    return [sys.executable, "-s", *arguments]
