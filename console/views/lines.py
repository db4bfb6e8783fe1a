"""Lines: how each is run, and its defect book: classes with keys and pictures, retired, restored and merged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.facts import classes as book
from console.facts import lines as facts
from console.forms import ReasonForm
from console.http import acting_lines, go, is_partial, page, render
from console.line_forms import ClassForm, LineForm
from console.parts import show
from registry import classes, lines
from registry.models import DefectClass, Line
from training import merges
from training.models import ClassMerge

if TYPE_CHECKING:
    from django.http import HttpResponse

    from console.http import Request


@page("line.view")
def index(request: Request) -> HttpResponse:
    found = facts.listing(acting_lines(request, "line.view"), request.GET.get("after", ""))
    return render(request, "lines/list.html", {"lines": found})


@page("line.view", of=Line, line_path="self")
def detail(request: Request, line: Line) -> HttpResponse:
    """The book's usage is counted only when that part is read again, which the page does at once."""
    context = facts.detail(line, by=request.user, counted=is_partial(request))
    return show(request, "lines/detail.html", context, parts=("book",))


@page("line.settings", of=Line, methods="GET POST", line_path="self")
def settings(request: Request, line: Line) -> HttpResponse:
    form = LineForm(request.POST or None, initial=LineForm.shown(line))
    if request.method == "POST" and form.is_valid():
        lines.change_settings(line, reason=form.cleaned_data["reason"], by=request.user, **form.wanted())
        messages.success(request, _("Settings changed."))
        return go(request, reverse("line-detail", args=[line.pk]))
    return render(request, "lines/settings.html", {"line": line, "form": form}, status=422 if form.errors else 200)


# ------------------------------------------------------------------------------------------------ classes


@page("book.edit", of=Line, methods="GET POST", line_path="self")
def new_class(request: Request, line: Line) -> HttpResponse:
    form = ClassForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        entry = lines.add_class(line, by=request.user, **form.cleaned_data)
        messages.success(request, _("Class %(n)s added.") % {"n": entry.number})
        return go(request, reverse("line-class", args=[entry.pk]))
    return render(request, "lines/class_new.html", {"line": line, "form": form}, status=422 if form.errors else 200)


@page("line.view", of=DefectClass)
def show_class(request: Request, entry: DefectClass) -> HttpResponse:
    if is_partial(request):
        return render(request, "lines/class.html#used", {"entry": entry, "used": book.used(entry)})
    return render(request, "lines/class.html", _class(request, entry))


@page("book.edit", of=DefectClass, methods="POST")
def change_class(request: Request, entry: DefectClass) -> HttpResponse:
    form = ClassForm(request.POST, fixed=True)
    if not form.is_valid():
        return render(request, "lines/class.html", {**_class(request, entry), "form": form}, status=422)
    classes.change(entry, by=request.user, **form.cleaned_data)
    messages.success(request, _("Saved."))
    return _back(request, entry)


@page("book.edit", of=DefectClass, methods="POST")
def retire_class(request: Request, entry: DefectClass) -> HttpResponse:
    classes.retire(entry, reason=_reason(request), by=request.user)
    return _back(request, entry)


@page("book.edit", of=DefectClass, methods="POST")
def restore_class(request: Request, entry: DefectClass) -> HttpResponse:
    classes.restore(entry, reason=_reason(request), by=request.user)
    return _back(request, entry)


@page("book.edit", of=DefectClass, methods="GET POST")
def merge_class(request: Request, entry: DefectClass) -> HttpResponse:
    """What merging would change; the POST does it."""
    if request.method == "POST":
        done = merges.merge(
            entry, book.target(entry, request.POST.get("into", "")), reason=_reason(request), by=request.user
        )
        text = ngettext("%(n)s decision moved.", "%(n)s decisions moved.", done.moved)
        messages.success(request, text % {"n": f"{done.moved:,}"})
        return _back(request, entry)
    context = book.merging(entry, book.target(entry, request.GET.get("into", "")))
    return render(request, "lines/merge.html", {"line": entry.line, **context})


@page("book.edit", of=ClassMerge, methods="POST")
def undo_merge(request: Request, merge: ClassMerge) -> HttpResponse:
    done = merges.undo(merge, reason=_reason(request), by=request.user)
    text = ngettext("%(n)s decision is as before.", "%(n)s decisions are as before.", done.restored)
    messages.success(request, text % {"n": f"{done.restored:,}"})
    if done.left:
        text = ngettext(
            "%(n)s was changed since and left as it is.", "%(n)s were changed since and left as they are.", done.left
        )
        messages.warning(request, text % {"n": f"{done.left:,}"})
    return _back(request, done.source)


def _class(request: Request, entry: DefectClass) -> dict[str, Any]:
    names = ("name_ko", "name_en", "hotkey", "critical")
    form = ClassForm(initial={name: getattr(entry, name) for name in names}, fixed=True)
    return {"entry": entry, "line": entry.line, "form": form, "used": None, **book.detail(entry, by=request.user)}


def _reason(request: Request) -> str:
    form = ReasonForm(request.POST)
    return str(form.cleaned_data["reason"]) if form.is_valid() else ""


def _back(request: Request, entry: DefectClass) -> HttpResponse:
    return go(request, reverse("line-class", args=[entry.pk]))
