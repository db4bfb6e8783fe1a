"""Review: the grid, the single view where people decide, and the pictures themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseNotModified, JsonResponse, QueryDict
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from console import previews
from console.facts import captures as facts
from console.facts import changes, classes, explained
from console.facts import filters as narrowing
from console.facts.captures import Reading
from console.facts.filters import Filters
from console.facts.tiles import tiles
from console.forms import CommentForm, DecisionForm, DraftForm, ReasonForm, WindowForm
from console.http import acting_lines, back, go, page, render, wants_json
from edge.pictures import PictureRefused
from registry import blobs, counters
from registry.lifecycle import Refused, why_not
from training import captures, checks, counts, drafts, examples, explanations, pictures, policies, queue
from training import review as reviewing
from training.models import Capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.http import Request
    from registry.models import Line

REVIEW = "capture.review"
VIEW_NAMELESS = gettext_noop("Give the view a name.")


# ------------------------------------------------------------------------------------------------ pages


@page("line.view")
def index(request: Request) -> HttpResponse:
    lines, filters = acting_lines(request, "line.view"), Filters.read(request.GET)
    found = facts.grid(lines, filters, request.GET.get("after", ""), request.user)
    mine = [line for line in request.lines.that_allow(REVIEW) if line in lines]
    supervised = request.lines.that_allow("capture.supervise")
    choices, picked = facts.choices(lines), facts.picked(filters, lines)
    context = {
        "page": found,
        "filters": filters,
        "picked": picked,
        "choices": choices,
        "chips": filters.chips(choices.class_names, picked),
        "presets": narrowing.presets(supervising=bool(supervised)),
        "views": list(request.user.saved_views.all()),
        "orders": narrowing.orders(),
        "reasons": narrowing.reasons(supervising=bool(supervised), show=filters.show),
        "lines": lines,
        "tiles": tiles(found, request.user, supervised),
        "reviewing": mine,
        # Deciding together needs one defect book: that of the one line shown.
        "book": classes.buttons(mine[0]) if len(mine) == len(lines) == 1 else [],
        "can_import": request.lines.allow("capture.import", request.line),
        "can_manage_golden": len(lines) == 1 and request.lines.allow("golden.manage", lines[0]),
        "can_export": request.lines.allow("capture.export", request.line),
        "waiting": sum(counters.value(line, counts.NEW) for line in lines),
        "query": filters.query(),
        "credits": sorted({row.line.credit for row in found if row.line.credit}),
    }
    return render(request, "captures/grid.html", context)


@page(REVIEW)
def review(request: Request) -> HttpResponse:
    """The single view: the person's next pictures, leased to them, and the first of them to decide."""
    lines, filters = acting_lines(request, REVIEW), Filters.read(request.GET)
    line = _line_with_work(lines)
    rail = reviewing.rail(line, by=request.user, count=facts.RAIL, want=filters.want(line, request.user))
    if asked := request.GET.get("at"):
        rail = _beginning_with(request, line, asked, rail)
    current = rail[0] if rail else None
    context = {
        "line": line,
        "lines": lines,
        "filter_words": filters.words(picked := facts.picked(filters, [line])),
        "picked": picked,
        "query": filters.query(),
        "rail": rail,
        "current": current,
        "reading": Reading(current, request.user) if current else None,
        "waiting": reviewing.left(line, by=request.user),
        "book": classes.sheet(line),
        "skipped": 0 if current else reviewing.skipped_count(line, by=request.user),
    }
    return render(request, "captures/review.html", context)


@page("line.view", of=Capture)
def detail(request: Request, capture: Capture) -> HttpResponse:
    """One picture with everything that is known of it; deciding happens in the review."""
    capture = checks.as_asked(capture, by=request.user)
    supervising = policies.can_see_reasons(capture.line, by=request.user) and not checks.of(capture)
    reading = Reading(capture, request.user, supervising=supervising)
    asked = None if reading.blind else explained.asked(capture)
    if request.GET.get("asked"):  # the page waits for an answer
        return HttpResponse(status=204, headers={} if asked and asked.pending else {"HX-Refresh": "true"})
    reading.asked_map = asked.map if asked else None
    return render(
        request,
        "captures/detail.html",
        {
            "capture": capture,
            "line": capture.line,
            "reading": reading,
            "asked": asked,
            "may_review": request.lines.allow(REVIEW, capture.line),
            "went": changes.whereabouts(capture),
            "held": facts.held_by_other(capture, request.user),
            "why_not_free": why_not(policies.check_can_free, capture, by=request.user),
            "can_give_example": policies.can_give_example(capture, by=request.user),
        },
    )


