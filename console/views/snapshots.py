"""Snapshots: the list, the builder with live counts, and a frozen one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import reverse

from console.facts import changes, differences
from console.facts import snapshots as facts
from console.forms import SnapshotForm
from console.http import acting_lines, go, load, page, render
from console.parts import one_line, show, why_not_on
from training import snapshots
from training.models import Snapshot

if TYPE_CHECKING:
    from uuid import UUID

    from django.http import HttpResponse

    from console.http import Request


@page("line.view")
def index(request: Request) -> HttpResponse:
    lines = acting_lines(request, "line.view")
    context = {
        "snapshots": facts.listing(lines, request.GET.get("after", "")),
        "topics": " ".join(f"{line.code}.snapshots" for line in lines),
        "why_new": why_not_on(request, "snapshot.freeze"),
    }
    return show(request, "snapshots/list.html", context, parts=("rows",))


@page("snapshot.freeze", methods="GET POST")
def new(request: Request) -> HttpResponse:
    lines = acting_lines(request, "snapshot.freeze")
    line = one_line(request, lines)
    data = request.POST if request.method == "POST" else request.GET
    form = SnapshotForm(data, products=facts.products(line), defaults=snapshots.DEFAULT_RULE)
    if request.method == "POST" and form.is_valid():
        snapshot = snapshots.freeze(line, form.rule(), by=request.user)
        return go(request, reverse("snapshot-detail", args=[snapshot.pk]))
    context = {"form": form, "lines": lines, **facts.draft(line, form, by=request.user)}
    return show(
        request, "snapshots/new.html", context, parts=("counts",), status=422 if request.method == "POST" else 200
    )


@page("line.view", of=Snapshot)
def detail(request: Request, snapshot: Snapshot) -> HttpResponse:
    context = {
        "snapshot": snapshot,
        "snapshot_id": str(snapshot.pk),
        **facts.detail(snapshot),
        "why_train": why_not_on(request, "job.submit"),
        "why_export": why_not_on(request, "capture.export"),
    }
    return show(request, "snapshots/detail.html", context, parts=("jobs",))


@page("line.view", of=Snapshot)
def changed(request: Request, snapshot: Snapshot) -> HttpResponse:
    """Its pictures that are decided otherwise now than they were frozen."""
    found = changes.in_snapshot(snapshot, request.GET.get("after", ""))
    to = reverse("snapshot-detail", args=[snapshot.pk])
    return render(request, "snapshots/changed.html", {"of": snapshot, "of_url": to, "page": found})


@page("line.view")
def compare(request: Request) -> HttpResponse:
    """From the list: the two snapshots that were ticked, older first."""
    old, new = differences.two(acting_lines(request, "line.view"), request.GET.getlist("snapshot"))
    return go(request, reverse("snapshot-diff", args=[old.pk, new.pk]))


@page("line.view", of=Snapshot)
def diff(request: Request, old: Snapshot, other: UUID) -> HttpResponse:
    new = load(request, Snapshot, other, action="line.view")
    kind, after = request.GET.get("kind", ""), request.GET.get("after", "")
    return render(request, "snapshots/diff.html", differences.page(old, new, kind=kind, after=after))
