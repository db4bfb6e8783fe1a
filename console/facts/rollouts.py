"""What a rollout's page says: one cell per device, counts per stage, why devices failed, what happened when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db.models import Count
from django.http import Http404
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from console.facts import audit
from console.facts.paging import newest_first
from registry import devices, policies, reports, rollouts
from registry.lifecycle import why_not
from registry.models import AuditEvent, Deployment, DeploymentStep, Device, Release, Rollout

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from console.facts.paging import Page
    from console.models import User
    from registry.models import Line, Stage

State = Deployment.State

# state -> (letter, tint): letter and tint say the same thing, so that a grey print still reads
CELLS: dict[str, tuple[str, str]] = {
    State.COMMITTED: ("C", "ok"),
    State.PROBATION: ("P", "act"),
    State.STAGED: ("S", "act"),
    State.VERIFIED: ("V", "act"),
    State.DOWNLOADING: ("D", "act"),
    State.OFFERED: ("O", "un"),
    State.PENDING: ("·", "idle"),
    State.FELL_BACK: ("F", "ng"),
    State.REFUSED: ("R", "ng"),
    State.FAILED: ("!", "ng"),
    State.EXPIRED: ("E", "rv"),
    State.SUPERSEDED: ("U", "un"),
}
SILENT = ("X", "rv")
WAITS = _("not yet its turn")
STAGES = {"canary": _("canary"), "rest": _("the rest"), "all": _("all")}
FAILED = (State.FELL_BACK, State.REFUSED, State.FAILED)
ON_THE_WAY = (State.OFFERED, State.DOWNLOADING, State.VERIFIED, State.STAGED, State.PROBATION)
EVENTS = 30


@dataclass(frozen=True)
class Cell:
    """One device's part: letter and tint of its cell, and the row itself for the table."""

    deployment: Deployment
    letter: str
    tint: str
    word: str
    silent: bool

    @property
    def state_word(self) -> str:
        """What its pill says: the state, in the words of the legend."""
        return str(WAITS) if self.deployment.state == State.PENDING else ""

    @property
    def stage(self) -> Any:
        return STAGES.get(self.deployment.stage.name, self.deployment.stage.name)

    @property
    def reason(self) -> dict[str, Any]:
        """Why it ended without a commit, as a stored sentence."""
        return reports.sentence(self.deployment.code, self.deployment.params)


@dataclass(frozen=True)
class StageBar:
    """Counts of one stage and the bar that shows them; widths are in hundredths of the stage's devices."""

    stage: Stage
    total: int
    committed: int
    under_way: int
    failed: int
    silent: int
    expired: int
    segments: list[tuple[str, str]]

    @property
    def name(self) -> Any:
        return STAGES.get(self.stage.name, self.stage.name)

    @property
    def number(self) -> int:
        return self.stage.index + 1

    @property
    def css(self) -> str:
        return {"WAITING": "next", "PASSED": "done", "SKIPPED": "next"}.get(self.stage.state, "now")


def cells(rollout: Rollout, now: datetime) -> list[Cell]:
    """Every device of the frozen target set, by device code."""
    rows = rollout.deployments.select_related("device__line", "device__station", "stage").order_by("device__code")
    return [_cell(row, now) for row in rows]


def _cell(row: Deployment, now: datetime) -> Cell:
    waits = row.state in ON_THE_WAY or (row.state == State.PENDING and row.stage.state in ("RUNNING", "SOAKING"))
    if waits and devices.is_silent(row.device, now):
        return Cell(row, *SILENT, word=gettext("silent"), silent=True)
    letter, tint = CELLS[row.state]
    word = str(WAITS) if row.state == State.PENDING else str(row.get_state_display())
    return Cell(row, letter, tint, word, silent=False)


def legend(all_cells: list[Cell]) -> list[dict[str, Any]]:
    """Every letter with its meaning and count, in the order of the way."""
    counts = Counter(cell.letter for cell in all_cells)
    words: dict[Any, Any] = {State.PENDING: WAITS}
    entries = [
        {"letter": letter, "tint": tint, "word": words.get(state, State(state).label), "n": counts[letter]}
        for state, (letter, tint) in CELLS.items()
    ]
    entries.append({"letter": SILENT[0], "tint": SILENT[1], "word": _("silent"), "n": counts[SILENT[0]]})
    return entries


def stage_bars(rollout: Rollout, all_cells: list[Cell]) -> list[StageBar]:
    """The stages in order, each with its counts."""
    by_stage: dict[Any, list[Cell]] = {}
    for cell in all_cells:
        by_stage.setdefault(cell.deployment.stage_id, []).append(cell)
    return [_bar(stage, by_stage.get(stage.pk, [])) for stage in rollout.stages.order_by("index")]


def _bar(stage: Stage, members: list[Cell]) -> StageBar:
    states = Counter("SILENT" if cell.silent else cell.deployment.state for cell in members)
    committed, silent, expired = states[State.COMMITTED], states["SILENT"], states[State.EXPIRED]
    under_way = sum(states[state] for state in ON_THE_WAY)
    failed = sum(states[state] for state in FAILED)
    segments, left = [], 0.0
    for tint, count in (("okf", committed), ("ac", under_way), ("ngf", failed), ("rvf", silent + expired)):
        if count:
            right = left + 100.0 * count / len(members)
            segments.append((tint, f"M{left:.2f} 0H{right:.2f}V8H{left:.2f}z"))
            left = right
    return StageBar(stage, len(members), committed, under_way, failed, silent, expired, segments)


