"""What needs a human now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils import timezone

from console.facts import turns
from console.facts.overview import Overview
from console.http import SIGNED_IN, acting_lines, page, render
from console.parts import show as show_parts

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request

TOPICS = ("captures", "snapshots", "jobs", "versions", "promotions", "rollouts", "devices")


@page(SIGNED_IN)
def show(request: Request) -> HttpResponse:
    lines, now = acting_lines(request, "line.view"), timezone.now()
    mine = request.GET.get("who") == "mine"
    groups = turns.groups(lines, request.lines, now, mine=mine)
    context = {
        "overview": Overview(lines, now),
        "groups": groups,
        "late": sum(turn.late for group in groups for turn in group.turns),
        "mine": mine,
        "topics": " ".join(f"{line.code}.{noun}" for line in lines for noun in TOPICS),
    }
    return show_parts(request, "overview/overview.html", context, parts=("live",))


@page(SIGNED_IN)
def stops(request: Request) -> HttpResponse:
    """The menu with its counts, for the page that it stands on (`?at=<noun>`)."""
    return render(request, "components/bar.html#stops")
