"""Registered versions: the list, one against the champion, and asking for its promotion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse

from console.facts import changes
from console.facts import versions as facts
from console.http import acting_lines, go, page, render
from console.parts import show
from registry import promotions
from registry.models import Version

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request


@page("line.view")
def index(request: Request) -> HttpResponse:
    lines = acting_lines(request, "line.view")
    context = {
        "versions": facts.listing(lines, request.GET.get("after", "")),
        "topics": " ".join(f"{line.code}.versions {line.code}.rollouts" for line in lines),
    }
    return show(request, "versions/list.html", context, parts=("rows",))


@page("line.view", of=Version)
def detail(request: Request, version: Version) -> HttpResponse:
    context: dict[str, Any] = facts.detail(version, by=request.user, set_code=request.GET.get("set", ""))
    return show(request, "versions/detail.html", {"version": version, **context}, parts=("acts",))


@page("promotion.request", of=Version, methods="POST")
def promote(request: Request, version: Version) -> HttpResponse:
    promotion = promotions.request(version, reason=request.POST.get("reason", ""), by=request.user)
    return go(request, reverse("promotion-detail", args=[promotion.pk]))


@page("line.view", of=Version)
def changed(request: Request, version: Version) -> HttpResponse:
    """The pictures that taught it, or a version that it continues, and are decided otherwise now."""
    found = changes.in_version(version, request.GET.get("after", ""))
    to = reverse("version-detail", args=[version.pk])
    return render(request, "snapshots/changed.html", {"of": version, "of_url": to, "page": found})
