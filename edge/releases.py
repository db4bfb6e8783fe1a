"""Bringing a release onto the device: fetch by digest, prove, swap, watch, report; or leave the old one running.

Every step may be cut by a power loss or by the network and is simply done again: what is on disk and proven is not
fetched twice, reports wait on disk, and the deployment's sequence only rises.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from edge.client import Client, Denied, Final, Offline
from edge.config import Deployment, Home, Settings, State, sync_folder
from edge.inference import EngineDied
from edge.manifest import MAX_MANIFEST_BYTES, ReleaseRefused, files_of, is_digest, parse_manifest
from edge.protocol import Assignment, Report
from edge.slots import Slot, Slots

log = logging.getLogger(__name__)

_ENDED = ("COMMITTED", "REFUSED", "FAILED", "FELL_BACK")
_ASK_AGAIN_S = 30.0


class Stopped(Exception):
    """The agent is told to stop; nothing is reported, the next start goes on."""


class NotWanted(Exception):
    """The server withdrew the deployment while it was being prepared."""


class Failed(Exception):
    """The release could not be brought here; it says nothing about its content."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(f"{code} {params}")
        self.code = code
        self.params = params


class Reporter:
    """Reports in order, kept in state.json until the server has them."""

    def __init__(self, home: Home, state: State, client: Client) -> None:
        self._home = home
        self._state = state
        self._client = client

    def add(
        self, state: str, *, code: str = "", params: dict[str, Any] | None = None, loaded: str | None = None
    ) -> None:
        """Queues a report about the present deployment."""
        with self._state.lock:
            deployment = self._state.deployment
            deployment.sequence += 1
            deployment.reported, deployment.code, deployment.params = state, code, params or {}
            report = {
                "deployment": deployment.id,
                "sequence": deployment.sequence,
                "state": state,
                "code": code,
                "params": deployment.params,
                "loaded_digest": loaded,
                "delivered_bytes": deployment.delivered_bytes,
                "base_bytes": deployment.base_bytes,
                "max_abs": deployment.max_abs,
            }
            self._state.reports.append(report)
            self._home.save_state(self._state)
        log.info("deployment %s: %s %s", deployment.id, state, code)

    def flush(self) -> bool:
        """Sends what waits; the server's last word on whether the deployment is wanted. Raises Offline, Denied."""
        wanted = True
        while self._state.reports:
            report: Report = self._state.reports[0]  # type: ignore[assignment]
            try:
                wanted = bool(self._client.report(report).get("wanted", True))
            except Final as error:
                log.error("the server does not take report %s: %s", report, error)
                wanted = False
            with self._state.lock:
                self._state.reports.pop(0)
                self._home.save_state(self._state)
        return wanted


