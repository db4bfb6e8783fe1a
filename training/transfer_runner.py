"""Does an import or export: in batches that change rows and the transfer's own figures in one transaction.

A worker that is killed loses the batch that it was in, no more: the next one goes on behind the last picture that was
recorded, and what is there already is found by its bytes.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.translation import gettext_noop

from registry import blobs, lifecycle
from registry.lifecycle import Refused
from training import exports, formats, pictures, policies, transfer_imports, transfers
from training.formats.names import is_picture
from training.models import Capture, Transfer
from training.pictures import PictureInfo
from training.transfer_records import Recorder
from training.transfers import Held, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

log = logging.getLogger(__name__)

PULSE_S = 0.5  # the page hears of progress at most twice a second
NO_SPACE = (28, 122)  # ENOSPC, EDQUOT

DISK_FULL = gettext_noop("There is no space left on the disk. What was recorded until then stays; the rest is missing.")
WORKER_FAILED = gettext_noop("The worker could not go on (%(kind)s). Its log says more.")
BYTES_MISSING = gettext_noop("The stored bytes of this picture are missing. Tell your site administrator.")
NOTHING_USABLE = gettext_noop("None of the %(count)s pictures can be taken. The list says why.")


class WorkerStopping(Exception):
    """The worker is asked to shut down."""


def never() -> bool:
    return False


def look(transfer_id: UUID | str) -> None:
    """Look into an archive that nobody has confirmed yet, and write down what importing it would do."""
    row = Transfer.objects.select_related("line").filter(pk=transfer_id, confirmed_at=None).first()
    if row is None or row.state != Transfer.State.QUEUED or row.look:
        return
    if not transfers.begin_look(row):
        lifecycle.touch(row, look={"failure": {"text": transfers.DIED, "params": {"deaths": row.deaths}}})
        return
    code = row.format
    try:
        with formats.opened(blobs.path(row.digest)) as archive:
            code = code or transfer_imports.detect(archive)
            seen = transfer_imports.look(archive, code, row.line)
    except Refused as refused:
        seen = {"failure": _named(refused, row)}
    except Exception as error:
        lifecycle.touch(row, look={"failure": _crashed(error)})
        raise
    lifecycle.touch(row, look=seen, format=code, deaths=0)


def run(transfer_id: UUID | str, *, worker: str, should_stop: Callable[[], bool] = never) -> None:
    """Claim the transfer and see it through; returns at once when it is not queued and confirmed (any more)."""
    held = transfers.claim(transfer_id, worker=worker)
    if held is None:
        log.info("transfer %s is not queued; nothing to do", transfer_id)
        return
    pulse = Pulse(held, should_stop)
    try:
        _work(held, pulse)
    except LeaseLost:
        log.info("transfer %s was cancelled or taken over; nothing more is written", held.transfer.pk)
    except WorkerStopping:
        _quietly(lambda: transfers.give_back(held))
    except Exception as error:
        failure = _crashed(error)
        _quietly(lambda: transfers.fail(held, failure))
        raise


def _work(held: Held, pulse: Pulse) -> None:
    row = held.transfer
    try:
        (_import if row.kind == Transfer.Kind.IMPORT else _export)(held, pulse)
    except Refused as refused:
        transfers.fail(held, _named(refused, row))
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        log.warning("transfer %s: %s", row.pk, error)
        transfers.fail(held, {"text": DISK_FULL, "params": {}})


def _crashed(error: Exception) -> dict[str, Any]:
    return {"text": WORKER_FAILED, "params": {"kind": type(error).__name__}}


def _quietly(end: Callable[[], None]) -> None:
    try:
        end()
    except LeaseLost:
        log.info("the transfer moved on at the very end")


def _named(refused: Refused, row: Transfer) -> dict[str, Any]:
    """Sentences about the archive name the file as the uploader knows it, not as it lies in the store."""
    stored = refused.as_json()
    if stored["params"].get("name") == row.digest:
        stored["params"] = {**stored["params"], "name": row.file_name}
    return stored


class Pulse:
    """Says how far the work is, keeps the lease, and hears of a cancel or of the worker's end."""

    def __init__(self, held: Held, should_stop: Callable[[], bool]) -> None:
        self.held = held
        self.progress: dict[str, Any] = dict(held.transfer.progress)
        self._should_stop = should_stop
        self._next = 0.0

    def due(self) -> bool:
        """Is it time to tell the page? Then the next time is half a second later."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + PULSE_S
        return True

    def beat(self, phase: str, done: int, of: int) -> None:
        """Call it often. Raises WorkerStopping, LeaseLost."""
        self.progress |= {"phase": phase, "done": done, "of": of}
        if self._should_stop():
            raise WorkerStopping
        if self.due():
            transfers.write(self.held, progress=self.progress)


# ------------------------------------------------------------------------------------------------ in


def _import(held: Held, pulse: Pulse) -> None:
    row = held.transfer
    policies.check_can_receive(row.line, by=row.asked_by)
    reader = _Reader(row, pulse)
    with formats.opened(blobs.path(row.digest)) as archive:
        reader.of = sum(is_picture(name) for name in archive.names())
        pulse.beat("read", 0, reader.of)
        content = transfer_imports.read(archive, row.format, row.line, measure=reader.measure)
    recorder = Recorder(held, pulse, content, reader.infos)
    recorder.record()
    report = recorder.report
    if not report["created"] + report["known"]:
        transfers.fail(held, {"text": NOTHING_USABLE, "params": {"count": report["rows"]}})
        return
    transfers.finish(held)


class _Reader:
    """Checks each picture as every door does and keeps its bytes: bytes first, rows after."""

    def __init__(self, row: Transfer, pulse: Pulse) -> None:
        self._row, self._pulse = row, pulse
        self.infos: dict[str, PictureInfo] = {}
        self.done = self.of = 0

    def measure(self, data: bytes) -> PictureInfo:
        self._pulse.beat("read", self.done, self.of)
        self.done += 1
        digest = hashlib.sha256(data).hexdigest()
        info = self._standing(digest)
        if info is None:
            info = pictures.check_bytes(data)
            blobs.put(data)
        self.infos[digest] = info
        return info

    def _standing(self, digest: str) -> PictureInfo | None:
        """A picture that is here already was checked when it came."""
        if not blobs.exists(digest):
            return None
        found = Capture.objects.filter(digest=digest).only("width", "height", "mode").first()
        return PictureInfo(found.width, found.height, found.mode, "", 1, 8) if found else None


# ------------------------------------------------------------------------------------------------ out


def _export(held: Held, pulse: Pulse) -> None:
    row = held.transfer
    policies.check_can_export(row.line, by=row.asked_by)
    package, digests = exports.package(row.line, row.options, row.snapshot, row.asked_by)
    with_pictures = row.options["with_pictures"]
    missing = {name for name, digest in digests.items() if with_pictures and not blobs.exists(digest)}
    package = formats.Package(package.classes, tuple(p for p in package.pictures if p.name not in missing))
    of = len(package.pictures)
    done = 0

    def picture(name: str) -> Path:
        nonlocal done
        pulse.beat("write", done, of)
        done += 1
        return blobs.path(digests[name])

    pulse.beat("write", 0, of)
    folder = Path(settings.JOBS_ROOT) / f"transfer-{row.pk}"
    shutil.rmtree(folder, ignore_errors=True)  # of a worker that was killed
    folder.mkdir(parents=True)
    try:
        out = folder / "out.zip"
        options = {"first_id": row.options["first_id"]} if row.format == "coco" else {}
        formats.write(package, row.format, pictures=picture if with_pictures else None, out=out, **options)
        size = out.stat().st_size
        digest = blobs.put_file(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    said = [picture.verdict for picture in package.pictures]
    report = {
        "rows": len(digests), "written": of, "decided": of - said.count(None), "undecided": said.count(None),
        "refused": [{"name": name, "text": BYTES_MISSING, "params": {}} for name in sorted(missing)[:1000]],
        "refused_count": len(missing),
    }  # fmt: skip
    progress = pulse.progress | {"done": of, "of": of}
    transfers.finish(held, digest=digest, size_bytes=size, report=report, progress=progress)
