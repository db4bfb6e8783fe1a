"""The audit log: who did what to which row, when and why; filters narrow it, keys page it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.facts import audit as facts
from console.forms import AuditFilterForm
from console.http import acting_lines, page
from console.parts import show

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request


@page("audit.view")
def index(request: Request) -> HttpResponse:
    lines = acting_lines(request, "audit.view")
    form = AuditFilterForm(request.GET, people=facts.people(lines), nouns=facts.nouns())
    events = facts.events(lines, **form.filters(), after=request.GET.get("after", ""))
    return show(request, "audit/list.html", {"form": form, "events": events}, parts=("rows",))
