"""Where a version comes from and where it runs, drawn: solid frames are people's work, dashed a machine's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.templatetags.loopline import digest, size
from registry.models import Device
from training.models import Job, Snapshot

if TYPE_CHECKING:
    from registry.models import Promotion, Release, Version

HIGH = 40
X = (10, 180, 360, 530, 710)
WIDE = (140, 150, 140, 150, 150)


@dataclass(frozen=True)
class Node:
    """A box of the drawing. `css`: hum (people made it), cur (this version), wait, none (not yet), "" (machine)."""

    column: int
    y: int
    title: str
    note: str
    css: str = ""
    url: str = ""

    @property
    def x(self) -> int:
        return X[self.column]

    @property
    def width(self) -> int:
        return WIDE[self.column]

    @property
    def text_x(self) -> int:
        return self.x + 9

    @property
    def title_y(self) -> int:
        return self.y + 17

    @property
    def note_y(self) -> int:
        return self.y + 32

    @property
    def middle(self) -> int:
        return self.y + HIGH // 2


def drawing(version: Version, *, promotions: list[Promotion], releases: list[Release]) -> dict[str, Any]:
    """Nodes and the paths of the arrows between them."""
    job = Job.objects.filter(pk=version.job_id).first()
    snapshot = Snapshot.objects.filter(pk=version.snapshot_id).first()
    decisions = sum(sum(split.values()) for split in _splits(snapshot))
    first = [
        Node(0, 28, ngettext("%(n)d decision", "%(n)d decisions", decisions) % {"n": decisions}, _("people"), "hum"),
        Node(0, 108, version.base.name, f"{digest(version.base.digest)[:8]} · {size(_base_bytes(version))}"),
    ]
    second = [
        Node(
            1,
            28,
            str(snapshot or "–"),
            f"sha256 {version.evidence['snapshot']['digest'][:12]}",
            "hum",
            _url("snapshot", snapshot),
        )
    ]
    if version.parent_id:
        second.append(
            Node(
                1,
                108,
                _("%(version)s adapter") % {"version": version.parent},
                _("continued"),
                "",
                _url("version", version.parent),
            )
        )
    third = Node(2, 71, str(job or "–"), _attempts(job), "", _url("job", job))
    here = Node(3, 71, f"{version.line.code} {version}", f"manifest {version.manifest_digest[:8]}", "cur")
    last = [_promotion(promotions), _devices(version, releases)]
    edges = [
        (first[0], second[0]),
        *((node, third) for node in second),
        (third, here),
        *((here, node) for node in last),
    ]
    edges.append((first[1], second[1] if len(second) > 1 else third))
    return {"nodes": [*first, *second, third, here, *last], "edges": [_edge(a, b) for a, b in edges]}


def _splits(snapshot: Snapshot | None) -> list[dict[str, int]]:
    counts = snapshot.counts if snapshot else {}
    return [counts[split] for split in ("train", "val", "test") if isinstance(counts.get(split), dict)]


def _base_bytes(version: Version) -> int:
    return sum(file["bytes"] for file in version.manifest["base"]["files"].values())


def _attempts(job: Job | None) -> str:
    if job is None:
        return ""
    return ngettext("%(n)d attempt", "%(n)d attempts", job.fence) % {"n": job.fence}


def _promotion(promotions: list[Promotion]) -> Node:
    if not promotions:
        return Node(4, 30, _("not asked for yet"), "", "none")
    newest = promotions[0]
    css = "wait" if newest.state == newest.State.REQUESTED else "hum"
    return Node(4, 30, str(newest), str(newest.get_state_display()), css, _url("promotion", newest))


def _devices(version: Version, releases: list[Release]) -> Node:
    running = Device.objects.filter(running_digest=version.manifest_digest).count()
    if running:
        words = ngettext("runs on %(n)d device", "runs on %(n)d devices", running) % {"n": running}
        return Node(4, 112, words, str(releases[0]) if releases else "")
    return Node(4, 112, _("no device yet"), str(releases[0]) if releases else _("no release"), "none")


def _url(noun: str, row: Any) -> str:
    return reverse(f"{noun}-detail", args=[row.pk]) if row is not None else ""


def _edge(start: Node, end: Node) -> dict[str, str]:
    left, right = start.x + start.width, end.x
    bend = right - 15
    return {
        "line": f"M{left} {start.middle}H{bend}V{end.middle}H{right}",
        "head": f"M{right - 5} {end.middle - 3.5}L{right} {end.middle}L{right - 5} {end.middle + 3.5}z",
    }
