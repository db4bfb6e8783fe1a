"""Imports and exports: the list, sending an archive, asking for an export, and watching one to its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.http import content_disposition_header

from console import uploads
from console.facts import snapshots as snapshot_facts
from console.facts import transfers as facts
from console.forms import ExportForm
from console.http import acting_lines, go, no_role_sentence, page, render
from console.parts import changed, one_line, show, why_not_on
from registry import blobs
from registry.lifecycle import Refused
from training import policies, transfers
from training.models import Transfer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from console.http import Request

IMPORT, EXPORT = "capture.import", "capture.export"
TEMPLATE = "transfers/detail.html"


@page("line.view")
def index(request: Request) -> HttpResponse:
    lines = acting_lines(request, "line.view")
    context = {
        "transfers": facts.listing(lines, request.GET.get("after", "")),
        "topics": " ".join(f"{line.code}.transfers" for line in lines),
        "why_import": why_not_on(request, IMPORT),
        "why_export": why_not_on(request, EXPORT),
    }
    return show(request, "transfers/list.html", context, parts=("rows",))


@page(EXPORT, methods="GET POST")
def new(request: Request) -> HttpResponse:
    """Both forms. Everybody who may import may also export, not the other way round."""
    if request.GET.get("kind", "import") == "export":
        return _new_export(request)
    lines = acting_lines(request, IMPORT)
    if not lines or request.method != "GET":
        raise PermissionDenied(no_role_sentence())
    context: dict[str, Any] = {"lines": lines, "line": one_line(request, lines)}
    limit = settings.UPLOAD_MAX_BYTES
    context |= {"kind": "import", "limit": limit, "limit_mb": limit // 1_000_000}
    return render(request, "transfers/new.html", context)


def _new_export(request: Request) -> HttpResponse:
    lines = acting_lines(request, EXPORT)
    snapshot = snapshot_facts.asked_for(lines, request.GET.get("snapshot", ""))
    line = snapshot.line if snapshot else one_line(request, lines)
    filters = facts.filters_of(request.GET)
    form = ExportForm(request.POST if request.method == "POST" else None, formats=facts.export_formats())
    if request.method == "POST" and form.is_valid():
        asked = {"selection": filters.query(), **form.cleaned_data}
        made = transfers.ask_export(
            line, code=form.cleaned_data["format"], options=asked, snapshot=snapshot, by=request.user
        )
        return go(request, reverse("transfer-detail", args=[made.pk]))
    context = {"lines": lines, "form": form, **facts.export_draft(line, filters, snapshot, by=request.user)}
    return render(request, "transfers/new.html", {**context, "kind": "export"}, status=422 if form.errors else 200)


@page(IMPORT, methods="POST")
def upload(request: Request) -> HttpResponse:
    """Behind `uploads.door`: first without a body, to admit it; then with the whole of it on disk."""
    arriving = getattr(request, "scope", {}).get(uploads.KEY)
    if arriving is None:
        raise Http404("archives come through the door of console.asgi")
    line = one_line(request, acting_lines(request, IMPORT))
    policies.check_can_receive(line, by=request.user)
    if (answer := uploads.judge(arriving)) is not None:
        return answer
    name = request.GET.get("name", "") or "upload.zip"
    row = transfers.receive(line, arriving.incoming, file_name=name, by=request.user)
    return JsonResponse({"url": reverse("transfer-detail", args=[row.pk])}, status=201)


@page("line.view", of=Transfer)
def detail(request: Request, transfer: Transfer) -> HttpResponse:
    return show(request, TEMPLATE, _context(request, transfer), parts=("now", "acts"))


@page(IMPORT, of=Transfer, methods="POST")
def confirm(request: Request, transfer: Transfer) -> HttpResponse:
    transfers.confirm(transfer, by=request.user)
    return _changed(request, transfer)


@page(IMPORT, of=Transfer, methods="POST")
def look_as(request: Request, transfer: Transfer) -> HttpResponse:
    transfers.look_as(transfer, code=request.POST.get("format", ""), by=request.user)
    return _changed(request, transfer)


@page(EXPORT, of=Transfer, methods="POST")
def cancel(request: Request, transfer: Transfer) -> HttpResponse:
    transfers.cancel(transfer, by=request.user)
    return _changed(request, transfer)


@page(EXPORT, of=Transfer)
def download(request: Request, transfer: Transfer) -> HttpResponseBase:
    """The archive, a megabyte at a time."""
    try:
        policies.check_can_download(transfer, by=request.user)
        handle = blobs.open_read(transfer.digest)
    except (Refused, blobs.Missing) as error:
        raise Http404(str(error)) from error
    asynchronous = hasattr(request, "scope")  # else Django would read the whole file before it sends the first byte
    answer = StreamingHttpResponse(_later(handle) if asynchronous else _now(handle), content_type="application/zip")
    answer["Content-Length"] = str(transfer.size_bytes)
    answer["Content-Disposition"] = content_disposition_header(True, transfers.download_name(transfer)) or ""
    return answer


def _now(handle: Any) -> Iterator[bytes]:
    with handle:
        while block := handle.read(blobs.CHUNK):
            yield block


async def _later(handle: Any) -> AsyncIterator[bytes]:
    with handle:
        while block := await asyncio.to_thread(handle.read, blobs.CHUNK):
            yield block


def _changed(request: Request, transfer: Transfer) -> HttpResponse:
    to = reverse("transfer-detail", args=[transfer.pk])
    return changed(request, to, TEMPLATE, lambda: _context(request, transfer))


def _context(request: Request, transfer: Transfer) -> dict[str, Any]:
    return {"transfer": transfer, **facts.detail(transfer, by=request.user)}