def failures(all_cells: list[Cell]) -> list[dict[str, Any]]:
    """Why devices did not commit: each reported code with its number of devices, most frequent first."""
    failed = [cell.deployment for cell in all_cells if cell.deployment.state in (*FAILED, State.EXPIRED)]
    counts = Counter(row.code or row.state.lower() for row in failed)
    return [
        {
            "code": code,
            "word": State(code.upper()).label if code.upper() in State.values else code,
            "why": _why(code),
            "n": n,
            "of": len(failed),
            "bar": f"M0 0H{100 * n / len(failed):.1f}V8H0z",
        }
        for code, n in counts.most_common()
    ]


def _why(code: str) -> dict[str, Any]:
    """The sentence of a reported code; a state that came without one speaks for itself."""
    return {} if code.upper() in State.values else reports.sentence(code)


def events(rollout: Rollout) -> list[dict[str, Any]]:
    """The latest happenings, newest first: people's and the gate's acts, and every device's reports."""
    ids = [str(rollout.pk), *(str(pk) for pk in rollout.stages.values_list("pk", flat=True))]
    acts = AuditEvent.objects.filter(noun__in=("rollout", "stage"), object_id__in=ids).select_related("by")[:EVENTS]
    steps = (
        DeploymentStep.objects.filter(deployment__rollout=rollout)
        .select_related("deployment__device")
        .order_by("-id")[:EVENTS]
    )
    merged: list[dict[str, Any]] = [{"at": act.at, "act": audit.say(act)} for act in acts]
    merged += [
        {"at": step.at, "step": step, "word": State(step.state).label, "why": reports.sentence(step.code, step.params)}
        for step in steps
    ]
    return sorted(merged, key=lambda event: event["at"], reverse=True)[:EVENTS]


def listing(lines: Iterable[Line], after: str = "") -> Page:
    """Rollouts, newest first, each with how many of its devices committed or failed."""
    query = Rollout.objects.filter(line__in=lines).select_related("line", "release__version", "started_by")
    page = newest_first(query, after)
    counted = (
        Deployment.objects.filter(rollout__in=page.rows).values_list("rollout_id", "state").annotate(n=Count("pk"))
    )
    counts: dict[Any, dict[str, int]] = {}
    for pk, state, n in counted:
        counts.setdefault(pk, {})[state] = n
    for rollout in page.rows:
        states = counts.get(rollout.pk, {})
        rollout.total = sum(states.values())
        rollout.committed = states.get(State.COMMITTED, 0)
        rollout.failed = sum(states.get(state, 0) for state in FAILED)
    return page


def published(lines: Iterable[Line]) -> list[Release]:
    """The release of each line that can be rolled out."""
    query = Release.objects.filter(line__in=lines, state=Release.State.PUBLISHED)
    return list(query.select_related("line", "version").order_by("line__code"))


def release_to_ship(lines: Iterable[Line], pk: str) -> Release | None:
    """The release asked for if it belongs to these lines (404 for another), else the only published one, else none."""
    if not pk:
        found = published(lines)
        return found[0] if len(found) == 1 else None
    try:
        return Release.objects.select_related("line", "version").get(pk=pk, line__in=lines)
    except (Release.DoesNotExist, ValidationError) as error:
        raise Http404(f"no release {pk}") from error


def start(release: Release | None, *, by: User, now: datetime) -> dict[str, Any]:
    """What the start page says: the release, who would get it, who is busy, and why it may not start."""
    aimed: list[Any] = list(rollouts.targets(release)) if release else []
    standing = {row.device_id: row for row in rollouts.conflicts(release)} if release else {}
    for device in aimed:
        device.busy = standing.get(device.pk)
        device.silent = devices.is_silent(device, now)
    left_out = Device.objects.filter(line=release.line).exclude(state=Device.State.ACTIVE) if release else ()
    return {
        "release": release,
        "targets": aimed,
        "left_out": list(left_out),
        "why": why_not(policies.check_can_start_rollout, release, by=by) if release else "",
    }


def detail(rollout: Rollout, *, by: User, now: datetime) -> dict[str, Any]:
    """Everything that the page of one rollout says."""
    every = cells(rollout, now)
    return {
        "cells": every,
        "legend": legend(every),
        "stages": stage_bars(rollout, every),
        "failures": failures(every),
        "events": events(rollout),
        "ended": rollout.state not in ("DRAFTED", "SCHEDULED", "RUNNING", "PAUSED"),
        "delivered_bytes": sum(cell.deployment.delivered_bytes for cell in every),
        "why_pause": why_not(policies.check_can_pause_rollout, rollout, by=by),
        "why_resume": why_not(policies.check_can_resume_rollout, rollout, by=by),
        "why_stop": why_not(policies.check_can_stop_rollout, rollout, by=by),
    }
