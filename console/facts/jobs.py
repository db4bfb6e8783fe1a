"""What a job's page says: how far it is, its curve, its tries, and the last lines of its log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.http import Http404
from django.utils.translation import gettext as _

from console.facts import changes
from console.facts.paging import newest_first
from registry.lifecycle import why_not
from training import jobdir, policies
from training.models import Job, Snapshot
from training.relay import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from console.facts.paging import Page
    from console.models import User
    from registry.models import Line, Version

POINT = ("seq", "fence", "step", "epoch", "loss", "val_loss", "escapes", "overkills")
TAIL_BYTES, TAIL_LINES = 8_000, 14
WHOLE_LOG_BYTES = 4_000_000


def listing(lines: Iterable[Line], after: str = "") -> Page:
    """Jobs, newest first, each with how long it took."""
    query = Job.objects.filter(line__in=lines)
    page = newest_first(query.select_related("line", "snapshot", "submitted_by", "parent", "version"), after)
    for job in page.rows:
        job.took = job.ended_at - job.started_at if job.started_at and job.ended_at else None
    return page


def of_snapshot(snapshot: Snapshot) -> list[Job]:
    return list(snapshot.jobs.select_related("version", "submitted_by")[:20])


# ------------------------------------------------------------------------------------------------ asking for one


def snapshots_to_train(lines: Iterable[Line]) -> list[Snapshot]:
    return list(Snapshot.objects.filter(line__in=lines).select_related("line", "frozen_by").order_by("-pk")[:20])


def asked(snapshot: Snapshot, *, by: User) -> dict[str, Any]:
    """What the page says beside the form."""
    changes.mark_snapshots([snapshot])
    return {
        "snapshot": snapshot,
        "escape_limit": f"{100 * snapshot.line.escape_limit:g}",
        "why": why_not(policies.check_can_submit, snapshot, by=by),
    }


def modes(champion: Version | None) -> list[tuple[str, str]]:
    """Where a training may start from, the usual one first."""
    fresh = ("fresh", _("Fresh: from the base model, on the snapshot alone"))
    if champion is None:
        return [fresh]
    return [("continue", _("Continue %(version)s: go on from the champion's adapter") % {"version": champion}), fresh]


# ------------------------------------------------------------------------------------------------ one job


def points(job: Job, after: int) -> list[list[Any]]:
    """The curve's points above `after`, as static/js/chart.js wants them."""
    rows = job.points.filter(seq__gt=after).order_by("seq").values_list(*POINT)
    return [[*row[:6], *(row[6] or (None, None)), *(row[7] or (None, None))] for row in rows]


def curve(job: Job, after: int) -> dict[str, Any]:
    """Points with what the axes need: steps and epochs asked for, and the line's escape limit (a share)."""
    return {
        "points": points(job, after),
        "steps": job.progress.get("steps") or 0,
        "epochs": job.progress.get("epochs") or job.config.get("train", {}).get("epochs") or 0,
        "limit": job.line.escape_limit,
        "state": job.state,
    }


def detail(job: Job, *, by: User, now: datetime) -> dict[str, Any]:
    """Everything that the page of one job says."""
    return {
        "steps": steps(job),
        "ready_at": ready_at(job, now),
        "attempts": list(job.attempts.all()),
        "log_tail": log_tail(job),
        "log_exists": jobdir.log_file(job).exists(),
        "ended": job.state in Job.ENDED,
        "config": _settings(job),
        "why_cancel": why_not(policies.check_can_cancel, job, by=by),
        "why_again": why_not(policies.check_can_requeue, job, by=by),
    }


def steps(job: Job) -> list[dict[str, str]]:
    """The stepper: what is done, what is now, what comes; a job that ended badly stops where it stopped."""
    names = (
        _("Queued"), _("Pictures ready"), _("Prefix cache"), _("Training"), _("Evaluation"), _("Export"),
        _("Check on a clean base"), _("Version"),
    )  # fmt: skip
    reached, done = _reached(job), job.state == Job.State.SUCCEEDED
    css = [("" if done or index < reached else "now" if index == reached else "next") for index in range(len(names))]
    if job.state in Job.ENDED and not done:
        css[reached] = "stopped"
    return [{"name": name, "css": css[index], "note": _note(job, index, reached)} for index, name in enumerate(names)]


def _reached(job: Job) -> int:
    """The index of the step that goes on now: 0 while queued, then the phases in order."""
    phase = job.progress.get("phase", "")
    if job.state == Job.State.QUEUED or phase not in PHASES:
        return 0 if job.state == Job.State.QUEUED or not job.started_at else 1
    return PHASES.index(phase) + 1


def _note(job: Job, index: int, reached: int) -> str:
    """The words under a step: how far the present one is, and what came of the last one."""
    if index == len(PHASES) and job.version is not None:
        return str(job.version)
    progress = job.progress
    if index != reached or index == 0 or job.state == Job.State.SUCCEEDED or not progress.get("of"):
        return ""
    return _("%(done)s of %(of)s") % {"done": f"{progress.get('done') or 0:,}", "of": f"{progress['of']:,}"}


def ready_at(job: Job, now: datetime) -> datetime | None:
    """When training will be done, as the recipe expects it; None while nobody knows or it does not train."""
    left = job.progress.get("eta_s")
    if job.state != Job.State.RUNNING or job.progress.get("phase") != "train" or left is None:
        return None
    return now + timedelta(seconds=float(left))


def _settings(job: Job) -> list[tuple[str, Any]]:
    """What was asked of the recipe, in words."""
    train, lora = job.config.get("train", {}), job.config.get("lora", {})
    return [
        (_("Epochs"), train.get("epochs")), (_("Batch"), train.get("batch")), (_("Learning rate"), train.get("lr")),
        (_("Views"), ", ".join(train.get("views", ()))), (_("Adapter rank"), lora.get("rank")),
        (_("Trained from"), lora.get("cut")),
        (_("Replay share"), job.config.get("replay")), (_("Seed"), job.config.get("seed")),
        (_("Base"), job.config.get("base", {}).get("name")),
    ]  # fmt: skip


def log_tail(job: Job) -> str:
    """The last lines of the recipe's log, "" when there is none on this machine."""
    data = _read_end(job, TAIL_BYTES)
    return "\n".join(data.splitlines()[-TAIL_LINES:])


def whole_log(job: Job) -> str:
    """The log, or its last megabytes; raises Http404 when it does not lie on this machine."""
    if not jobdir.log_file(job).exists():
        raise Http404("the log lies on the machine that trained")
    return _read_end(job, WHOLE_LOG_BYTES)


def _read_end(job: Job, most: int) -> str:
    path = jobdir.log_file(job)
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, path.stat().st_size - most))
            return handle.read(most).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
