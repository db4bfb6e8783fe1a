"""Edge devices: what each runs and when it was last heard, enrolling, keeping one away, asking one for pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils import timezone

from console.facts import devices as facts
from console.forms import DeviceForm, FlagForm
from console.http import acting_lines, page, render
from console.parts import changed, show, why_not_on
from registry import devices
from registry.models import Device

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpResponse

    from console.http import Request

TEMPLATE = "devices/detail.html"


@page("line.view")
def index(request: Request) -> HttpResponse:
    lines = acting_lines(request, "line.view")
    context = {
        "devices": facts.listing(lines, request.GET.get("after", ""), now=timezone.now()),
        "summary": facts.summary(lines, now=timezone.now()),
        "topics": " ".join(f"{line.code}.devices" for line in lines),
        "why_new": why_not_on(request, "device.administer"),
    }
    return show(request, "devices/list.html", context, parts=("rows",))


@page("device.administer", methods="GET POST")
def new(request: Request) -> HttpResponse:
    form = DeviceForm(request.POST or None, lines=acting_lines(request, "device.administer"))
    if request.method == "POST" and form.is_valid():
        station = form.cleaned_data["station"]
        device, token = devices.create(station.line, station, code=form.cleaned_data["code"], by=request.user)
        return _token(request, device, token)
    return render(request, "devices/new.html", {"form": form}, status=422 if form.errors else 200)


@page("device.administer", of=Device, methods="POST")
def token(request: Request, device: Device) -> HttpResponse:
    return _token(request, device, devices.new_token(device, by=request.user))


@page("line.view", of=Device)
def detail(request: Request, device: Device) -> HttpResponse:
    return show(request, TEMPLATE, _context(request, device), parts=("now", "acts"))


@page("device.administer", of=Device, methods="POST")
def quarantine(request: Request, device: Device) -> HttpResponse:
    return _act(request, device, devices.quarantine)


@page("device.administer", of=Device, methods="POST")
def activate(request: Request, device: Device) -> HttpResponse:
    return _act(request, device, devices.activate)


@page("device.administer", of=Device, methods="POST")
def retire(request: Request, device: Device) -> HttpResponse:
    return _act(request, device, devices.retire)


@page("capture.flag", of=Device, methods="POST")
def flag(request: Request, device: Device) -> HttpResponse:
    form = FlagForm(request.POST)
    if not form.is_valid():
        return render(request, TEMPLATE, {**_context(request, device), "flag_form": form}, status=422)
    devices.ask_for_pictures(device, count=form.cleaned_data["count"], by=request.user)
    return _done(request, device)


def _act(request: Request, device: Device, verb: Callable[..., Any]) -> HttpResponse:
    verb(device, by=request.user, reason=request.POST.get("reason", ""))
    return _done(request, device)


def _done(request: Request, device: Device) -> HttpResponse:
    to = reverse("device-detail", args=[device.pk])
    return changed(request, to, TEMPLATE, lambda: _context(request, device))


def _token(request: Request, device: Device, token: str) -> HttpResponse:
    """The token's only appearance: the answer to the POST itself, never an address that could be opened again."""
    server = f"{request.scheme}://{request.get_host()}"
    return render(request, "devices/token.html", {"device": device, "token": token, "server": server})


def _context(request: Request, device: Device) -> dict[str, Any]:
    return {"device": device, "flag_form": FlagForm(), **facts.detail(device, by=request.user, now=timezone.now())}
