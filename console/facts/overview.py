"""The loop with what waits at each stop, and one card per line: only figures that rows or counters give."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Q
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, npgettext

from registry import counters
from registry.devices import SILENT_AFTER
from registry.models import Deployment, Device, Promotion, Release, Rollout
from training import counts
from training.models import Capture, GoldenSet, Job, Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from registry.models import Line

BELT_MOST = 16  # marks of waiting work drawn beside a stop


@dataclass(frozen=True)
class Stop:
    """One stop of the loop: how much is there, since when, and whether a person must act. `way`: who moves it there."""

    name: str
    url: str
    count: int
    unit: str
    note: str = ""
    of: int | None = None
    due: bool = False
    since: datetime | None = None
    deadline: datetime | None = None
    acting: bool = False
    machine: bool = False
    per_mark: int = 0

    @property
    def belt(self) -> list[int]:
        """x of each mark; one mark is `per_mark` waiting things."""
        marks = min(BELT_MOST, -(-self.count // self.per_mark)) if self.per_mark else 0
        return [8 * index for index in range(marks)]


@dataclass
class LineCard:
    """What one line's card says. `state` is its worst news: (words, colour, glyph)."""

    line: Line
    waiting: int
    oldest: datetime | None
    now: datetime
    jobs: int
    rollouts: Sequence[str]
    release: Release | None
    devices: dict[str, int]
    leading: str = ""
    golden: dict[str, Any] = field(default_factory=dict)

    @property
    def deadline(self) -> datetime | None:
        return self.oldest + timedelta(seconds=self.line.review_due_s) if self.oldest else None

    @property
    def late(self) -> bool:
        return bool(self.deadline and self.deadline < self.now)

    @property
    def state(self) -> tuple[str, str, str]:
        if "PAUSED" in self.rollouts:
            return _("rollout paused"), "rv", "paused"
        if self.late:
            return _("behind"), "rv", "rv"
        if self.devices["silent"]:
            return _("device silent"), "rv", "rv"
        if self.jobs:
            return _("training"), "act", "run"
        if self.rollouts:
            return _("rolling out"), "act", "run"
        if self.escape_of and (self.escape_n or 0) / self.escape_of > self.line.escape_limit:
            return _("over the escape limit"), "ng", "ng"
        if self.release is None:
            return _("no champion yet"), "un", "un"
        if self.devices["current"] < self.devices["active"]:
            return _("not on every device"), "rv", "rv"
        return _("in order"), "ok", "done"

    @property
    def share_of_time(self) -> float:
        """How much of the oldest picture's time is used up, 0 to 1."""
        if self.oldest is None:
            return 0.0
        return min(1.0, (self.now - self.oldest).total_seconds() / max(1, self.line.review_due_s))

    @property
    def escapes(self) -> list[int] | None:
        return self.golden.get("escapes")

    @property
    def overkills(self) -> list[int] | None:
        return self.golden.get("overkills")

    @property
    def escape_n(self) -> int | None:
        return self.escapes[0] if self.escapes else None

    @property
    def escape_of(self) -> int | None:
        return self.escapes[1] if self.escapes else None

    @property
    def overkill_n(self) -> int | None:
        return self.overkills[0] if self.overkills else None

    @property
    def overkill_of(self) -> int | None:
        return self.overkills[1] if self.overkills else None


