"""The agent: one thread inspects pictures and never waits for the network, the other talks to the server.

Start-up is recovery: everything that matters is on disk before it counts. A thread that fails unexpectedly ends the
whole agent with a trace, for the service manager to start it again; half an agent would be worse than none.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import random
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from edge import __version__
from edge.client import Backoff, Client, Denied, Final, Offline
from edge.config import Home, Settings
from edge.flagging import flag, verdict
from edge.inference import Judgement
from edge.outbox import Outbox, Waiting, capture_id, keep_refused
from edge.pictures import PictureRefused
from edge.protocol import MAX_PICTURE_BYTES, MAX_TEXT, CaptureHeader, CheckIn, CheckInResponse
from edge.releases import Installer, Stopped
from edge.slots import Slot, Slots

log = logging.getLogger(__name__)

_COUNTS = ("inspected", "ok", "ng", "review", "flagged", "refused", "dropped", "audit_dropped")
_TEXTS = ("lot", "serial", "part", "station", "shift", "product")
_SETTLED_S = 1.0  # a picture without a sidecar may still be written by the camera
_IDLE_S = 0.05
_SAVE_S = 1.0


class Agent:
    """One device's agent on one home directory."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._state = home.state()
        self._outbox = Outbox(home.outbox, home.refused, settings.outbox_max_bytes, settings.refused_max_files)
        self._slots = Slots(home, settings)
        self._client = Client(
            settings.server, settings.device, home.key(), timeout_s=settings.timeout_s, ca_file=settings.ca_file
        )
        self._installer = Installer(home, settings, self._state, self._client, self._slots, self._stop)
        self._saved_at = 0.0

    def stop(self) -> None:
        """Ends after the picture at hand; safe from a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Until `stop`. Raises what ended a thread unexpectedly."""
        network = threading.Thread(target=self._guarded, args=(self._network_loop,), name="network")
        try:
            self._slots.recover()
            network.start()
            self._line_loop()
        finally:
            self._stop.set()
            if network.is_alive():
                network.join()
            self._slots.close()
            self._client.close()
            self._save(now=True)
        if self._failure is not None:
            raise self._failure

    def _guarded(self, loop: Any) -> None:
        try:
            loop()
        except Exception as error:  # kept for `run`, which raises it: a silent half of an agent is not left standing
            log.exception("the agent's %s thread failed", threading.current_thread().name)
            self._failure = error
            self._stop.set()

    # The line.

    def _line_loop(self) -> None:
        pace_s = 1.0 / self._settings.rate if self._settings.rate > 0 else 0.0
        next_at = time.monotonic()
        while not self._stop.is_set():
            pictures = self._pictures()
            for picture in pictures:
                if pace_s and self._stop.wait(max(0.0, next_at - time.monotonic())):
                    break
                next_at = max(next_at, time.monotonic() - pace_s) + pace_s
                if self._stop.is_set() or not self._inspect(picture):
                    break
                self._save()
            if not pictures:
                self._save()
                self._stop.wait(_IDLE_S)

    def _pictures(self) -> list[Path]:
        """What the camera has finished, oldest name first."""
        now = time.time()
        found = []
        for path in self._home.inbox.iterdir():
            if path.name.startswith(".") or path.suffix in (".json", ".tmp", ".part") or not path.is_file():
                continue
            if _sidecar(path).exists() or now - path.stat().st_mtime > _SETTLED_S:
                found.append(path)
        return sorted(found)

    def _inspect(self, picture: Path) -> bool:
        """One picture from the camera folder to verdict, flag and outbox. False when the disk is full: it stays."""
        size = picture.stat().st_size
        if size > MAX_PICTURE_BYTES:
            return self._refuse(picture, {"error": "too_large", "bytes": size})
        data = picture.read_bytes()
        try:
            judged = self._slots.judge(data)
        except PictureRefused as refused:
            return self._refuse(picture, {"error": refused.code, "params": refused.params})
        said = verdict(judged[0].score, judged[2]) if judged else None
        with self._state.lock:
            index, asked = self._state.counts.get("inspected", 0), self._state.flag_next > 0
            rate = self._state.audit_rate
        flagged = flag(said, device=self._settings.device, index=index, audit_rate=rate, asked=asked)
        if flagged is not None:
            prediction = _prediction(*judged, said or "") if judged else None
            header = {
                **self._facts(picture),
                "digest": hashlib.sha256(data).hexdigest(),
                "bytes": len(data),
                "reason": flagged.reason,
                "sampling_weight": flagged.sampling_weight,
                "prediction": prediction,
            }
            if not self._keep(picture.name, header, data):
                return False
        with self._state.lock:
            self._state.count("inspected")
            if said is not None:
                self._state.count(said.lower())
            if flagged is not None:
                self._state.count("flagged")
            if asked:
                self._state.flag_next -= 1
        self._clear(picture)
        return True

    def _keep(self, name: str, header: dict[str, Any], data: bytes) -> bool:
        capture = capture_id(self._settings.device, name, header["digest"], header["taken_at"])
        while True:
            try:
                self._outbox.put(capture, header, data)
                return True
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                if not self._outbox.drop_one():
                    log.error("the disk is full and the outbox empty: pictures wait in the camera folder")
                    self._stop.wait(1.0)
                    return False

    def _refuse(self, picture: Path, answer: dict[str, Any]) -> bool:
        log.warning("cannot inspect %s: %s", picture.name, answer)
        keep_refused(self._home.refused, picture, answer, self._settings.refused_max_files)
        with self._state.lock:
            self._state.count("inspected", "refused")
        self._clear(picture)
        return True

    def _clear(self, picture: Path) -> None:
        # Picture first: a sidecar alone is harmless, a picture alone would be inspected again without its lot.
        picture.unlink(missing_ok=True)
        _sidecar(picture).unlink(missing_ok=True)

    def _facts(self, picture: Path) -> dict[str, str]:
        """What the line says about the part: from the sidecar, else what the file itself tells."""
        try:
            values = json.loads(_sidecar(picture).read_bytes())
        except (FileNotFoundError, ValueError):
            values = {}
        if not isinstance(values, dict):
            values = {}
        facts = {name: str(values.get(name) or "")[:MAX_TEXT] for name in _TEXTS}
        facts["station"] = facts["station"] or self._settings.station
        facts["taken_at"] = _time(values.get("taken_at"), picture.stat().st_mtime)
        return facts

    def _save(self, now: bool = False) -> None:
        if now or time.monotonic() - self._saved_at > _SAVE_S:
            with self._state.lock:
                for reason, number in self._outbox.take_dropped().items():
                    self._state.count("dropped", by=number)
                    if reason == "audit":
                        self._state.count("audit_dropped", by=number)
                self._state.running = {**self._slots.running(), "outbox": self._outbox.waiting()[0]}
                self._home.save_state(self._state)
            self._saved_at = time.monotonic()

    # The network.

    def _network_loop(self) -> None:
        backoff = Backoff(max_s=self._settings.backoff_max_s)
        next_check_in = 0.0
        while not self._stop.is_set():
            wait_s = 0.0
            try:
                self._installer.tell_fall_backs()
                self._installer.reporter.flush()
                if time.monotonic() >= next_check_in:
                    answer = self._check_in()
                    poll_s = self._take_policy(answer)
                    next_check_in = time.monotonic() + poll_s * random.uniform(0.9, 1.1)
                    self._installer.consider(answer.get("assignment"))
                elif not self._send_one():
                    wait_s = min(0.1, max(0.0, next_check_in - time.monotonic()))
                backoff.success()
            except Offline as error:
                wait_s = backoff.next_s(error.retry_after_s)
                log.warning("offline (%s), next try in %.1f s, %d wait", error, wait_s, self._outbox.waiting()[0])
            except Denied as error:
                wait_s = backoff.next_s(self._settings.poll_s)
                log.error("the server does not know this device: %s", error)
            except Final as error:
                wait_s = backoff.next_s(self._settings.poll_s)
                log.error("the server does not take what this agent says: %s", error)
            except Stopped:
                return
            self._stop.wait(wait_s)

    def _check_in(self) -> CheckInResponse:
        self._save(now=True)  # totals that were told must not be smaller after a power cut
        waiting, size = self._outbox.waiting()
        with self._state.lock:
            body = {
                "running": self._slots.running(),
                "counts": {name: self._state.counts.get(name, 0) for name in _COUNTS},
                "outbox": {"waiting": waiting, "bytes": size},
                "free_bytes": self._home.free_bytes(),
                "agent_version": __version__,
                "taken_at": _time(None, time.time()),
            }
        return self._client.check_in(cast(CheckIn, body))

    def _take_policy(self, answer: CheckInResponse) -> float:
        """Remembers the policy; seconds until the next check-in."""
        fields: dict[str, Any] = dict(answer)
        policy: dict[str, Any] = fields.get("policy") or {}
        poll_s = fields.get("poll_s") or self._settings.poll_s
        with self._state.lock:
            rate = policy.get("audit_rate", self._state.audit_rate)
            self._state.audit_rate = min(1.0, max(0.0, float(rate)))
            # Said once by the server, so 0 does not take back what is still to come.
            self._state.flag_next = max(self._state.flag_next, int(policy.get("flag_next", 0)))
            self._state.last_contact = _time(None, time.time())
            self._state.poll_s = min(3600.0, max(0.2, float(poll_s)))
            return self._state.poll_s

    def _send_one(self) -> bool:
        """The oldest capture to the server; False when none waits. Raises Offline, Denied: it stays."""
        waiting = self._outbox.first()
        if waiting is None:
            return False
        try:
            header = cast(CaptureHeader, self._outbox.header(waiting))
            self._client.put_capture(waiting.id, header, self._outbox.picture(waiting))
        except Final as error:
            self._server_refused(waiting, error)
        except Offline:
            self._outbox.postpone(waiting)
            raise
        except FileNotFoundError:
            if self._outbox.holds(waiting):
                raise  # somebody else removed it; else it was dropped for room while it was being sent
        else:
            self._outbox.done(waiting)
        return True

    def _server_refused(self, waiting: Waiting, error: Final) -> None:
        log.warning("the server refuses %s: %s", waiting.id, error)
        answer = {"status": error.status, "error": error.code, "sentence": error.sentence}
        self._outbox.refuse(waiting, answer)
        with self._state.lock:
            self._state.count("refused")


def _prediction(judgement: Judgement, slot: Slot, thresholds: dict[str, float], said: str) -> dict[str, Any]:
    return {
        "release_number": slot.number,
        "verdict": said,
        "score": round(judgement.score, 6),
        "probabilities": judgement.probabilities,
        "thresholds": thresholds,
        "map": judgement.map,
    }


def _sidecar(picture: Path) -> Path:
    return picture.with_name(f"{picture.name}.json")


def _time(text: Any, otherwise: float) -> str:
    """ISO 8601 with offset; a time without one is the device's local time."""
    if isinstance(text, str) and text:
        try:
            return datetime.fromisoformat(text).astimezone().isoformat()
        except (ValueError, OverflowError):
            log.debug("not a time: %r", text)
    return datetime.fromtimestamp(otherwise, UTC).astimezone().isoformat()
