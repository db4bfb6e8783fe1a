"""A line with people and real (tiny) pictures for the tests of training."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from registry import bases, lines
from registry.models import Device, Line, Site, Station
from tests.registry import out_files
from tests.registry.plant import person
from training import captures
from training.models import Capture

if TYPE_CHECKING:
    from pathlib import Path

    from console.models import User

SET_UP = "command:test"
RULE = {"val_share": 0.3, "test_share": 0.0, "seed": 0}
_seeds = itertools.count()


def picture(seed: int | None = None, *, width: int = 24, height: int = 16) -> bytes:
    """A PNG of noise; every call without a seed gives other bytes."""
    number = next(_seeds) + 10_000 if seed is None else seed
    noise = np.random.default_rng(number).integers(0, 255, (height, width, 3)).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "PNG")
    return out.getvalue()


@dataclass
class Plant:
    line: Line
    station: Station
    haneul: User
    seoyeon: User
    viewer: User

    def capture(self, *, lot: str = "", data: bytes | None = None, **meta: Any) -> Capture:
        """A new capture in the queue."""
        made, _ = captures.import_one(self.line, data or picture(), {"lot": lot, **meta}, by=SET_UP)
        return made

    def decided(self, label: int, *, lot: str = "", by: User | None = None, **meta: Any) -> Capture:
        """A capture with a decision: class number `label`, 0 = OK."""
        made = self.capture(lot=lot, **meta)
        classes = [label] if label else []
        captures.decide(made, verdict="NG" if label else "OK", classes=classes, by=by or self.haneul)
        return made

    def lots(self, count: int, *, labels: tuple[int, ...] = (0, 0, 1), **meta: Any) -> list[Capture]:
        """`count` lots, each with one picture per label."""
        prefix = f"L{next(_seeds)}"
        return [self.decided(label, lot=f"{prefix}-{lot:02d}", **meta) for lot in range(count) for label in labels]

    def device(self, code: str = "el-1-01") -> Device:
        return Device.objects.create(line=self.line, station=self.station, code=code, state=Device.State.ACTIVE)


def make(*, code: str = "el-1") -> Plant:
    site, _ = Site.objects.get_or_create(code="site", defaults={"name": "Site"})
    line = lines.create_line(site, code=code, name="EL 1", product="cells", escape_limit=0.1, by=SET_UP)
    lines.add_class(line, code="crack", name_ko="균열", name_en="crack", by=SET_UP)
    return Plant(
        line=line,
        station=lines.add_station(line, code="s1", name="Station 1", by=SET_UP),
        haneul=person(f"haneul-{code}", line, "engineer"),
        seoyeon=person(f"seoyeon-{code}", line, "engineer"),
        viewer=person(f"viewer-{code}", line, "viewer"),
    )


def import_base(folder: Path) -> Any:
    """The tiny base model, stored."""
    out_files.write_base(folder)
    return bases.import_bundle(folder, by=SET_UP)
