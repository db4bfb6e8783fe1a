"""One release, loaded and judging: the child process (`python -m edge.inference`) and the agent's handle on it.

A child per release, so that a graph that crashes or leaks takes nothing with it and a swap is a change of pipes. The
child opens the bytes itself and hashes what it opened; the digest it reports is of the manifest it really loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from edge.config import Settings
from edge.manifest import ReleaseRefused
from edge.pictures import PictureRefused

_MAX_MESSAGE = 64 * 1024 * 1024


class EngineDied(Exception):
    """The child ended, or did not answer in time and was ended."""


@dataclass(frozen=True)
class Judgement:
    """`probabilities` in the order of the manifest's classes; `map` is an ActivationMap or None; `ms` in the child."""

    score: float
    probabilities: list[float]
    map: dict[str, Any] | None
    ms: float


class Engine:
    """The agent's handle on one child. Not thread-safe: the caller holds a lock. Raises EngineDied from every call."""

    def __init__(self, process: subprocess.Popen[bytes], loaded: dict[str, Any], judge_timeout_s: float) -> None:
        self._process = process
        self._judge_timeout_s = judge_timeout_s
        self.digest: str = loaded["digest"]
        self.manifest: dict[str, Any] = loaded["manifest"]
        self.max_abs: float = loaded["max_abs"]
        self.load_ms: float = loaded["ms"]
        self.judged = 0

    @classmethod
    def start(cls, base: Path, release: Path, digest: str, settings: Settings, log_file: Path) -> Engine:
        """Loads the release in a new child and runs its golden vectors. Raises ReleaseRefused, EngineDied."""
        command = [sys.executable, "-m", "edge.inference", "--base", str(base), "--release", str(release)]
        command += ["--digest", digest, "--threads", str(settings.threads)]
        package_parent = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(p for p in (package_parent, os.environ.get("PYTHONPATH", "")) if p)
        with open(log_file, "ab") as log:
            # Own session: a Ctrl-C in the terminal reaches the agent only, which lets the child finish its picture.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(settings.threads)},
            )  # fmt: skip
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        try:
            answer = _receive(process, time.monotonic() + settings.load_timeout_s)
        except EngineDied:
            _end(process)
            raise
        if "refused" in answer:
            _end(process)
            raise ReleaseRefused(answer["refused"], **answer["params"])
        return cls(process, answer, settings.judge_timeout_s)

    def judge(self, picture: bytes) -> Judgement:
        """Raises PictureRefused when the bytes do not decode."""
        answer = self._ask({"op": "judge"}, picture)
        if "refused" in answer:
            raise PictureRefused(answer["refused"], **answer["params"])
        self.judged += 1
        return Judgement(**answer)

    def check_golden(self) -> float:
        """Runs the golden vectors once more, in the child as it stands. Raises ReleaseRefused."""
        answer = self._ask({"op": "golden"}, b"")
        if "refused" in answer:
            raise ReleaseRefused(answer["refused"], **answer["params"])
        return float(answer["max_abs"])

    def close(self) -> None:
        _end(self._process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _ask(self, question: dict[str, Any], body: bytes) -> dict[str, Any]:
        deadline = time.monotonic() + self._judge_timeout_s
        try:
            _post(self._process, question, body, deadline)
            return _receive(self._process, deadline)
        except EngineDied:
            _end(self._process)
            raise


# Messages both ways: two little-endian uint32 (length of the JSON, length of the body), the JSON, the body.


def _post(process: subprocess.Popen[bytes], question: dict[str, Any], body: bytes, deadline: float) -> None:
    assert process.stdin is not None
    text = json.dumps(question).encode()
    left = memoryview(struct.pack("<II", len(text), len(body)) + text + body)
    fd = process.stdin.fileno()
    while left:
        if not select.select([], [fd], [], max(0.0, deadline - time.monotonic()))[1]:
            raise EngineDied("the inference process does not read")
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise EngineDied(f"the inference process is gone: {error}") from error


def _receive(process: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
    assert process.stdout is not None
    length, _ = struct.unpack("<II", _read(process.stdout.fileno(), 8, deadline))
    if length > _MAX_MESSAGE:
        raise EngineDied("the inference process talks nonsense")
    answer: dict[str, Any] = json.loads(_read(process.stdout.fileno(), length, deadline))
    return answer


def _read(fd: int, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise EngineDied("the inference process does not answer")
        chunk = os.read(fd, size - len(data))
        if not chunk:
            raise EngineDied("the inference process ended")
        data += chunk
    return data


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(0.5)  # it ends by itself when its stdin closes
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# The child's side.


def main(arguments: list[str] | None = None) -> int:
    """Loads, says so, then answers until stdin closes: the end of the agent is the end of its children."""
    from edge.model import Model  # only the child pays for the runtime

    parser = argparse.ArgumentParser(prog="python -m edge.inference", description="internal: one release, judging")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--release", type=Path, required=True)
    parser.add_argument("--digest", required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    # Whatever a library prints must not land between two messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    started = time.monotonic()
    try:
        model = Model.load(options.base, options.release, options.digest, options.threads)
    except ReleaseRefused as refused:
        _say(out, {"refused": refused.code, "params": refused.params})
        return 1
    ms = (time.monotonic() - started) * 1000
    _say(out, {"digest": model.digest, "manifest": model.manifest, "max_abs": model.max_abs, "ms": ms})
    while (message := _hear(sys.stdin.buffer)) is not None:
        question, body = message
        try:
            if question["op"] == "golden":
                _say(out, {"max_abs": model.check_golden()})
            else:
                _say(out, model.judge(body))
        except (PictureRefused, ReleaseRefused) as refused:
            _say(out, {"refused": refused.code, "params": refused.params})
    return 0


def _say(out: IO[bytes], answer: dict[str, Any]) -> None:
    text = json.dumps(answer, default=str).encode()
    out.write(struct.pack("<II", len(text), 0) + text)
    out.flush()


def _hear(source: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    head = source.read(8)
    if len(head) < 8:
        return None
    text_length, body_length = struct.unpack("<II", head)
    text, body = source.read(text_length), source.read(body_length)
    if len(text) < text_length or len(body) < body_length:
        return None
    return json.loads(text), body


if __name__ == "__main__":
    sys.exit(main())