@page(REVIEW, of=Capture, methods="POST")
def ask(request: Request, capture: Capture) -> HttpResponse:
    """Ask the line's champion about this picture."""
    explanations.ask(checks.as_asked(capture, by=request.user), by=request.user)
    return go(request, reverse("capture-detail", args=[capture.pk]))


@page(REVIEW, of=Capture)
def work(request: Request, capture: Capture) -> HttpResponse:
    """Middle and right of the review for one picture, fetched ahead: the next one is there before the key."""
    capture = reviewing.opened(capture, by=request.user)
    context = {
        "reading": Reading(capture, request.user),
        "current": capture,
        "query": Filters.read(request.GET).query(),
    }
    return render(request, "captures/review.html#work", context)


def _line_with_work(lines: list[Line]) -> Line:
    """With several lines shown, the one with the longest queue."""
    return max(lines, key=lambda line: counters.value(line, counts.NEW))


def _beginning_with(request: Request, line: Line, asked: str, rail: list[Capture]) -> list[Capture]:
    """Put the picture that was asked for first, leased too if it can be."""
    try:
        first = Capture.objects.select_related("line__site").filter(line=line, pk=asked).first()
    except ValueError:
        first = None
    if first is None:
        raise Http404(f"no capture {asked} on line {line.code}")
    first = reviewing.opened(first, by=request.user)
    return [first, *(row for row in rail if row.pk != first.pk)]


# ------------------------------------------------------------------------------------------------ acts


@page(REVIEW, of=Capture, methods="POST")
def decide(request: Request, capture: Capture) -> HttpResponse:
    form = DecisionForm(request.POST)
    if not form.is_valid():
        raise Refused(form.problem)
    verdict, classes = form.cleaned_data["choice"]
    said = {name: form.cleaned_data[name] for name in ("comment", "regions")}
    reviewing.decide(capture, verdict=verdict, classes=classes, by=request.user, **said)
    return _next(request, capture.line)


@page(REVIEW, methods="POST")
def decide_together(request: Request) -> HttpResponse:
    """Decide what was chosen in the grid: exactly these pictures, whatever their filter would show by now."""
    line, form = _line_asked(request), DecisionForm(request.POST)
    if not form.is_valid():
        raise Refused(form.problem)
    verdict, classes = form.cleaned_data["choice"]
    done = captures.decide_together(
        line, ids_sent(request), verdict=verdict, classes=classes, comment=form.cleaned_data["comment"], by=request.user
    )
    tell_together(request, done)
    return _grid(request)


def tell_together(request: Request, done: captures.Together) -> None:
    """What was decided together, and which pictures were left alone and why."""
    if done.decided:
        n = len(done.decided)
        text = ngettext("%(n)s picture decided.", "%(n)s pictures decided.", n)
        if done.decided[0].line.opinions > 1:
            text = ngettext(
                "Your opinion of %(n)s picture is recorded.", "Your opinions of %(n)s pictures are recorded.", n
            )
        messages.success(request, text % {"n": n})
    for sentence, names in facts.left_alone(done):
        messages.warning(request, f"{names}: {sentence}")


@page(REVIEW, methods="POST")
def undo_in_grid(request: Request) -> HttpResponse:
    """Take back what this person decided last on the line: one picture, or all that were decided together."""
    captures.undo_last(by=request.user, line=_line_asked(request))
    messages.success(request, _("Taken back."))
    return _grid(request)


@page("capture.supervise", of=Capture, methods="POST")
def free(request: Request, capture: Capture) -> HttpResponse:
    queue.free(capture, by=request.user)
    messages.success(request, _("%(capture)s is back in the queue.") % {"capture": capture})
    return go(request, reverse("capture-detail", args=[capture.pk]))


