"""The one validator behind every door: are these bytes a picture that Loopline takes?

Bytes from outside are decoded in a child process with little memory and time, so that a picture made to hurt a decoder
hurts that child alone. Two children are kept and used in turn: starting one takes longer than most decodes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext, gettext_noop

from edge.pictures import MAX_PIXELS, PictureInfo, PictureRefused
from registry.lifecycle import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "MAX_PIXELS",
    "PictureInfo",
    "PictureRefused",
    "as_refused",
    "check",
    "check_bytes",
    "sentence",
    "stored_sentence",
]

CHILDREN = 2
SECONDS = 20.0
PICTURES_PER_CHILD = 2000  # a leak in a decoder stays small
ROOT = Path(__file__).resolve().parent.parent

SENTENCES = {
    "empty": gettext_noop("The file is empty."),
    "not_a_picture": gettext_noop("The file is not a picture: its content is of no known picture format."),
    "truncated": gettext_noop("The picture is damaged or was cut off on its way: it does not decode to the end."),
    "too_many_pixels": gettext_noop("The picture has more pixels than the limit of %(limit)s."),
    "unsupported": gettext_noop("This kind of picture cannot be decoded."),
    "format_not_allowed": gettext_noop("%(format)s pictures are not taken. Send JPEG, PNG, BMP, TIFF or WebP."),
    "too_slow": gettext_noop("Decoding the picture took too long, so it was given up."),
    "too_much_memory": gettext_noop("Decoding the picture took too much memory, so it was given up."),
}


def stored_sentence(refused: PictureRefused) -> dict[str, Any]:
    """The sentence as {"text", "params"}, to be rendered in the reader's language."""
    text = SENTENCES[refused.code]
    known = {key: str(value) for key, value in refused.params.items() if f"%({key})s" in text}
    return {"text": text, "params": {"limit": str(MAX_PIXELS), "format": "", **known} if "%(" in text else {}}


def sentence(refused: PictureRefused) -> str:
    """The sentence in the active language."""
    stored = stored_sentence(refused)
    return gettext(stored["text"]) % stored["params"] if stored["params"] else gettext(stored["text"])


def as_refused(refused: PictureRefused) -> Refused:
    stored = stored_sentence(refused)
    return Refused(stored["text"], **stored["params"])


def check(path: Path, max_pixels: int = MAX_PIXELS) -> PictureInfo:
    """Decode the file whole in a bounded child and say what it is; raises PictureRefused."""
    return PictureInfo(**_answer(path, max_pixels)["info"])


def _answer(path: Path, max_pixels: int, folder: Path | None = None) -> dict[str, Any]:
    answer = None
    while answer is None:
        with _child() as child:
            answer = child.ask(path, max_pixels, folder)
    if "code" in answer:
        raise PictureRefused(answer["code"], **answer["params"])
    return answer


def check_bytes(data: bytes, max_pixels: int = MAX_PIXELS) -> PictureInfo:
    """`check` for bytes in memory."""
    with _as_file(data) as path:
        return check(path, max_pixels)


def write_levels(data: bytes, folder: Path, max_pixels: int = MAX_PIXELS) -> None:
    """Write the picture's levels (training.pyramid) into `folder`, in a bounded child too; raises PictureRefused."""
    with _as_file(data) as path:
        _answer(path, max_pixels, folder)


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[Path]:
    """Bytes in memory under a path that the child can open."""
    handle = os.memfd_create("picture")
    try:
        with os.fdopen(os.dup(handle), "wb") as out:
            out.write(data)
        yield Path(f"/proc/{os.getpid()}/fd/{handle}")
    finally:
        os.close(handle)


class _Child:
    def __init__(self) -> None:
        environment = {key: os.environ[key] for key in ("PATH", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
        # Threads of a numeric library reserve address space, which is what the child has little of.
        environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "training.pictures_child"],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        self.used = 0

    def ask(self, path: Path, max_pixels: int, folder: Path | None) -> dict[str, Any] | None:
        """The child's answer; one that dies or takes too long has refused the picture. None: it was dead before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.used += 1
        try:
            self._process.stdin.write(json.dumps([str(path), max_pixels, folder and str(folder)]).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.end()
            return None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(SECONDS):
                self.end()
                return {"code": "too_slow", "params": {}}
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self.end()
            slow = self._process.returncode == -signal.SIGXCPU
            return {"code": "too_slow" if slow else "too_much_memory", "params": {}}
        return dict(json.loads(answer))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class _Pool:
    """Idle children of this process, and how many may work at once."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.slots = threading.BoundedSemaphore(CHILDREN)
        self.lock = threading.Lock()
        self.idle: list[_Child] = []


_pool = _Pool()


@contextlib.contextmanager
def _child() -> Iterator[_Child]:
    global _pool  # a forked worker must not share its parent's pipes
    if _pool.owner != os.getpid():
        _pool = _Pool()
    pool = _pool
    with pool.slots:
        with pool.lock:
            child = pool.idle.pop() if pool.idle else None
        if child is not None and not child.alive:
            child.end()
            child = None
        child = child or _Child()
        try:
            yield child
        except BaseException:
            child.end()  # an answer may still be on its way, and would be taken for the next picture's
            raise
        if child.alive and child.used < PICTURES_PER_CHILD:
            with pool.lock:
                pool.idle.append(child)
        elif child.alive:
            child.end()


@atexit.register
def _end_children() -> None:
    if _pool.owner == os.getpid():
        while _pool.idle:
            _pool.idle.pop().end()
