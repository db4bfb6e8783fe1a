"""The frozen-prefix cache: what the base model makes of a picture before the first adapter, computed once and kept.

A value is a pure function of its key, so the folder may be deleted, shared between workers or lose any file at any
time: what is missing or damaged is computed again.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from .config import canonical

FORMAT = 1
_HEADER = struct.Struct("<4sHH4II")  # magic, format, dimensions, up to four sizes, CRC-32 of the payload
_MAGIC = b"LLPX"
_TRIM_TO = 0.9  # of the cap: room for the next writes, so that not every one lists the folder


def cache_key(digest: str, preprocess: dict[str, Any], base_digest: str, cut: str, view: str) -> str:
    """Names one activation by everything that it depends on."""
    return hashlib.sha256(canonical([FORMAT, digest, preprocess, base_digest, cut, view])).hexdigest()


class PrefixCache:
    """float16 arrays of up to four dimensions, one file each, the least recently used dropped when over `max_bytes`."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._bytes = sum(size for _, size, _ in self._files())
        self.dropped = 0

    def get(self, key: str) -> np.ndarray | None:
        """None when missing or damaged (the damaged file is removed)."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        array = _unpack(data)
        if array is None:
            path.unlink(missing_ok=True)
            return None
        try:
            os.utime(path)  # "used now", for the order in which files are dropped
        except OSError:
            return array  # dropped by another worker since; the bytes are already here
        return array

    def put(self, key: str, array: np.ndarray) -> None:
        """Keeps the array as float16. A full disk only costs the saving: raises nothing then."""
        data = _pack(array)
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(data)  # no fsync: a torn file fails its checksum and is computed again
                os.replace(temporary, path)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError:
            self.max_bytes = min(self.max_bytes, self._bytes)
            return
        self._bytes += len(data)
        if self._bytes > self.max_bytes:
            self._trim()

    def __contains__(self, key: str) -> bool:
        return self._path(key).exists()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.act"

    def _files(self) -> list[tuple[float, int, Path]]:
        found = []
        for path in self.folder.glob("??/*"):
            try:
                stat = path.stat()
            except OSError:
                continue  # another worker dropped it while we listed
            found.append((stat.st_mtime, stat.st_size, path))
        return sorted(found, key=lambda entry: entry[0])

    def _trim(self) -> None:
        files = self._files()
        self._bytes = sum(size for _, size, _ in files)
        for _, size, path in files:
            if self._bytes <= self.max_bytes * _TRIM_TO:
                break
            path.unlink(missing_ok=True)
            self._bytes -= size
            self.dropped += 1


def _pack(array: np.ndarray) -> bytes:
    half = np.ascontiguousarray(array, dtype=np.float16)
    payload = half.tobytes()
    sizes = list(half.shape) + [0] * (4 - half.ndim)
    return _HEADER.pack(_MAGIC, FORMAT, half.ndim, *sizes, zlib.crc32(payload)) + payload


def _unpack(data: bytes) -> np.ndarray | None:
    if len(data) < _HEADER.size:
        return None
    magic, version, dimensions, *rest = _HEADER.unpack_from(data)
    shape, checksum = tuple(rest[:4][:dimensions]), rest[4]
    payload = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or version != FORMAT or len(payload) != 2 * int(np.prod(shape, dtype=np.int64)):
        return None
    if zlib.crc32(payload) != checksum:
        return None
    return np.frombuffer(payload, dtype=np.float16).reshape(shape)
