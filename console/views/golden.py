"""Golden sets: the sets of each line, one edition, making the next, and keeping them: owner, expiry, retirement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from console.facts import golden as facts
from console.facts.filters import Filters
from console.forms import EditionForm, ExpiryForm, GoldenForm, OwnerForm, ReasonForm
from console.http import acting_lines, go, page, render
from console.parts import one_line, show, why_not_on
from registry.lifecycle import Refused
from training import golden
from training.models import GoldenSet

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request
    from registry.models import Line
    from training.models import Capture

MANAGE = "golden.manage"


@page("line.view")
def index(request: Request) -> HttpResponse:
    lines = acting_lines(request, "line.view")
    context = {
        "sets": facts.listing(lines, timezone.now()),
        "topics": " ".join(f"{line.code}.snapshots" for line in lines),
        "why_new": why_not_on(request, MANAGE),
    }
    return show(request, "golden/list.html", context, parts=("rows",))


@page("line.view", of=GoldenSet)
def detail(request: Request, golden_set: GoldenSet) -> HttpResponse:
    context = facts.detail(golden_set, request.GET.get("after", ""), by=request.user, now=timezone.now())
    return render(request, "golden/detail.html", context)


@page(MANAGE, methods="GET POST")
def new(request: Request) -> HttpResponse:
    """A new set of what the review's filters show, or of pictures named by id; nothing is written before it is made."""
    lines = acting_lines(request, MANAGE)
    line, making = one_line(request, lines), request.POST.get("do") == "make"
    form = GoldenForm(request.POST or None, owners=facts.owners(line), initial={"owner": request.user})
    offered, picked = _offered(request, line, [])
    if making and form.is_valid():
        made = golden.create(
            line, captures=golden.as_decided(line, picked or []), by=request.user, **form.fields_of(line)
        )
        return _done(request, made)
    sets = facts.listing([line], timezone.now())
    return _choose(request, line, {"form": form, "lines": lines, "sets": sets, "golden_set": None}, offered, picked)


@page(MANAGE, of=GoldenSet, methods="GET POST")
def edition(request: Request, golden_set: GoldenSet) -> HttpResponse:
    """The next edition: what is in the set now, more of what the filters show, and less of what is unticked."""
    line, making = golden_set.line, request.POST.get("do") == "make"
    form = EditionForm(request.POST or None, owners=facts.owners(line), initial=EditionForm.of(golden_set))
    offered, picked = _offered(request, line, facts.in_set(golden_set))
    if making and form.is_valid():
        chosen = golden.as_decided(line, picked or [])
        return _done(request, golden.renew(golden_set, captures=chosen, by=request.user, **form.fields_of(line)))
    return _choose(request, line, {"form": form, "golden_set": golden_set}, offered, picked)


def _offered(request: Request, line: Line, standing: list[Capture]) -> tuple[list[Capture], list[Capture] | None]:
    """What the page offers, and what the person ticked (None before they could)."""
    chosen = facts.named(request.GET.getlist("id"), request.lines.all)
    offered = facts.union(standing, chosen, facts.selected(line, Filters.read(request.GET), by=request.user))
    if request.method != "POST":
        return offered, None
    picked = facts.named(request.POST.getlist("id"), request.lines.all)
    return facts.union(picked, offered), picked


def _choose(
    request: Request, line: Line, context: dict[str, Any], offered: list[Capture], picked: list[Capture] | None
) -> HttpResponse:
    filters = Filters.read(request.GET)
    context |= {"line": line, "query": filters.query(), "words": filters.words(), "full": len(offered) >= facts.MOST}
    context |= facts.choice(line, context["golden_set"], offered, picked)
    wrong = context["form"].is_bound and bool(context["form"].errors)
    return render(request, "golden/new.html", context, status=422 if wrong else 200)


@page(MANAGE, of=GoldenSet, methods="POST")
def retire(request: Request, golden_set: GoldenSet) -> HttpResponse:
    form = ReasonForm(request.POST)
    golden.retire(golden_set, reason=form.cleaned_data["reason"] if form.is_valid() else "", by=request.user)
    return _done(request, golden_set)


@page(MANAGE, of=GoldenSet, methods="POST")
def extend(request: Request, golden_set: GoldenSet) -> HttpResponse:
    form = ExpiryForm(request.POST)
    if not form.is_valid():
        raise Refused(form.problem)
    golden.extend(
        golden_set, expires_at=form.expires_at(golden_set.line), reason=form.cleaned_data["reason"], by=request.user
    )
    return _done(request, golden_set)


@page(MANAGE, of=GoldenSet, methods="POST")
def hand_over(request: Request, golden_set: GoldenSet) -> HttpResponse:
    form = OwnerForm(request.POST, owners=facts.owners(golden_set.line))
    if not form.is_valid():
        raise Refused(form.problem)
    golden.hand_over(golden_set, owner=form.cleaned_data["owner"], by=request.user)
    return _done(request, golden_set)


def _done(request: Request, golden_set: GoldenSet) -> HttpResponse:
    messages.success(request, _("Saved."))
    return go(request, reverse("golden-detail", args=[golden_set.pk]))
