"""Rollouts: starting one, watching each device, pausing, resuming and stopping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils import timezone

from console.facts import rollouts as facts
from console.forms import RolloutForm
from console.http import acting_lines, go, page, render
from console.parts import changed, show, why_not_on
from registry import rollouts
from registry.models import Rollout

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpResponse

    from console.http import Request

TEMPLATE = "rollouts/detail.html"


@page("line.view")
def index(request: Request) -> HttpResponse:
    lines = acting_lines(request, "line.view")
    context = {
        "rollouts": facts.listing(lines, request.GET.get("after", "")),
        "topics": " ".join(f"{line.code}.rollouts" for line in lines),
        "why_new": why_not_on(request, "rollout.operate"),
    }
    return show(request, "rollouts/list.html", context, parts=("rows",))


@page("rollout.operate", methods="GET POST")
def new(request: Request) -> HttpResponse:
    lines = acting_lines(request, "rollout.operate")
    release = facts.release_to_ship(lines, request.GET.get("release") or request.POST.get("release", ""))
    said = facts.start(release, by=request.user, now=timezone.now())
    form = RolloutForm(request.POST or None, targets=len(said["targets"]))
    if request.method == "POST" and release is not None and form.is_valid():
        rollout = rollouts.start(release, by=request.user, canary=form.cleaned_data["canary"])
        return go(request, reverse("rollout-detail", args=[rollout.pk]))
    context = {"form": form, "releases": facts.published(lines), **said}
    return render(request, "rollouts/new.html", context, status=422 if form.errors else 200)


@page("line.view", of=Rollout)
def detail(request: Request, rollout: Rollout) -> HttpResponse:
    return show(request, TEMPLATE, _context(request, rollout), parts=("now", "acts"))


@page("rollout.operate", of=Rollout, methods="POST")
def pause(request: Request, rollout: Rollout) -> HttpResponse:
    return _act(request, rollout, rollouts.pause)


@page("rollout.operate", of=Rollout, methods="POST")
def resume(request: Request, rollout: Rollout) -> HttpResponse:
    return _act(request, rollout, rollouts.resume)


@page("rollout.operate", of=Rollout, methods="POST")
def stop(request: Request, rollout: Rollout) -> HttpResponse:
    return _act(request, rollout, rollouts.stop)


def _act(request: Request, rollout: Rollout, verb: Callable[..., Any]) -> HttpResponse:
    verb(rollout, by=request.user, reason=request.POST.get("reason", ""))
    to = reverse("rollout-detail", args=[rollout.pk])
    return changed(request, to, TEMPLATE, lambda: _context(request, rollout))


def _context(request: Request, rollout: Rollout) -> dict[str, Any]:
    return {"rollout": rollout, **facts.detail(rollout, by=request.user, now=timezone.now())}
