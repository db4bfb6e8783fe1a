"""Promotions: what is asked, what speaks for it, and a second person's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse

from console.facts import promotions as facts
from console.forms import AnswerForm
from console.http import acting_lines, page, render
from console.parts import changed, show
from registry import promotions
from registry.models import Promotion

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request

TEMPLATE = "promotions/detail.html"


@page("line.view")
def index(request: Request) -> HttpResponse:
    lines = acting_lines(request, "line.view")
    context = {
        "promotions": facts.listing(lines, request.GET.get("after", "")),
        "topics": " ".join(f"{line.code}.promotions" for line in lines),
    }
    return show(request, "promotions/list.html", context, parts=("rows",))


@page("line.view", of=Promotion)
def detail(request: Request, promotion: Promotion) -> HttpResponse:
    return show(request, TEMPLATE, _context(request, promotion), parts=("now", "acts", "next", "feed"))


@page("promotion.approve", of=Promotion, methods="POST")
def answer(request: Request, promotion: Promotion) -> HttpResponse:
    form = AnswerForm(request.POST)
    if not form.is_valid():
        return render(
            request, f"{TEMPLATE}#sign" if request.htmx else TEMPLATE, _context(request, promotion, form), status=422
        )
    said = form.cleaned_data
    if said["meaning"] == "APPROVE":
        promotions.approve(promotion, reason=said["reason"], by=request.user, seen_digest=said["seen_digest"])
    else:
        promotions.reject(promotion, reason=said["reason"], by=request.user)
    return _done(request, promotion)


@page("line.view", of=Promotion, methods="POST")
def withdraw(request: Request, promotion: Promotion) -> HttpResponse:
    promotions.withdraw(promotion, by=request.user)
    return _done(request, promotion)


def _done(request: Request, promotion: Promotion) -> HttpResponse:
    to = reverse("promotion-detail", args=[promotion.pk])
    return changed(request, to, TEMPLATE, lambda: _context(request, promotion))


def _context(request: Request, promotion: Promotion, form: AnswerForm | None = None) -> dict[str, Any]:
    return {"promotion": promotion, "form": form or AnswerForm(), **facts.detail(promotion, by=request.user)}