@page("line.view", methods="POST")
def keep_view(request: Request) -> HttpResponse:
    """Keep the filters shown under a name, or forget the view of that name."""
    name = request.POST.get("name", "").strip()[:60]
    query = Filters.read(QueryDict(request.POST.get("query", ""))).query()
    if not name:
        raise Refused(VIEW_NAMELESS)
    if request.POST.get("forget"):
        request.user.saved_views.filter(name=name).delete()
    else:
        request.user.saved_views.update_or_create(name=name, defaults={"query": query})
    return _grid(request)


def _line_asked(request: Request) -> Line:
    line = request.lines.by_code(request.POST.get("line", ""))
    if line is None:
        raise Http404("no such line")
    return line


def ids_sent(request: Request) -> list[UUID]:
    try:
        return [UUID(text) for text in request.POST.getlist("id")]
    except ValueError as error:
        raise Http404("no such capture") from error


def _grid(request: Request) -> HttpResponse:
    """Back to the page that the form was on: the grid as it was shown, page and all, unless it names another."""
    if request.POST.get("next"):
        return go(request, back(request))
    query = QueryDict(request.POST.get("query", ""), mutable=True)
    if after := request.POST.get("after", ""):
        query["after"] = after
    return go(request, f"{reverse('capture-list')}?{query.urlencode()}")


@page(REVIEW, of=Capture, methods="POST")
def draft(request: Request, capture: Capture) -> HttpResponse:
    """Keep what this person has drawn and typed so far; 409 with what stands when another page of theirs saved it."""
    form = DraftForm(request.POST)
    if not form.is_valid():
        raise Refused(form.problem)
    sent = form.cleaned_data
    try:
        kept = drafts.save(
            capture, drawn=sent["regions"], comment=sent["comment"], version=sent["version"], tab=sent["tab"],
            by=request.user,
        )  # fmt: skip
    except drafts.Changed as changed:
        standing = facts.draft_words(changed.standing)
        return JsonResponse({"error": "changed", "sentence": str(changed), "standing": standing}, status=409)
    return JsonResponse(facts.draft_words(kept))


@page(REVIEW, of=Capture, methods="POST")
def skip(request: Request, capture: Capture) -> HttpResponse:
    reviewing.skip(capture, by=request.user)
    return _next(request, capture.line)


@page(REVIEW, of=Capture, methods="POST")
def second_look(request: Request, capture: Capture) -> HttpResponse:
    form = CommentForm(request.POST)
    comment = form.cleaned_data["comment"] if form.is_valid() else ""
    reviewing.ask_second_look(capture, by=request.user, comment=comment)
    return _next(request, capture.line)


@page(REVIEW, methods="POST")
def undo(request: Request) -> HttpResponse:
    """Take back this person's last decision or skip on the line, whichever picture it was."""
    line = _line_asked(request)
    capture = reviewing.undo_last(by=request.user, line=line)
    return _next(request, line, at=capture.pk)


@page(REVIEW, of=Capture, methods="POST")
def retract(request: Request, capture: Capture) -> HttpResponse:
    form = ReasonForm(request.POST)
    captures.retract(capture, reason=form.cleaned_data["reason"] if form.is_valid() else "", by=request.user)
    return go(request, reverse("capture-detail", args=[capture.pk]))


@page("book.edit", of=Capture, methods="POST")
def example(request: Request, capture: Capture) -> HttpResponse:
    """Show this picture in the defect book as an example of its class, or no longer."""
    text = request.POST.get("class", "")
    number = int(text) if text.isdecimal() else 0
    if request.POST.get("remove"):
        examples.remove(capture, number=number, by=request.user)
    else:
        examples.add(capture, number=number, by=request.user)
    return go(request, back(request, reverse("capture-detail", args=[capture.pk])))


