"""The sample pictures: electroluminescence pictures of solar cells from the `elpv-dataset` package (CC BY-NC-SA 4.0).

Every cell gets a lot (a contiguous run, so that a split by lot means something), a serial, a station and a time; lots
are dealt into roles once, by a fixed seed, so that no lot is ever in two of them.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path

CREDIT = (
    "Sample pictures: elpv-dataset, CC BY-NC-SA 4.0, not for commercial use, unchanged "
    "(Buerhop-Lutz et al. 2018, Deitsch et al. 2019 and 2021)"
)
CELLS_PER_LOT = 12
STATIONS = ("S1", "S2", "S3")
DOUBTFUL = 0.33  # the labellers' "probably fine": what reviewers argue about, left out of every truth set


@dataclass(frozen=True)
class Size:
    """Lots per role and product. What is left over is history (mono) or arrives (poly), up to a limit."""

    golden: int
    held_out: dict[str, int]
    limit: dict[str, int]


WHOLE = Size(golden=10, held_out={"mono": 18, "poly": 26}, limit={"mono": 1000, "poly": 1000})
SMALL = Size(golden=3, held_out={"mono": 4, "poly": 4}, limit={"mono": 14, "poly": 12})


@dataclass(frozen=True)
class Cell:
    """One picture. `role`: history, arrival, golden, era1 or era2; `label`: 0 OK, 1 defect, None doubtful."""

    path: Path
    product: str
    probability: float
    lot: str
    serial: str
    station: str
    taken_at: datetime
    role: str

    @property
    def label(self) -> int | None:
        return None if round(self.probability, 2) == DOUBTFUL else int(self.probability > 0.5)

    @property
    def shift(self) -> str:
        """Plant time, three shifts of eight hours from 06:00."""
        return "ABC"[((self.taken_at.hour - 6) % 24) // 8]


def load(*, day_zero: datetime, size: Size = WHOLE, seed: int = 0) -> list[Cell]:
    """The cells in production order: mono over the three weeks before `day_zero`, poly from `day_zero` on."""
    folder = Path(str(resources.files("elpv_dataset"))) / "data"
    rows: dict[str, list[tuple[Path, float]]] = {"mono": [], "poly": []}
    with (folder / "labels.csv").open() as lines:
        for name, doubt, product in (line.split() for line in lines if line.strip()):
            rows[product].append((folder / name, float(doubt)))
    cells: list[Cell] = []
    for product, pictures in rows.items():
        roles = _deal(product, -(-len(pictures) // CELLS_PER_LOT), size, seed)
        start = day_zero - timedelta(days=21) if product == "mono" else day_zero
        pause = timedelta(days=20) / len(pictures) if product == "mono" else timedelta(seconds=40)
        for index, (path, probability) in enumerate(pictures):
            lot = index // CELLS_PER_LOT
            if roles[lot] == "unused":
                continue
            cells.append(
                Cell(
                    path=path,
                    product=product,
                    probability=probability,
                    lot=f"{product[0].upper()}{lot + 1:03d}",
                    serial=f"{product[0].upper()}{lot + 1:03d}-{index % CELLS_PER_LOT + 1:02d}",
                    station=STATIONS[lot % len(STATIONS)],
                    taken_at=start + index * pause,
                    role=roles[lot],
                )
            )
    return cells


def _deal(product: str, lots: int, size: Size, seed: int) -> list[str]:
    """A role for each lot of a product."""
    order = list(range(lots))
    random.Random(f"{seed}-{product}").shuffle(order)
    held_out = size.held_out[product]
    roles = ["unused"] * lots
    for place, lot in enumerate(order):
        if place < size.golden:
            roles[lot] = "golden"
        elif place < size.golden + held_out:
            roles[lot] = "era1" if product == "mono" else "era2"
        elif place < size.golden + held_out + size.limit[product]:
            roles[lot] = "history" if product == "mono" else "arrival"
    return roles


def write_feed(cells: list[Cell], manifest: Path) -> int:
    """The manifest that a simulated camera replays (pictures are taken when replayed); returns how many."""
    manifest.parent.mkdir(parents=True, exist_ok=True)
    with manifest.open("w", newline="") as out:
        writer = csv.DictWriter(out, ("image", "lot", "serial", "station", "product"))
        writer.writeheader()
        for cell in cells:
            writer.writerow(
                {
                    "image": str(cell.path),
                    "lot": cell.lot,
                    "serial": cell.serial,
                    "station": cell.station,
                    "product": cell.product,
                }
            )
    return len(cells)
