"""Bytes by SHA-256: `blobs/ab/cd/<sha256>`. Temporary name, fsync, rename; never changed afterwards."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

CHUNK = 1 << 20
HEX = set("0123456789abcdef")


class Missing(Exception):
    """No blob has this digest."""


class Damaged(Exception):
    """A blob's bytes do not have the digest of its name: the disk or somebody changed them."""


def root() -> Path:
    return Path(settings.BLOB_ROOT)


def is_digest(text: str) -> bool:
    """True for 64 lower-case hexadecimal digits."""
    return len(text) == 64 and set(text) <= HEX


def path(digest: str) -> Path:
    """Where the blob lies, whether or not it exists; raises ValueError for anything but a digest (no path tricks)."""
    if not is_digest(digest):
        raise ValueError(f"not a SHA-256 digest: {digest!r}")
    return root() / digest[:2] / digest[2:4] / digest


def exists(digest: str) -> bool:
    return path(digest).is_file()


def size(digest: str) -> int:
    """Bytes of the blob; raises Missing."""
    try:
        return path(digest).stat().st_size
    except FileNotFoundError as error:
        raise Missing(digest) from error


def read(digest: str) -> bytes:
    """All bytes, checked against the digest; raises Missing or Damaged."""
    try:
        data = path(digest).read_bytes()
    except FileNotFoundError as error:
        raise Missing(digest) from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise Damaged(digest)
    return data


def open_read(digest: str) -> IO[bytes]:
    """An open file on the blob, for streaming; raises Missing."""
    try:
        return path(digest).open("rb")
    except FileNotFoundError as error:
        raise Missing(digest) from error


def remove(digest: str) -> None:
    """Take bytes out of the store that nothing refers to any more: archives of transfers, never pictures or models."""
    path(digest).unlink(missing_ok=True)


def put(data: bytes) -> str:
    """Store these bytes; returns their digest. Storing the same bytes again is a no-op."""
    return put_stream([data])


def put_file(source: Path) -> str:
    """Store a file's bytes by streaming; returns their digest."""
    with source.open("rb") as handle:
        return put_stream(iter(lambda: handle.read(CHUNK), b""))


def put_stream(chunks: Iterable[bytes]) -> str:
    """Store a stream, hashing on the way; returns the digest."""
    incoming = Incoming()
    try:
        for chunk in chunks:
            incoming.write(chunk)
        return incoming.keep()
    finally:
        incoming.discard()


class Incoming:
    """Bytes on their way into the store: write chunks, then `keep()`; `discard()` is safe at any time."""

    def __init__(self) -> None:
        folder = root() / "incoming"
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        self._file = os.fdopen(handle, "wb")
        self._path: Path | None = Path(name)
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size_bytes += len(chunk)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def temporary_path(self) -> Path:
        """Where the bytes lie before `keep()`, flushed: for checks that want a file."""
        if self._path is None:
            raise ValueError("these bytes were already kept or discarded")
        self._file.flush()
        return self._path

    def keep(self) -> str:
        """Make the bytes durable under their digest; returns it."""
        if self._path is None:
            raise ValueError("these bytes were already kept or discarded")
        digest = self.digest
        target = path(digest)
        if target.exists():
            self.discard()
            return digest
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        target.parent.mkdir(parents=True, exist_ok=True)
        os.chmod(self._path, 0o444)
        os.replace(self._path, target)
        self._path = None
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return digest

    def discard(self) -> None:
        self._file.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None