class Installer:
    """Follows assignments, one at a time. Used by the network thread only."""

    def __init__(
        self, home: Home, settings: Settings, state: State, client: Client, slots: Slots, stop: threading.Event
    ) -> None:
        self._home = home
        self._settings = settings
        self._state = state
        self._client = client
        self._slots = slots
        self._stop = stop
        self.reporter = Reporter(home, state, client)
        self._not_before: dict[str, float] = {}

    def consider(self, assignment: Assignment | None) -> None:
        """Does what the assignment asks, or nothing. Raises Offline or Denied when the network ends it: asked again."""
        self.tell_fall_backs()
        slot = self._slots.pointer.current
        if slot is not None and self._slots.on_probation(slot):
            self._watch(slot)  # a restart cut it; settled first, whatever is wanted by now
        if assignment is None or not self._is_sound(assignment):
            return
        deployment = self._take_up(assignment)
        lost = deployment.reported == "COMMITTED" and self._slots.pointer.current is None
        if deployment.reported in _ENDED and not lost:
            self._say_again(assignment, deployment)
            return
        if time.monotonic() < self._not_before.get(deployment.id, 0.0):
            return
        slot = self._slots.pointer.current
        if slot is not None and (slot.deployment, slot.digest) == (deployment.id, assignment["manifest_digest"]):
            self._watch(slot)  # a restart cut the report about it
            return
        try:
            self._install(assignment, deployment)
        except ReleaseRefused as refused:
            self.reporter.add("REFUSED", code=refused.code, params=refused.params)
            self._slots.tidy()
        except Failed as failed:
            self.reporter.add("FAILED", code=failed.code, params=failed.params)
        except EngineDied as died:
            self.reporter.add("FAILED", code="child_died", params={"detail": str(died)})
        except NotWanted:
            log.info("deployment %s is not wanted any more", deployment.id)
            self._not_before[deployment.id] = time.monotonic() + _ASK_AGAIN_S
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.reporter.add("FAILED", code="disk_full", params={"free_bytes": self._home.free_bytes()})
            self._slots.tidy()
        finally:
            self.tell_fall_backs()
        self.reporter.flush()

    def _is_sound(self, assignment: Assignment) -> bool:
        sound = is_digest(assignment.get("manifest_digest")) and all(
            isinstance(assignment.get(name), int) for name in ("release_number", "manifest_bytes", "sequence")
        )
        if not sound:
            log.error("the assignment makes no sense: %s", assignment)
        return sound

    def _take_up(self, assignment: Assignment) -> Deployment:
        with self._state.lock:
            if self._state.deployment.id != assignment["deployment"]:
                self._state.deployment = Deployment(id=assignment["deployment"], sequence=assignment["sequence"])
            deployment = self._state.deployment
            deployment.sequence = max(deployment.sequence, assignment["sequence"])
            return deployment

    def _say_again(self, assignment: Assignment, deployment: Deployment) -> None:
        """The server still asks although it was told: it lost the report (a restored backup). Tell it once more."""
        lost = assignment["sequence"] < deployment.sequence and not self._state.reports
        if not lost or time.monotonic() < self._not_before.get(deployment.id, 0.0):
            return
        self._not_before[deployment.id] = time.monotonic() + _ASK_AGAIN_S
        loaded = self._slots.running()["release_digest"] if deployment.reported == "COMMITTED" else None
        self.reporter.add(deployment.reported, code=deployment.code, params=deployment.params, loaded=loaded)
        self.reporter.flush()

    def _install(self, assignment: Assignment, deployment: Deployment) -> None:
        pointer = self._slots.pointer
        number, digest = assignment["release_number"], assignment["manifest_digest"]
        if number < pointer.highest_number or (number == pointer.highest_number and digest != pointer.highest_digest):
            raise ReleaseRefused("release_number_falls", number=number, highest=pointer.highest_number)
        self._step("DOWNLOADING", before=("VERIFIED", "STAGED"))
        manifest = self._fetch_release(assignment, deployment)
        self._step("VERIFIED", before=("STAGED",))
        slot = Slot(digest, number, manifest["base"]["digest"], deployment.id)
        engine = self._slots.start(slot)
        deployment.max_abs = engine.max_abs
        try:
            self.reporter.add("STAGED", loaded=engine.digest)
            if not self.reporter.flush():  # the last question before the line runs it
                raise NotWanted
            self._slots.activate(slot, engine)
        except BaseException:
            engine.close()
            raise
        self._watch(slot)

    def _step(self, state: str, before: tuple[str, ...]) -> None:
        """Reports going forward only: after a restart the same steps are done again, not told again."""
        if self._state.deployment.reported not in (state, *before):
            self.reporter.add(state)
        if not self.reporter.flush():
            raise NotWanted

    def _watch(self, slot: Slot) -> None:
        """Probation: some pictures of the line, or some seconds where it stands still, then golden vectors again."""
        if self._slots.on_probation(slot):
            if self._state.deployment.reported != "PROBATION":
                self._tell(slot, "PROBATION")
            deadline = time.monotonic() + self._settings.probation_s
            while self._slots.on_probation(slot) and time.monotonic() < deadline:
                if self._slots.judged() >= self._settings.probation_frames:
                    break
                if self._stop.wait(0.05):
                    raise Stopped
            try:
                self._state.deployment.max_abs = self._slots.commit(slot)
            except (ReleaseRefused, EngineDied) as error:
                code, params = (error.code, error.params) if isinstance(error, ReleaseRefused) else ("child_died", {})
                self._slots.fall_back(slot, code, params)
        self.tell_fall_backs()
        if self._slots.pointer.current == slot:
            self._slots.tidy()
            if self._state.deployment.reported not in _ENDED:
                self._tell(slot, "COMMITTED")

    def _tell(self, slot: Slot, state: str) -> None:
        """Reports about the running release; probation does not wait for the network, the report does."""
        if self._state.deployment.id != slot.deployment:
            log.warning("nothing is known about deployment %s any more: %s is not reported", slot.deployment, state)
            return
        self.reporter.add(state, loaded=self._slots.running()["release_digest"])
        try:
            self.reporter.flush()
        except (Offline, Denied) as error:
            log.warning("%s is reported later: %s", state, error)

    def tell_fall_backs(self) -> None:
        """Turns what the slots did by themselves into reports, also about a deployment that ended long ago."""
        for deployment, code, params in self._slots.pointer.fell_back:
            with self._state.lock:
                if self._state.deployment.id == deployment and self._state.deployment.reported != "FELL_BACK":
                    loaded = self._slots.running()["release_digest"]
                    self.reporter.add("FELL_BACK", code=code, params=params, loaded=loaded)
            self._slots.told(deployment)

    def _fetch_release(self, assignment: Assignment, deployment: Deployment) -> dict[str, Any]:
        """All files of the release and, where missing, of its base; each proven by digest. Returns the manifest."""
        if not 0 < assignment["manifest_bytes"] <= MAX_MANIFEST_BYTES:
            raise ReleaseRefused("manifest_invalid", field="manifest_bytes")
        folder = self._home.releases / assignment["manifest_digest"]
        manifest_file = folder / "manifest.json"
        self._fetch(manifest_file, assignment["manifest_digest"], assignment["manifest_bytes"], deployment)
        manifest = parse_manifest(manifest_file.read_bytes())
        parts, base = files_of(manifest)
        base_folder = self._home.bases / manifest["base"]["digest"]
        missing = [size for name, (_, size) in parts.items() if not (folder / name).exists()]
        missing += [size for name, (_, size) in base.items() if not (base_folder / name).exists()]
        if missing and sum(missing) + self._settings.keep_free_bytes > self._home.free_bytes():
            raise Failed("disk_full", needed_bytes=sum(missing), free_bytes=self._home.free_bytes())
        for name, (digest, size) in base.items():
            self._fetch(base_folder / name, digest, size, deployment)
        for name, (digest, size) in parts.items():
            self._fetch(folder / name, digest, size, deployment)
        return manifest

    def _fetch(self, path: Path, digest: str, size: int, deployment: Deployment) -> None:
        """The file under its digest, unless it is here. Raises ReleaseRefused, Failed, Offline."""
        if path.exists():
            if _digest_of(path) == digest:
                return
            log.warning("%s is damaged on this disk, fetched again", path.name)
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = path.with_name(f".{path.name}.{digest[:16]}.part")
        for last in (False, True):
            self._download(temp, digest, size, deployment, of_base=path.parent.parent == self._home.bases)
            if _digest_of(temp) == digest:
                break
            temp.unlink()
            if last:  # twice the same wrong bytes are not the network's fault
                raise ReleaseRefused("digest_mismatch", file=path.name)
        os.replace(temp, path)
        sync_folder(path.parent)

    def _download(self, temp: Path, digest: str, size: int, deployment: Deployment, *, of_base: bool) -> None:
        """Appends to what a cut download left; stops at the declared length; counts the bytes that travel."""
        have = temp.stat().st_size if temp.exists() else 0
        if have >= size:
            temp.unlink()
            have = 0
        try:
            with self._client.blob(digest, have) as (offset, chunks), open(temp, "ab" if offset else "wb") as out:
                length = offset
                for chunk in chunks:
                    if of_base:
                        deployment.base_bytes += len(chunk)
                    else:
                        deployment.delivered_bytes += len(chunk)
                    length += len(chunk)
                    if length > size:
                        raise ReleaseRefused("too_long", file=temp.name.split(".")[1], declared=size)
                    out.write(chunk)
                    if self._stop.is_set():
                        raise Stopped
                out.flush()
                os.fsync(out.fileno())
        except ReleaseRefused:
            temp.unlink(missing_ok=True)
            raise
        except Final as error:
            raise Failed("not_found", status=error.status, digest=digest) from error


def _digest_of(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
