"""Pictures that wait for the network, on disk, within a byte budget. Offline is normal; forgetting in silence is not.

A capture is two files: the picture, then its header. The header's rename is the commit; a picture without one is swept
at the next start. Capture ids come from the content of the event, so a re-send after a crash is known to the server.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.config import sync_folder, write_durably, write_json

log = logging.getLogger(__name__)

# What goes first when the budget is full: audit samples only sharpen an estimate; doubts and requests are wanted.
_LEAST_WANTED_FIRST = ("audit", "no_model", "band", "operator")


@dataclass(frozen=True)
class Waiting:
    """One capture in the outbox; `size` of the picture in bytes."""

    id: str
    order: int
    reason: str
    size: int


def capture_id(device: str, name: str, digest: str, taken_at: str) -> str:
    """Same picture event, same id, also after a crash between sending and forgetting; 32 hex digits."""
    text = "\n".join((device, name, digest, taken_at))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


class Outbox:
    """`folder` holds what waits, `refused` what the server will never take (with its answer). Thread-safe."""

    def __init__(self, folder: Path, refused: Path, max_bytes: int, refused_max_files: int = 200) -> None:
        self._folder = folder
        self._refused = refused
        self._max_bytes = max_bytes
        self._refused_max_files = refused_max_files
        self._lock = threading.RLock()
        self._waiting: dict[str, Waiting] = {}
        self._bytes = 0
        self._last = 0
        self._dropped: dict[str, int] = {}  # by reason, until the agent adds them to its totals
        self._recover()

    def _recover(self) -> None:
        for temp in self._folder.glob(".*.tmp"):
            temp.unlink()
        found = []
        for header_file in self._folder.glob("*.json"):
            picture = header_file.with_suffix(".bin")
            try:
                entry = json.loads(header_file.read_bytes())
                order, reason = int(entry["order"]), entry["header"]["reason"]
                if reason not in _LEAST_WANTED_FIRST:
                    raise ValueError(f"unknown reason {reason!r}")
                found.append(Waiting(header_file.stem, order, reason, picture.stat().st_size))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("outbox: %s is damaged (%s), moved to refused", header_file.name, error)
                self._move_to_refused(header_file.stem, {"error": "damaged_on_device", "sentence": str(error)})
        for waiting in sorted(found, key=lambda w: w.order):
            self._waiting[waiting.id] = waiting
            self._bytes += waiting.size
            self._last = max(self._last, waiting.order)
        for picture in self._folder.glob("*.bin"):
            if picture.stem not in self._waiting:
                picture.unlink()

    def put(self, capture: str, header: dict[str, Any], picture: bytes) -> bool:
        """Keeps a capture; False when the budget left no room for it (counted). Raises OSError."""
        with self._lock:
            if capture in self._waiting:
                return True
            reason = header["reason"]
            if not self._make_room(len(picture), reason):
                self._count_dropped(reason, capture)
                return False
            self._last += 1
            write_durably(self._folder / f"{capture}.bin", picture)
            write_json(self._folder / f"{capture}.json", {"order": self._last, "header": header})
            self._waiting[capture] = Waiting(capture, self._last, reason, len(picture))
            self._bytes += len(picture)
            return True

    def first(self) -> Waiting | None:
        """The oldest that waits."""
        with self._lock:
            return next(iter(self._waiting.values()), None)

    def postpone(self, waiting: Waiting) -> None:
        """Lets the others go first: one picture that makes the server stumble must not hold up the rest."""
        with self._lock:
            if self._waiting.pop(waiting.id, None) is not None:
                self._waiting[waiting.id] = waiting

    def header(self, waiting: Waiting) -> dict[str, Any]:
        entry: dict[str, Any] = json.loads((self._folder / f"{waiting.id}.json").read_bytes())
        header: dict[str, Any] = entry["header"]
        return header

    def picture(self, waiting: Waiting) -> Path:
        return self._folder / f"{waiting.id}.bin"

    def done(self, waiting: Waiting) -> None:
        """The server has it."""
        with self._lock:
            self._forget(waiting)
            self._remove(waiting.id)

    def refuse(self, waiting: Waiting, answer: dict[str, Any]) -> None:
        """The server will never take it: moved to refused/ with the answer beside it; the rest goes on."""
        with self._lock:
            self._forget(waiting)
            self._move_to_refused(waiting.id, answer)

    def waiting(self) -> tuple[int, int]:
        """(captures, bytes) that wait."""
        with self._lock:
            return len(self._waiting), self._bytes

    def holds(self, waiting: Waiting) -> bool:
        with self._lock:
            return waiting.id in self._waiting

    def take_dropped(self) -> dict[str, int]:
        """How many were dropped, by reason, since the last call."""
        with self._lock:
            taken, self._dropped = self._dropped, {}
            return taken

    def drop_one(self) -> bool:
        """Forgets the least wanted capture to free disk; False when nothing waits."""
        with self._lock:
            victim = self._victim("operator")
            if victim is None:
                return False
            self._drop(victim)
            return True

    def _make_room(self, size: int, reason: str) -> bool:
        """A newcomer never pushes out something more wanted than itself."""
        if size > self._max_bytes:
            return False
        while self._bytes + size > self._max_bytes:
            victim = self._victim(reason)
            if victim is None:
                return False
            self._drop(victim)
        return True

    def _victim(self, newcomer: str) -> Waiting | None:
        for reason in _LEAST_WANTED_FIRST[: _LEAST_WANTED_FIRST.index(newcomer) + 1]:
            oldest = next((w for w in self._waiting.values() if w.reason == reason), None)
            if oldest is not None:
                return oldest
        return None

    def _drop(self, waiting: Waiting) -> None:
        self._forget(waiting)
        self._remove(waiting.id)
        self._count_dropped(waiting.reason, waiting.id)

    def _count_dropped(self, reason: str, capture: str) -> None:
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        log.warning("outbox is full: dropped %s (%s)", capture, reason)

    def _forget(self, waiting: Waiting) -> None:
        if self._waiting.pop(waiting.id, None) is not None:
            self._bytes -= waiting.size

    def _remove(self, capture: str) -> None:
        # Header first: without it a picture that a power cut leaves behind is swept, not sent.
        (self._folder / f"{capture}.json").unlink(missing_ok=True)
        (self._folder / f"{capture}.bin").unlink(missing_ok=True)

    def _move_to_refused(self, capture: str, answer: dict[str, Any]) -> None:
        header_file, picture = self._folder / f"{capture}.json", self._folder / f"{capture}.bin"
        try:
            header = json.loads(header_file.read_bytes())
        except (OSError, ValueError):
            header = None
        if picture.exists():
            os.replace(picture, self._refused / picture.name)
        write_json(self._refused / header_file.name, {"answer": answer, "capture": header})
        header_file.unlink(missing_ok=True)
        sync_folder(self._folder)
        tidy_refused(self._refused, self._refused_max_files)


def keep_refused(folder: Path, picture: Path, answer: dict[str, Any], max_files: int) -> None:
    """A picture that this device cannot decode: moved aside with the reason, never into the camera folder again."""
    file_name = picture.name.encode("utf-8", "surrogateescape")
    name = f"{hashlib.sha256(file_name).hexdigest()[:16]}-{picture.stat().st_mtime_ns}"
    shutil.move(picture, folder / f"{name}.bin")
    write_json(folder / f"{name}.json", {"answer": answer, "name": file_name.decode("utf-8", "replace")})
    tidy_refused(folder, max_files)


def tidy_refused(folder: Path, max_files: int) -> None:
    """Keeps the newest `max_files` refusals; a camera that writes rubbish must not fill the disk."""
    notes = sorted(folder.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
    for note in notes[: max(0, len(notes) - max_files)]:
        log.warning("refused folder is full: removed %s", note.stem)
        note.with_suffix(".bin").unlink(missing_ok=True)
        note.unlink(missing_ok=True)