def _next(request: Request, line: Line, at: UUID | None = None) -> HttpResponse:
    """After an act: for the script the queue as it is now, for a plain form the next picture."""
    filters = Filters.read(request.GET)
    if not wants_json(request):
        query = "&".join(part for part in (f"line={line.code}", f"at={at}" if at else "", filters.query()) if part)
        return go(request, f"{reverse('capture-review')}?{query}")
    rail = reviewing.rail(line, by=request.user, count=facts.RAIL, want=filters.want(line, request.user))
    if at is not None:
        rail = _beginning_with(request, line, str(at), rail)
    known = set(request.POST.get("known", "").split(",")) - {str(at)}
    return JsonResponse(
        {
            "at": str(at) if at else None,
            "left": reviewing.left(line, by=request.user),
            "saved": timezone.localtime().strftime("%H:%M:%S"),
            "rail": [_rail_item(request, row) for row in rail if str(row.pk) not in known],
        }
    )


def _rail_item(request: Request, capture: Capture) -> dict[str, str]:
    html = render_to_string("captures/review.html#rail_item", {"capture": capture}, request)
    return {"id": str(capture.pk), "html": html}


# ------------------------------------------------------------------------------------------------ pictures


@page("line.view", of=Capture)
def picture(request: Request, capture: Capture) -> HttpResponse:
    """A JPEG for every browser, `?size=thumb|stage`, upright, no metadata: 16-bit greys through the line's window, or
    through `?low=&high=` in stored values.
    """
    size = request.GET.get("size", "stage")
    if size not in previews.SIZES:
        raise Http404(f"no size {size}")
    window = WindowForm(request.GET).window() if previews.deep(capture) else None
    return _jpeg(request, previews.name(capture, size, window), lambda: previews.read(capture, size, window))


@page("line.view", of=Capture)
def tile(request: Request, capture: Capture, level: int, column: int, row: int) -> HttpResponse:
    """A part of a picture that is larger than the stage, 512 pixels wide and high at `level` halvings."""
    window = WindowForm(request.GET).window() if previews.deep(capture) else None
    name = f"{previews.name(capture, 'stage', window)}-{level}-{column}-{row}"
    return _jpeg(request, name, lambda: previews.tile(capture, level, column, row, window))


def _jpeg(request: Request, name: str, draw: Callable[[], bytes | None]) -> HttpResponse:
    """What `draw` gives as an answer that the browser keeps for a while, or why it cannot be shown."""
    headers = {"ETag": f'"{name}"', "Cache-Control": "private, max-age=600", "Vary": "Cookie"}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return HttpResponseNotModified(headers=headers)
    try:
        drawn = draw()
    except PictureRefused as refused:
        return HttpResponse(pictures.sentence(refused), status=422, content_type="text/plain; charset=utf-8")
    except (blobs.Missing, blobs.Damaged):
        sentence = _("The stored bytes of this picture are missing or damaged. Tell your site administrator.")
        return HttpResponse(sentence, status=410, content_type="text/plain; charset=utf-8")
    if drawn is None:
        raise Http404(f"no part {name}")
    return HttpResponse(drawn, content_type="image/jpeg", headers=headers)


@page("line.view", of=Capture)
def levels(request: Request, capture: Capture) -> HttpResponse:
    """For the sliders of a 16-bit picture: its stored values from least to greatest, and its window."""
    if not previews.deep(capture):
        raise Http404(f"capture {capture.pk} has 8 bits")
    try:
        return JsonResponse(previews.levels(capture))
    except (PictureRefused, blobs.Missing, blobs.Damaged):
        return JsonResponse({"error": "broken"}, status=410)  # the canvas says so in words


@page("line.view", of=Capture)
def original(request: Request, capture: Capture) -> HttpResponse:
    """The bytes that the device sent, bit by bit, as a file to keep; never shown by the browser itself."""
    try:
        data = blobs.read(capture.digest)
    except blobs.Missing as error:
        raise Http404(f"no bytes {capture.digest}") from error
    answer = HttpResponse(
        data, content_type="application/octet-stream", headers={"Cache-Control": "private, max-age=600"}
    )
    answer.headers["Content-Disposition"] = _attachment(capture)
    return answer


def _attachment(capture: Capture) -> str:
    from django.utils.http import content_disposition_header

    return content_disposition_header(True, capture.file_name or f"{capture.digest[:16]}.bin") or "attachment"
