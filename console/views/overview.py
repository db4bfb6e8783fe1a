"""What needs a human now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from console.http import SIGNED_IN, page, render

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request


@page(SIGNED_IN)
def show(request: Request) -> HttpResponse:
    return render(request, "overview/overview.html", {})


@page(SIGNED_IN)
def stops(request: Request) -> HttpResponse:
    """The menu with its counts, for the page that asks."""
    return render(request, "components/bar.html#stops")
