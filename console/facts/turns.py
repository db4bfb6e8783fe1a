"""Whose turn it is: one list per role of what only a person can move on, oldest deadline first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console import sentences
from console.facts import golden as golden_facts
from console.facts.overview import oldest, untrained
from console.models import User
from console.roles import ROLES
from console.templatetags.loopline import age, due
from registry import counters
from registry.devices import SILENT_AFTER
from registry.models import Device, Promotion, Release, Rollout, Version
from training import counts, golden
from training.models import IN_QUEUE, Capture, Job

if TYPE_CHECKING:
    from console.http import Lines
    from registry.models import Line

RECENT = timedelta(days=7)
MOST = 6  # of one kind on one line
MANY = 1000  # counted up to this


@dataclass(frozen=True)
class Turn:
    """One thing to do. `when` sorts; `due` is printed; `late` makes it amber."""

    title: str
    detail: str
    url: str
    words: str
    when: datetime
    due: str = ""
    late: bool = False
    glyph: str = "un"
    first: bool = False  # the one primary button of its list


@dataclass(frozen=True)
class Group:
    role: str
    turns: list[Turn]
    mine: bool


# role -> the action that makes it somebody's turn
ROLE_ACTIONS = {
    "engineer": "capture.review",
    "supervisor": "capture.supervise",
    "adjudicator": "capture.adjudicate",
    "approver": "promotion.approve",
    "operator": "rollout.operate",
    "administrator": "device.administer",
}


def groups(lines: list[Line], may: Lines, now: datetime, *, mine: bool) -> list[Group]:
    """The lists by role; with `mine` only those whose acts this person may do on at least one of the lines."""
    finders = {
        "engineer": engineer, "supervisor": supervisor, "adjudicator": adjudicator, "approver": approver,
        "operator": operator,
        "administrator": administrator,
    }  # fmt: skip
    found = []
    for role, find in finders.items():
        allowed = [line for line in lines if may.allow(ROLE_ACTIONS[role], line)]
        # What goes up to a supervisor is somebody else's turn already: it is said twice to nobody else.
        shown = allowed if mine or role == "supervisor" else lines
        turns = sorted(
            (turn for line in shown for turn in find(line, now)), key=lambda turn: (not turn.late, turn.when)
        )
        if turns:
            turns[0] = Turn(**{**turns[0].__dict__, "first": bool(allowed)})
            found.append(Group(str(ROLES[role].name), turns, bool(allowed)))
    return found


def engineer(line: Line, now: datetime) -> list[Turn]:
    return [
        *_flagged(line, now),
        *_expiring(line, now),
        *_second_looks(line, now),
        *_failed_jobs(line, now),
        *_to_freeze(line, now),
        *_to_train(line),
        *_to_ask(line),
    ]


def supervisor(line: Line, now: datetime) -> list[Turn]:
    """What was not decided in time goes up to whoever can free it and ask for help."""
    deadline = timedelta(seconds=line.review_due_s)
    rows = Capture.objects.filter(IN_QUEUE, line=line, received_at__lt=now - deadline).order_by("received_at")
    first, count = rows.first(), rows[:MANY].count()
    if first is None:
        return []
    holders = User.objects.filter(pk__in=rows.filter(claimed_until__gt=now).values("claimed_by")[:MANY])
    held = ", ".join(sorted({str(person) for person in holders}))
    title = ngettext(
        "%(n)s picture is past the deadline, %(line)s", "%(n)s pictures are past the deadline, %(line)s", count
    )
    return [
        Turn(
            title % {"n": f"{count:,}" if count < MANY else f"{MANY:,}+", "line": line.name},
            _("held by %(people)s") % {"people": held} if held else _("nobody has opened them"),
            f"{reverse('capture-list')}?line={line.code}&late=1",
            _("See them"),
            first.received_at + deadline,
            due(first.received_at + deadline),
            late=True,
            glyph="rv",
        )
    ]


def _flagged(line: Line, now: datetime) -> list[Turn]:
    waiting, first = counters.value(line, counts.NEW), oldest(line)
    if not waiting or first is None:
        return []
    deadline = first + timedelta(seconds=line.review_due_s)
    title = ngettext("Decide %(n)s flagged picture, %(line)s", "Decide %(n)s flagged pictures, %(line)s", waiting)
    return [
        Turn(
            title % {"n": f"{waiting:,}", "line": line.name},
            _("oldest %(age)s") % {"age": age(first)},
            f"{reverse('capture-review')}?line={line.code}",
            _("Review"),
            deadline,
            due(deadline),
            deadline < now,
            "rv",
        )
    ]


def _expiring(line: Line, now: datetime) -> list[Turn]:
    return [
        Turn(
            _("Golden set %(name)s, %(line)s") % {"name": golden_facts.name_of(row), "line": line.name},
            golden_facts.expiry_words(row, now),
            reverse("golden-detail", args=[row.pk]),
            _("Renew"),
            row.expires_at,
            due(row.expires_at),
            row.expires_at <= now,
            "rv",
        )
        for row in golden.expiring([line], now)[:MOST]
    ]


def _second_looks(line: Line, now: datetime) -> list[Turn]:
    asked = Capture.objects.filter(line=line, state=Capture.State.DISPUTED, reserved=False, disagreed=False)
    rows = asked.order_by("received_at")
    first, count = rows.first(), rows[:MANY].count()
    if first is None:
        return []
    title = ngettext("Second look at %(n)s picture, %(line)s", "Second look at %(n)s pictures, %(line)s", count)
    return [
        Turn(
            title % {"n": count, "line": line.name},
            _("somebody was not sure and asked"),
            f"{reverse('capture-review')}?line={line.code}&look=1",
            _("Look"),
            first.received_at,
            age(first.received_at),
            glyph="rv",
        )
    ]


def adjudicator(line: Line, now: datetime) -> list[Turn]:
    """Pictures of which the opinions differ."""
    rows = Capture.objects.filter(IN_QUEUE, line=line, opinions__gt=0, disagreed=True).order_by("received_at")
    first, count = rows.first(), rows[:MANY].count()
    if first is None:
        return []
    title = ngettext("Settle %(n)s picture, %(line)s", "Settle %(n)s pictures, %(line)s", count)
    return [
        Turn(
            title % {"n": count, "line": line.name},
            _("the opinions differ"),
            f"{reverse('capture-review')}?line={line.code}&disagreed=1",
            _("Settle"),
            first.received_at,
            age(first.received_at),
            glyph="rv",
        )
    ]


def _failed_jobs(line: Line, now: datetime) -> list[Turn]:
    """Jobs that failed lately, until a later one of the line succeeds."""
    good = Job.objects.filter(line=line, state=Job.State.SUCCEEDED).order_by("-created_at").first()
    rows = Job.objects.filter(line=line, state__in=("FAILED", "POISONED"), ended_at__gt=now - RECENT)
    if good:
        rows = rows.filter(created_at__gt=good.created_at)
    return [
        Turn(
            _("Job %(job)s failed") % {"job": job},
            sentences.render(job.failure),
            reverse("job-detail", args=[job.pk]),
            _("Read why"),
            job.ended_at or job.created_at,
            age(job.ended_at or job.created_at),
            glyph="ng",
        )
        for job in rows.order_by("-created_at")[:MOST]
    ]


def _to_freeze(line: Line, now: datetime) -> list[Turn]:
    decided = counters.value(line, counts.DECIDED)
    if not decided or counters.value(line, counts.NEW):
        return []
    title = ngettext("Freeze %(n)s decided picture, %(line)s", "Freeze %(n)s decided pictures, %(line)s", decided)
    detail = _("the queue is empty: a snapshot would hold all decisions")
    return [
        Turn(
            title % {"n": f"{decided:,}", "line": line.name},
            detail,
            f"{reverse('snapshot-new')}?line={line.code}",
            _("Freeze"),
            now,
        )
    ]


def _to_train(line: Line) -> list[Turn]:
    return [
        Turn(
            _("Train on snapshot %(name)s, %(line)s") % {"name": row, "line": line.name},
            _("frozen by %(person)s") % {"person": row.frozen_by},
            reverse("snapshot-detail", args=[row.pk]),
            _("Open"),
            row.created_at,
            age(row.created_at),
        )
        for row in untrained([line])
    ]


def _to_ask(line: Line) -> list[Turn]:
    """A version that passed its checks, is newer than the champion, and that nobody has asked to release."""
    newest = Version.objects.filter(line=line, state=Version.State.VALIDATED).order_by("-number").first()
    if newest is None or newest.promotions.exists():
        return []
    released = Release.objects.filter(line=line, state=Release.State.PUBLISHED).select_related("version").first()
    if released and released.version.number > newest.number:
        return []
    return [
        Turn(
            _("Version %(name)s waits for a promotion request, %(line)s") % {"name": newest, "line": line.name},
            _("trained by %(person)s, checks passed") % {"person": newest.trained_by},
            reverse("version-detail", args=[newest.pk]),
            _("Open"),
            newest.created_at,
            age(newest.created_at),
        )
    ]


def approver(line: Line, now: datetime) -> list[Turn]:
    rows = Promotion.objects.filter(line=line, state="REQUESTED").select_related("version", "requested_by")
    return [
        Turn(
            _("Sign or reject %(promotion)s: %(line)s %(version)s")
            % {"promotion": row, "line": line.name, "version": row.version},
            _("%(person)s: %(reason)s") % {"person": row.requested_by, "reason": row.reason},
            reverse("promotion-detail", args=[row.pk]),
            _("Open"),
            row.expires_at,
            _("%(age)s left") % {"age": age(row.expires_at - now)},
            row.expires_at - now < timedelta(hours=8),
            "rv",
        )
        for row in rows
    ]


def operator(line: Line, now: datetime) -> list[Turn]:
    return [*_paused(line), *_to_roll_out(line), *_silent(line, now)]


def _paused(line: Line) -> list[Turn]:
    rows = Rollout.objects.filter(line=line, state=Rollout.State.PAUSED)
    return [
        Turn(
            _("Rollout %(rollout)s is paused, %(line)s") % {"rollout": row, "line": line.name},
            sentences.render(row.pause_sentence),
            reverse("rollout-detail", args=[row.pk]),
            _("Look"),
            row.created_at,
            "",
            True,
            "paused",
        )
        for row in rows
    ]


def _to_roll_out(line: Line) -> list[Turn]:
    release = Release.objects.filter(line=line, state=Release.State.PUBLISHED).first()
    if release is None or release.rollouts.exists():
        return []
    words = {"release": release, "line": line.name}
    return [
        Turn(
            _("Release %(release)s may be rolled out, %(line)s") % words,
            _("approved; no device has been offered it yet"),
            f"{reverse('rollout-new')}?release={release.pk}",
            _("Roll out"),
            release.created_at,
            age(release.created_at),
        )
    ]


def _silent(line: Line, now: datetime) -> list[Turn]:
    rows = Device.objects.filter(line=line, state=Device.State.ACTIVE, seen_at__lt=now - SILENT_AFTER).order_by(
        "seen_at"
    )
    names = list(rows.values_list("code", flat=True)[:4])
    if not names:
        return []
    count, since = rows.count(), rows[0].seen_at or now
    title = ngettext("%(n)s device is silent, %(line)s", "%(n)s devices are silent, %(line)s", count)
    detail = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    return [
        Turn(
            title % {"n": count, "line": line.name},
            detail,
            f"{reverse('device-list')}?line={line.code}",
            _("List"),
            since,
            age(since),
        )
    ]


def administrator(line: Line, now: datetime) -> list[Turn]:
    rows: Any = Device.objects.filter(line=line, state__in=("ENROLLED", "QUARANTINED")).order_by("created_at")[:MOST]
    said = {
        "ENROLLED": (_("Device %(device)s has not enrolled yet"), _("its one-time token has not been used")),
        "QUARANTINED": (
            _("Device %(device)s is quarantined"),
            _("it sends nothing and gets nothing until it is let back"),
        ),
    }
    return [
        Turn(
            said[row.state][0] % {"device": row.code},
            said[row.state][1],
            reverse("device-detail", args=[row.pk]),
            _("Open"),
            row.created_at,
            age(row.created_at),
        )
        for row in rows
    ]
