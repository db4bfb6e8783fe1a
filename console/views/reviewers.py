"""About reviewing itself: how reliably people judge, the line's policy, and the estimated escape rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.facts import reviewers as facts
from console.forms import ReviewPolicyForm
from console.http import acting_lines, go, page, render
from registry.models import Line
from training import opinions, reliability

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request


@page("capture.review")
def index(request: Request) -> HttpResponse:
    lines, now = acting_lines(request, "capture.review"), timezone.now()
    supervised = request.lines.that_allow("capture.supervise")
    context = {
        "found": [facts.LineReliability(line, request.user, now, all_of_them=line in supervised) for line in lines],
        "days": reliability.SINCE.days,
        "may_set": request.lines.that_allow("review.policy"),
    }
    return render(request, "reviewers/list.html", context)


@page("line.view")
def escapes(request: Request) -> HttpResponse:
    found = facts.escapes_of(acting_lines(request, "line.view"), timezone.now())
    context = {"found": found, "may_set": request.lines.that_allow("review.policy")}
    return render(request, "reviewers/escapes.html", context)


@page("review.policy", of=Line, line_path="self", methods="GET POST")
def policy(request: Request, line: Line) -> HttpResponse:
    cost = facts.PolicyCost(line)
    form = ReviewPolicyForm(request.POST or None, line=line, reviewers=cost.reviewers)
    if request.method == "POST" and form.is_valid():
        settled = opinions.set_policy(line, **form.policy(), by=request.user)
        messages.success(request, _("Saved."))
        if settled:
            told = ngettext(
                "%(n)s waiting picture has enough opinions now and was settled.",
                "%(n)s waiting pictures have enough opinions now and were settled.",
                settled,
            )
            messages.success(request, told % {"n": settled})
        return go(request, reverse("reviewer-policy", args=[line.pk]))
    status = 422 if form.errors else 200
    return render(request, "reviewers/policy.html", {"line": line, "form": form, "cost": cost}, status=status)
