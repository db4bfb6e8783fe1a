"""Folders and zip files as one read-only interface that trusts neither, and a writer of zip files.

Names that lead out, links, encrypted entries, bombs and names that are there twice are refused at opening. Zip names
without the UTF-8 flag are read as UTF-8 or else CP949, which Korean Windows writes; back-slashes are separators.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training.formats.names import folded

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_AN_ARCHIVE = gettext_noop("%(name)s is neither a folder nor a zip file that can be read.")
OUTSIDE = gettext_noop("“%(name)s” leads out of the archive.")
LINK = gettext_noop("“%(name)s” is a link. Send the file itself.")
ENCRYPTED = gettext_noop("“%(name)s” is encrypted.")
ENTRY_TWICE = gettext_noop("“%(name)s” is in the archive twice.")
TOO_MANY = gettext_noop("The archive holds more than %(limit)s files.")
TOO_LARGE = gettext_noop("Unpacked, the archive is larger than %(limit)s bytes.")
TOO_DENSE = gettext_noop("“%(name)s” unpacks to more than %(limit)s times its size.")
FILE_TOO_LARGE = gettext_noop("“%(name)s” is larger than %(limit)s bytes.")
DAMAGED = gettext_noop("“%(name)s” is damaged and cannot be unpacked.")

_UTF8_FLAG = 0x800
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError, ValueError)
_JUNK = re.compile(r"(^|/)(__MACOSX/|\._|\.DS_Store$|Thumbs\.db$|desktop\.ini$)")
_DRIVE = re.compile(r"^[A-Za-z]:")


@dataclass(frozen=True)
class Limits:
    """`ratio` counts for entries above 1 MB: a text of spaces is no bomb."""

    entries: int = 200_000
    total_bytes: int = 64 << 30
    ratio: int = 200
    text_bytes: int = 512 << 20


class Archive(Protocol):
    """Files by relative POSIX path. A context manager; closing closes the file behind it."""

    limits: Limits

    def names(self) -> list[str]: ...
    def size(self, name: str) -> int: ...
    def open(self, name: str) -> IO[bytes]: ...
    def close(self) -> None: ...


@contextmanager
def opened(path: Path, limits: Limits | None = None) -> Iterator[Archive]:
    """The archive at `path`. Raises Refused for what must not be read."""
    found: Archive = Folder(path, limits or Limits()) if path.is_dir() else Zip(path, limits or Limits())
    try:
        yield found
    finally:
        found.close()


def read(archive: Archive, name: str, limit: int | None = None) -> bytes:
    """The whole file; Refused when it is damaged or larger than `limit` bytes (else the archive's text limit)."""
    limit = archive.limits.text_bytes if limit is None else limit
    try:
        with archive.open(name) as file:
            data = file.read(limit + 1)
    except _DAMAGE as error:
        raise Refused(DAMAGED, name=name) from error
    if len(data) > limit:
        raise Refused(FILE_TOO_LARGE, name=name, limit=limit)
    return data


def head(archive: Archive, name: str, size: int) -> bytes:
    """The first bytes of the file; Refused when it is damaged."""
    try:
        with archive.open(name) as file:
            return file.read(size)
    except _DAMAGE as error:
        raise Refused(DAMAGED, name=name) from error


class Folder:
    """A folder on disk. Links in it are refused, also those that lead to a place inside."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self.limits = limits
        self._files: dict[str, Path] = {}
        self._sizes: dict[str, int] = {}
        total = 0
        for folder, folders, files in os.walk(root, onerror=_raise, followlinks=False):
            for entry in (*folders, *files):
                path = Path(folder, entry)
                name = path.relative_to(root).as_posix()
                mode = path.lstat()
                if stat.S_ISLNK(mode.st_mode):
                    raise Refused(LINK, name=name)
                if not stat.S_ISREG(mode.st_mode) or _JUNK.search(name):
                    continue
                total += mode.st_size
                self._files[name], self._sizes[name] = path, mode.st_size
            _within(limits, len(self._files), total)

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        return self._sizes[name]

    def open(self, name: str) -> IO[bytes]:
        return os.fdopen(os.open(self._files[name], os.O_RDONLY | os.O_NOFOLLOW), "rb")

    def close(self) -> None:
        return None


class Zip:
    """A zip file. Nothing is unpacked before its whole table of contents was judged."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.limits = limits
        try:
            self._zip = zipfile.ZipFile(path)
        except _DAMAGE as error:
            raise Refused(NOT_AN_ARCHIVE, name=path.name) from error
        self._entries: dict[str, zipfile.ZipInfo] = {}
        try:
            self._judge()
        except Refused:
            self._zip.close()
            raise

    def _judge(self) -> None:
        entries = self._zip.infolist()
        _within(self.limits, len(entries), sum(entry.file_size for entry in entries))
        encoding = _encoding(entries)
        for entry in entries:
            name = _name(entry, encoding)
            if name.startswith("/") or _DRIVE.match(name) or ".." in name.split("/") or "\0" in name:
                raise Refused(OUTSIDE, name=name)
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise Refused(LINK, name=name)
            if name.endswith("/") or _JUNK.search(name):
                continue
            if entry.flag_bits & 1:
                raise Refused(ENCRYPTED, name=name)
            if entry.file_size > 1 << 20 and entry.file_size > self.limits.ratio * max(entry.compress_size, 1):
                raise Refused(TOO_DENSE, name=name, limit=self.limits.ratio)
            name = "/".join(part for part in name.split("/") if part not in {"", "."})
            if name in self._entries:
                raise Refused(ENTRY_TWICE, name=name)
            self._entries[name] = entry

    def names(self) -> list[str]:
        return sorted(self._entries)

    def size(self, name: str) -> int:
        return self._entries[name].file_size

    def open(self, name: str) -> IO[bytes]:
        return self._zip.open(self._entries[name])

    def close(self) -> None:
        self._zip.close()


def _raise(error: OSError) -> None:
    raise error  # a folder that cannot be listed is not an empty one


def _within(limits: Limits, entries: int, total: int) -> None:
    if entries > limits.entries:
        raise Refused(TOO_MANY, limit=limits.entries)
    if total > limits.total_bytes:
        raise Refused(TOO_LARGE, limit=limits.total_bytes)


def _encoding(entries: list[zipfile.ZipInfo]) -> str:
    """How the names without the UTF-8 flag are written: one program wrote them all, so one guess serves all."""
    raw = [entry.orig_filename.encode("cp437") for entry in entries if not entry.flag_bits & _UTF8_FLAG]
    for encoding in ("utf-8", "cp949"):
        try:
            for name in raw:
                name.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding
    return "cp437"


def _name(entry: zipfile.ZipInfo, encoding: str) -> str:
    name = entry.orig_filename
    if not entry.flag_bits & _UTF8_FLAG:
        name = name.encode("cp437").decode(encoding)
    return name.replace("\\", "/")


class ZipWriter:
    """Writes `out` under a temporary name and renames it when all went well. Equal content gives equal bytes."""

    def __init__(self, out: Path) -> None:
        self._out, self._part = out, out.with_name(out.name + ".part")
        self._taken: set[str] = set()

    def __enter__(self) -> ZipWriter:
        self._zip = zipfile.ZipFile(self._part, "w", allowZip64=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._zip.close()
        if kind is None:
            os.replace(self._part, self._out)
        else:
            self._part.unlink(missing_ok=True)

    def add(self, name: str, data: bytes | Path, *, compress: bool = False) -> str:
        """Adds a file and says its SHA-256. ValueError for a name that is there, also by another case or NFC/NFD."""
        if folded(name) in self._taken:
            raise ValueError(f"{name!r} is in the zip already")
        self._taken.add(folded(name))
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # names beyond ASCII get the UTF-8 flag
        entry.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        entry.external_attr = 0o644 << 16
        digest = hashlib.sha256()
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        entry.file_size = size
        with self._zip.open(entry, "w", force_zip64=size > 1 << 31) as target:
            for block in _blocks(data):
                digest.update(block)
                target.write(block)
        return digest.hexdigest()


def _blocks(data: bytes | Path) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data
        return
    with data.open("rb") as source:
        while block := source.read(1 << 20):
            yield block
