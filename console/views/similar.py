"""Decide all pictures that are like one, after a look at those that are nearly not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import reverse

from console.facts import similar as facts
from console.forms import DecisionForm
from console.http import go, page, render
from console.views.captures import REVIEW, ids_sent, tell_together
from registry.lifecycle import Refused
from training import checks, review
from training.models import Capture

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request


@page(REVIEW, of=Capture, methods="GET POST")
def alike(request: Request, capture: Capture) -> HttpResponse:
    """Exactly the pictures that were ticked on the page are decided, as the picked one is."""
    if request.method == "POST":
        return _decide(request, capture)
    least = facts.least_asked(request.GET.get("least", ""))
    shown = checks.as_asked(capture, by=request.user)
    return render(request, "captures/alike.html", facts.page(shown, least, by=request.user))


def _decide(request: Request, capture: Capture) -> HttpResponse:
    form = DecisionForm(request.POST)
    if not form.is_valid():
        raise Refused(form.problem)
    verdict, classes = form.cleaned_data["choice"]
    done = review.decide_like(capture, ids_sent(request), verdict=verdict, classes=classes, by=request.user)
    tell_together(request, done)
    least = facts.least_asked(request.POST.get("least", ""))
    return go(request, f"{reverse('capture-alike', args=[capture.pk])}?least={least:g}")
