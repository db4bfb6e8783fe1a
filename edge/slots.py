"""Which release runs, on disk and in memory: the pointer, the engine behind it, and the way back.

The pointer file is the one truth after a restart. A swap is its rename; until the new release is committed the old
engine stays warm, so that falling back costs the line no picture.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from edge.config import Home, Settings, write_json
from edge.inference import Engine, EngineDied, Judgement
from edge.manifest import ReleaseRefused

log = logging.getLogger(__name__)

_DEATHS, _DEATHS_WITHIN_S = 3, 60.0


@dataclass(frozen=True)
class Slot:
    """One installed release: `digest` of its manifest, `number` and `deployment` under which it came."""

    digest: str
    number: int
    base_digest: str
    deployment: str


@dataclass(frozen=True)
class Pointer:
    """`releases/pointer.json`. `highest_number` never falls, also not after falling back; no two releases share one.

    `fell_back` has (deployment, code, params) that the server has not been told: written with the fall itself.
    """

    current: Slot | None = None
    previous: Slot | None = None
    committed: bool = True
    highest_number: int = 0
    highest_digest: str = ""
    fell_back: tuple[tuple[str, str, dict[str, Any]], ...] = ()

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Pointer:
        slots = {name: Slot(**values[name]) if values.get(name) else None for name in ("current", "previous")}
        fell_back = tuple((deployment, code, params) for deployment, code, params in values["fell_back"])
        return cls(**{**values, **slots, "fell_back": fell_back})


class Slots:
    """Thread-safe: judging and swapping exclude each other."""

    def __init__(self, home: Home, settings: Settings) -> None:
        self._home = home
        self._settings = settings
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._spare: Engine | None = None
        self._deaths: list[float] = []
        self.pointer = self._read_pointer()

    def _read_pointer(self) -> Pointer:
        try:
            return Pointer.from_json(json.loads(self._home.pointer_file.read_bytes()))
        except FileNotFoundError:
            return Pointer()

    def start(self, slot: Slot) -> Engine:
        """A new child with this release, proven on its golden vectors. Raises ReleaseRefused, EngineDied."""
        base, release = self._home.bases / slot.base_digest, self._home.releases / slot.digest
        engine = Engine.start(base, release, slot.digest, self._settings, self._home.log_file)
        log.info("release %s loaded in %.0f ms, golden within %.1e", slot.digest[:12], engine.load_ms, engine.max_abs)
        return engine

    def recover(self) -> None:
        """After a start: loads what the pointer names; what does not load any more gives way to the release before."""
        with self._lock:
            if self.pointer.current is None:
                return
            try:
                self._engine = self._start_patiently(self.pointer.current)
            except (ReleaseRefused, EngineDied) as error:
                self._go_back(*_reason(error))

    def judge(self, picture: bytes) -> tuple[Judgement, Slot, dict[str, float]] | None:
        """The running release's judgement with its slot and thresholds; None when this picture has no model.

        A child that dies over a picture is replaced and the picture tried once more: by the release before when the new
        one is on probation. Raises PictureRefused.
        """
        with self._lock:
            for _ in range(2):
                if self._engine is None or self.pointer.current is None:
                    return None
                try:
                    judgement = self._engine.judge(picture)
                    return judgement, self.pointer.current, self._engine.manifest["thresholds"]
                except EngineDied as error:
                    log.error("inference process of %s died: %s", self.pointer.current.digest[:12], error)
                    self._replace_dead()
            return None

    def _replace_dead(self) -> None:
        now = time.monotonic()
        self._deaths = [t for t in self._deaths if now - t < _DEATHS_WITHIN_S] + [now]
        self._engine = None
        assert self.pointer.current is not None
        if not self.pointer.committed or len(self._deaths) >= _DEATHS:
            self._go_back("child_died", {"deaths": len(self._deaths)})
            return
        try:
            self._engine = self.start(self.pointer.current)
        except (ReleaseRefused, EngineDied) as error:
            self._go_back(*_reason(error))

    def activate(self, slot: Slot, engine: Engine) -> None:
        """The atomic swap, between two pictures. The release is on probation until `commit`."""
        with self._lock:
            settled = self.pointer.committed
            previous = self.pointer.current if settled else self.pointer.previous
            self._write(Pointer(slot, previous, False, slot.number, slot.digest, self.pointer.fell_back))
            unneeded = self._spare if settled else self._engine
            if settled:
                self._spare = self._engine
            self._engine = engine
            if unneeded is not None:
                unneeded.close()
            self._deaths = []

    def on_probation(self, slot: Slot) -> bool:
        """False once the release was committed or fell back."""
        with self._lock:
            return self.pointer.current == slot and not self.pointer.committed

    def judged(self) -> int:
        with self._lock:
            return self._engine.judged if self._engine is not None else 0

    def commit(self, slot: Slot) -> float:
        """Golden vectors once more in the child as it stands, then the old engine goes. Raises as `start`."""
        with self._lock:
            if self.pointer.current != slot or self._engine is None:
                raise EngineDied("it fell back meanwhile")
            max_abs = self._engine.check_golden()
            self._write(replace(self.pointer, committed=True))
            if self._spare is not None:
                self._spare.close()
                self._spare = None
            return max_abs

    def fall_back(self, slot: Slot, code: str, params: dict[str, Any]) -> None:
        """Back to the release before, if `slot` still runs."""
        with self._lock:
            if self.pointer.current == slot:
                self._go_back(code, params)

    def _go_back(self, code: str, params: dict[str, Any]) -> None:
        """Under the lock. Pointer first: a crash right after must not load the bad release again."""
        bad, back = self.pointer.current, self.pointer.previous
        assert bad is not None
        log.error("release %s falls back: %s %s", bad.digest[:12], code, params)
        told = (*self.pointer.fell_back, (bad.deployment, code, params))
        self._write(replace(self.pointer, current=back, previous=None, committed=True, fell_back=told))
        if self._engine is not None:
            self._engine.close()
        self._engine, self._spare = self._spare, None
        self._deaths = []
        if back is None or self._engine is not None:
            return
        try:
            self._engine = self._start_patiently(back)
        except (ReleaseRefused, EngineDied) as error:
            log.error("release %s does not load either: %s; running without a release", back.digest[:12], error)
            told = (*self.pointer.fell_back, (back.deployment, *_reason(error)))
            self._write(replace(self.pointer, current=None, fell_back=told))

    def told(self, deployment: str) -> None:
        """The fall of this deployment is in a report."""
        with self._lock:
            left = tuple(fall for fall in self.pointer.fell_back if fall[0] != deployment)
            self._write(replace(self.pointer, fell_back=left))

    def _start_patiently(self, slot: Slot) -> Engine:
        """A child that dies or dawdles on a busy machine gets a second chance; a refusal is final."""
        try:
            return self.start(slot)
        except EngineDied as error:
            log.warning("release %s did not load (%s), once more", slot.digest[:12], error)
            return self.start(slot)

    def tidy(self) -> None:
        """Removes releases and bases that neither the running nor the previous release needs."""
        with self._lock:
            kept = [slot for slot in (self.pointer.current, self.pointer.previous) if slot is not None]
            for folder, names in (
                (self._home.releases, {slot.digest for slot in kept}),
                (self._home.bases, {slot.base_digest for slot in kept}),
            ):
                for child in folder.iterdir():
                    if child.is_dir() and child.name not in names:
                        shutil.rmtree(child)

    def running(self) -> dict[str, Any]:
        """What really runs: the digest that the child reported for the bytes it loaded."""
        with self._lock:
            slot, engine = self.pointer.current, self._engine
            if slot is None or engine is None:
                return {"release_digest": None, "release_number": None, "base_digest": None}
            return {
                "release_digest": engine.digest,
                "release_number": slot.number,
                "base_digest": engine.manifest["base"]["digest"],
            }

    def close(self) -> None:
        with self._lock:
            for engine in (self._engine, self._spare):
                if engine is not None:
                    engine.close()
            self._engine = self._spare = None

    def _write(self, pointer: Pointer) -> None:
        write_json(self._home.pointer_file, asdict(pointer))
        self.pointer = pointer


def _reason(error: ReleaseRefused | EngineDied) -> tuple[str, dict[str, Any]]:
    if isinstance(error, ReleaseRefused):
        return error.code, error.params
    return "child_died", {"detail": str(error)}
