"""The versions of topics for pages whose socket may be down: the same answer, asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import JsonResponse

from console.http import SIGNED_IN, page
from console.live import MOST_TOPICS, line_of
from registry import events

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request


@page(SIGNED_IN)
def versions(request: Request) -> HttpResponse:
    """{topic: version} of the topics asked for, as far as their lines are this person's."""
    codes = {line.code for line in request.lines.all}
    asked = request.GET.get("topics", "").split()[:MOST_TOPICS]
    return JsonResponse(events.current(*(topic for topic in asked if line_of(topic) in codes)))
