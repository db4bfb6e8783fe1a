"""Bytes by digest: kept whole or not at all, whoever is killed or writes at the same time."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from registry import blobs

WRITER = """
import sys, time
from django.conf import settings
settings.configure(BLOB_ROOT=sys.argv[1])
from registry import blobs
incoming = blobs.Incoming()
for _ in range(100):
    incoming.write(b"x" * 65536)
print("written", flush=True)
time.sleep(60)
"""


def test_bytes_come_back_and_storing_them_again_changes_nothing(blob_root: Path) -> None:
    digest = blobs.put(b"hello")
    before = blobs.path(digest).stat()
    assert digest == hashlib.sha256(b"hello").hexdigest()
    assert blobs.put(b"hello") == digest
    assert blobs.read(digest) == b"hello"
    assert blobs.size(digest) == 5
    assert blobs.path(digest).stat().st_ino == before.st_ino
    assert list((blob_root / "incoming").iterdir()) == []


def test_a_file_cannot_be_written_by_others_and_lies_where_its_digest_says(blob_root: Path) -> None:
    digest = blobs.put(b"")
    assert blobs.path(digest) == blob_root / digest[:2] / digest[2:4] / digest
    assert blobs.path(digest).stat().st_mode & 0o222 == 0


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "g" * 64, "0" * 63 + "\n", "0" * 65])
def test_what_is_no_digest_is_no_path(blob_root: Path, name: str) -> None:
    assert not blobs.is_digest(name)
    with pytest.raises(ValueError, match="not a SHA-256 digest"):
        blobs.path(name)


def test_missing_and_damaged_bytes_are_told_apart(blob_root: Path) -> None:
    with pytest.raises(blobs.Missing):
        blobs.read("0" * 64)
    with pytest.raises(blobs.Missing):
        blobs.open_read("0" * 64)
    digest = blobs.put(b"good")
    blobs.path(digest).chmod(0o644)
    blobs.path(digest).write_bytes(b"evil")
    with pytest.raises(blobs.Damaged):
        blobs.read(digest)


def test_a_writer_that_is_killed_leaves_no_blob(blob_root: Path) -> None:
    checkout = Path(__file__).resolve().parents[2]
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(blob_root)],
        cwd=checkout,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"written\n"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    whole = b"x" * 65536 * 100
    assert not blobs.exists(hashlib.sha256(whole).hexdigest())
    assert blobs.read(blobs.put(whole)) == whole


def test_discarded_bytes_leave_nothing(blob_root: Path) -> None:
    incoming = blobs.Incoming()
    incoming.write(b"half")
    assert incoming.temporary_path.read_bytes() == b"half"
    incoming.discard()
    incoming.discard()
    assert list((blob_root / "incoming").iterdir()) == []
    with pytest.raises(ValueError, match="already kept or discarded"):
        incoming.keep()


def test_a_stream_that_breaks_leaves_nothing(blob_root: Path) -> None:
    def broken() -> object:
        yield b"some"
        raise OSError("cable")

    with pytest.raises(OSError, match="cable"):
        blobs.put_stream(broken())  # type: ignore[arg-type]
    assert list((blob_root / "incoming").iterdir()) == []


def test_many_writers_of_the_same_bytes_make_one_blob(blob_root: Path) -> None:
    data = os.urandom(300_000)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(blobs.put(data))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [hashlib.sha256(data).hexdigest()] * 16
    assert blobs.read(found[0]) == data
    assert list((blob_root / "incoming").iterdir()) == []
