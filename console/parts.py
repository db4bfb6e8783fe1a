"""Pages whose parts are re-read while they are open: one template, its partials by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import Http404

from console.http import acting_lines, go, is_partial, no_role_sentence, render

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpResponse

    from console.http import Request
    from registry.models import Line


def show(
    request: Request, template: str, context: dict[str, Any], *, parts: tuple[str, ...] = ("now",), status: int = 200
) -> HttpResponse:
    """The page; for htmx the partial that it asks for with `?part=` (the first one when it does not say)."""
    if not is_partial(request) or request.htmx.boosted:
        return render(request, template, context, status=status)
    name = request.GET.get("part") or parts[0]
    if name not in parts:
        raise Http404(f"{template} has no part {name}")
    return render(request, f"{template}#{name}", context, status=status)


def changed(
    request: Request, to: str, template: str, context: Callable[[], dict[str, Any]], *, part: str = "now"
) -> HttpResponse:
    """After a POST: the changed partial for htmx (its context is read after the change), else a redirect."""
    if is_partial(request):
        return render(request, f"{template}#{part}", context())
    return go(request, to)


def why_not_on(request: Request, action: str) -> str:
    """The sentence beside a button that this person's roles do not cover on any line shown; "" when they do."""
    return "" if acting_lines(request, action) else no_role_sentence()


def one_line(request: Request, lines: list[Line]) -> Line:
    """The line that a page about exactly one is for: the one in the form, else the first of those it may be."""
    code = request.POST.get("in") or request.GET.get("in") or lines[0].code
    found = next((line for line in lines if line.code == code), None)
    if found is None:
        raise Http404(f"no line {code}")
    return found