class Overview:
    """Everything on the overview of these lines at `now`; each part is read when the page asks for it."""

    def __init__(self, lines: list[Line], now: datetime) -> None:
        self.lines = lines
        self.now = now

    # ---- lines

    @cached_property
    def cards(self) -> list[LineCard]:
        jobs = _by_line(Job.objects.filter(line__in=self.lines, state__in=("QUEUED", "RUNNING", "CANCELLING")))
        released = Release.objects.filter(line__in=self.lines, state=Release.State.PUBLISHED).select_related("version")
        releases = {row.line_id: row for row in released}
        golden = {
            row.line_id: row for row in GoldenSet.objects.filter(line__in=self.lines, leads=True, retired_at=None)
        }
        return [self._card(line, jobs, releases.get(line.pk), golden.get(line.pk)) for line in self.lines]

    def _card(self, line: Line, jobs: dict[Any, int], release: Release | None, golden: GoldenSet | None) -> LineCard:
        rollouts = [row.state for row in self.rollouts if row.line_id == line.pk]
        card = LineCard(
            line=line,
            waiting=counters.value(line, counts.NEW),
            oldest=oldest(line),
            now=self.now,
            jobs=jobs.get(line.pk, 0),
            rollouts=rollouts,
            release=release,
            devices=fleet(line, release, self.now),
        )
        if release:
            evidence = release.version.evidence
            leading = evidence.get("leading", "")
            card.golden = (evidence.get("sets", {}).get(leading) or {}).get("candidate") or {}
            card.leading = (
                (golden.name_ko if _korean() else golden.name_en) if golden and golden.code == leading else leading
            )
        return card

    @cached_property
    def rollouts(self) -> list[Rollout]:
        under_way = Rollout.objects.filter(line__in=self.lines, state__in=("RUNNING", "PAUSED"))
        return list(under_way.select_related("line", "release").order_by("created_at"))

    # ---- the loop

    @cached_property
    def stops(self) -> list[Stop]:
        return [
            self._flagged(),
            self._decided(),
            self._frozen(),
            self._training(),
            self._signature(),
            self._rolling(),
            self._running(),
        ]

    def _flagged(self) -> Stop:
        count = sum(card.waiting for card in self.cards)
        waiting = [card for card in self.cards if card.oldest and card.deadline]
        first = min(waiting, key=lambda card: card.deadline or self.now, default=None)
        return Stop(
            _("Flagged"),
            reverse("capture-list"),
            count,
            ngettext("picture", "pictures", count),
            machine=True,
            due=bool(first and first.late),
            since=min((card.oldest for card in waiting if card.oldest), default=None),
            deadline=first.deadline if first else None,
            per_mark=10,
        )

    def _decided(self) -> Stop:
        count = sum(counters.value(line, counts.DECIDED) for line in self.lines)
        last = Snapshot.objects.filter(line__in=self.lines).order_by("-created_at").first()
        note = _("since snapshot %(name)s") % {"name": last} if last else _("none frozen yet")
        return Stop(
            _("Decided"),
            reverse("capture-list") + "?show=decided",
            count,
            ngettext("picture", "pictures", count),
            note,
            per_mark=10,
        )

    def _frozen(self) -> Stop:
        waiting = list(untrained(self.lines))
        note = _("%(name)s, not trained yet") % {"name": waiting[0]} if waiting else _("nothing waits for training")
        return Stop(
            _("Frozen"),
            reverse("snapshot-list"),
            len(waiting),
            npgettext("count", "snapshot", "snapshots", len(waiting)),
            note,
            per_mark=1,
        )

    def _training(self) -> Stop:
        running = list(Job.objects.filter(line__in=self.lines, state__in=("QUEUED", "RUNNING", "CANCELLING")))
        note = _("no job")
        if running:
            note = f"{running[-1]} · {running[-1].get_state_display()}"
            if share := progress_share(running[-1]):
                note += f" {share}"
        return Stop(
            _("Training"),
            reverse("job-list"),
            len(running),
            npgettext("count", "job", "jobs", len(running)),
            note,
            acting=any(job.state == "RUNNING" for job in running),
            per_mark=1,
        )

    def _signature(self) -> Stop:
        asked = list(Promotion.objects.filter(line__in=self.lines, state="REQUESTED").order_by("created_at"))
        first = asked[0] if asked else None
        return Stop(
            _("Waiting for signature"),
            reverse("promotion-list"),
            len(asked),
            ngettext("request", "requests", len(asked)),
            str(first) if first else _("nothing asked for"),
            due=bool(first),
            since=first.created_at if first else None,
            per_mark=1,
        )

    def _rolling(self) -> Stop:
        if not self.rollouts:
            return Stop(
                _("Rolling out"), reverse("rollout-list"), 0, _("rollouts"), _("nothing on its way"), machine=True
            )
        found = Deployment.objects.filter(rollout__in=self.rollouts).aggregate(
            committed=Count("pk", filter=Q(state="COMMITTED")), all=Count("pk")
        )
        first = self.rollouts[0]
        return Stop(
            _("Rolling out"),
            reverse("rollout-list"),
            found["committed"],
            _("devices"),
            f"{first} {first.line.name} · {first.get_state_display()}",
            of=found["all"],
            machine=True,
            due=any(row.state == "PAUSED" for row in self.rollouts),
            acting=True,
        )

    def _running(self) -> Stop:
        current = sum(card.devices["current"] for card in self.cards)
        active = sum(card.devices["active"] for card in self.cards)
        silent = sum(card.devices["silent"] for card in self.cards)
        note = ngettext("%(n)d silent", "%(n)d silent", silent) % {"n": silent} if silent else _("all heard from")
        return Stop(
            _("Running"), reverse("device-list"), current, _("devices"), note if active else "", of=active, machine=True
        )


def oldest(line: Line) -> datetime | None:
    """When the oldest undecided picture arrived: the first of the queue's index."""
    rows = Capture.objects.filter(line=line, state=Capture.State.NEW, reserved=False)
    return rows.order_by("received_at").values_list("received_at", flat=True).first()


def untrained(lines: list[Line]) -> Any:
    """The newest snapshot of each line, if no job has used it yet."""
    newest = Snapshot.objects.filter(line__in=lines).order_by("line_id", "-number").distinct("line_id")
    return Snapshot.objects.filter(pk__in=[row.pk for row in newest], jobs__isnull=True).select_related(
        "line", "frozen_by"
    )


def fleet(line: Line, release: Release | None, now: datetime) -> dict[str, int]:
    """The line's active devices: all, on the published release, silent, and what they counted since installed."""
    rows = list(
        Device.objects.filter(line=line, state=Device.State.ACTIVE).values_list("running_digest", "seen_at", "counts")
    )
    digest = release.manifest_digest if release else None
    return {
        "active": len(rows),
        "current": sum(1 for running, _seen, _counts in rows if digest and running == digest),
        "silent": sum(1 for _running, seen, _counts in rows if seen and now - seen > SILENT_AFTER),
        "flagged": sum(int(row.get("flagged", 0)) for _running, _seen, row in rows),
        "inspected": sum(int(row.get("inspected", 0)) for _running, _seen, row in rows),
    }


def progress_share(job: Job) -> str:
    """How far the recipe's present phase is, as "58 %"."""
    done, of = job.progress.get("step") or job.progress.get("done"), job.progress.get("of")
    return f"{100 * done // of} %" if done and of else ""


def _by_line(rows: Any) -> dict[Any, int]:
    return dict(rows.values("line").annotate(n=Count("pk")).values_list("line", "n"))


def _korean() -> bool:
    from django.utils.translation import get_language

    return (get_language() or "en").startswith("ko")
