"""One of everything that a page can show, made by the domain's own verbs on real rows and real (tiny) files."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from PIL import Image, ImageDraw

from console.models import Membership, User
from registry import deployments, lines, rollouts
from registry.models import Device, Line, Site
from tests.registry import plant as records
from tests.registry.out_files import figures
from training import captures, golden, jobs, snapshots
from training.models import Job, JobPoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from registry.models import Promotion, Release, Rollout, Version
    from tests.registry.plant import Plant
    from training.models import Capture, Snapshot

RULE = {"val_share": 0.3, "test_share": 0.0, "seed": 0}


def cell(seed: int, *, cracked: bool) -> bytes:
    """A grey solar cell with bus bars, and a dark crack when it has one."""
    image = Image.new("L", (96, 96), 120 + seed % 40)
    draw = ImageDraw.Draw(image)
    for bar in (24, 48, 72):
        draw.line((0, bar, 96, bar), fill=60, width=2)
    if cracked:
        draw.line((seed % 60, 10, 40 + seed % 50, 88), fill=20, width=3)
    draw.point((seed % 96, seed // 96 % 96), fill=255)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


@dataclass
class World:
    """The plant of the record's tests, with pictures, and people of a second line who must see nothing of the first."""

    plant: Plant
    viewer: User
    stranger: User
    other_line: Line
    lots: Iterator[int] = field(default_factory=itertools.count)

    @property
    def line(self) -> Line:
        return self.plant.line

    def decided(self, number: int, label: int, *, lot: str) -> Capture:
        made, _ = captures.import_one(
            self.line,
            cell(number, cracked=bool(label)),
            {"lot": lot, "serial": f"{lot}-{number:03d}", "product": "mono"},
            by=records.SET_UP,
        )
        verdict = "NG" if label else "OK"
        captures.decide(made, verdict=verdict, classes=[label] if label else [], by=self.plant.engineer)
        return made

    def pictures(self, lots: int = 4) -> list[Capture]:
        """New lots of three decided pictures each: two OK, one crack."""
        numbers = [next(self.lots) for _ in range(lots)]
        return [
            self.decided(10 * lot + n, label, lot=f"L{lot:02d}") for lot in numbers for n, label in enumerate((0, 0, 1))
        ]

    def golden_set(self) -> list[Capture]:
        rows = self.pictures(3)
        golden.create(
            self.line,
            code="golden",
            name_ko="마스터 샘플",
            name_en="master sample",
            captures=[(row, n % 3 // 2) for n, row in enumerate(rows)],
            owner=self.plant.engineer,
            expires_at=timezone.now() + timedelta(days=90),
            leads=True,
            by=self.plant.engineer,
        )
        return rows

    def snapshot(self) -> Snapshot:
        self.pictures()
        return snapshots.freeze(self.line, RULE, by=self.plant.engineer)

    def job(self, **overrides: Any) -> Job:
        return jobs.submit(self.snapshot(), mode="fresh", config_overrides=overrides, by=self.plant.engineer)

    def running(self, epochs: int = 3) -> Job:
        """A job in the middle of its training, with a curve."""
        job = self.job()
        point(job, epochs=epochs)
        Job.objects.filter(pk=job.pk).update(
            state=Job.State.RUNNING,
            started_at=timezone.now(),
            fence=1,
            progress={
                "phase": "train",
                "done": 10 * epochs,
                "of": 120,
                "steps": 120,
                "step": 10 * epochs,
                "epoch": epochs,
                "epochs": 12,
                "loss": 0.3,
                "pictures_per_s": 61.4,
                "eta_s": 42.0,
                "escapes": [2, 20],
                "overkills": [3, 40],
            },
        )
        job.refresh_from_db()
        return job

    def version(self, **more: Any) -> Version:
        """A version with a dossier on real pictures: some caught, some overkilled."""
        rows = self.golden_set() if not self.line.golden_sets.exists() else []
        scores = [(0.2, 0.1), (0.3, 0.8), (0.3, 0.9)]
        dossier = [
            {
                "id": str(row.pk),
                "set": "golden",
                "label": n % 3 // 2,
                "champion": scores[n % 3][0],
                "candidate": scores[n % 3][1],
            }
            for n, row in enumerate(rows)
        ]
        sides = {"champion": figures(3, 3, 0, 6), "candidate": figures(0, 3, 3, 6)}
        val = {"champion": figures(2, 20, 4, 40), "candidate": figures(1, 20, 2, 40)}
        given = {"sets": {"golden": sides, "val": val}, "dossier": dossier or None} | more
        return self.plant.version(**given)

    def promotion(self) -> Promotion:
        from registry import promotions

        return promotions.request(self.version(), reason="catches the new cracks", by=self.plant.engineer)

    def release(self) -> Release:
        return self.plant.release()

    def rollout(self, devices: int = 3) -> Rollout:
        """A running rollout of a published release to enrolled devices."""
        release = self.release()
        for n in range(devices):
            agent = self.plant.agent(f"el-1-{n + 1:02d}")
            Device.objects.filter(pk=agent.device.pk).update(seen_at=timezone.now())
        return rollouts.start(release, by=self.plant.operator, canary=1)


def point(job: Job, *, epochs: int, first: int = 1) -> None:
    """A curve of `epochs` epochs with ten steps each."""
    seq = first
    for epoch in range(1, epochs + 1):
        for step in range(10):
            at = 10 * (epoch - 1) + step + 1
            JobPoint.objects.create(job=job, fence=1, seq=seq, step=at, epoch=epoch, loss=1 / at)
            seq += 1
        JobPoint.objects.create(
            job=job, fence=1, seq=seq, step=10 * epoch, epoch=epoch, val_loss=1.2 / epoch,
            escapes=[max(0, 6 - epoch), 20],
            overkills=[max(1, 8 - epoch), 40],
        )  # fmt: skip
        seq += 1


def make(folder: Path) -> World:
    plant = records.make(folder)
    other = lines.create_line(Site.objects.get(), code="mt-2", name="MT 2", by=records.SET_UP)
    stranger = User.objects.create_user("stranger", password=None)
    for role in ("engineer", "approver", "operator", "administrator"):
        Membership.objects.create(user=stranger, line=other, role=role)
    return World(plant, records.person("viewer", plant.line, "viewer"), stranger, other)


def commit(rollout: Rollout, device: Device, *, bytes_: int = 812_000) -> None:
    """The device's own reports, from offered to committed with the release's digest."""
    assignment = deployments.next_for(device)
    assert assignment is not None
    for n, state in enumerate(("DOWNLOADING", "VERIFIED", "STAGED", "PROBATION", "COMMITTED"), start=1):
        deployments.report(
            device,
            records.report_message(
                assignment["deployment"],
                n,
                state,
                loaded_digest=rollout.release.manifest_digest,
                delivered_bytes=bytes_,
            ),
        )
