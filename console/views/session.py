"""Signing in and out, and what a person prefers: language, theme and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, logout
from django.http import HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from console import keys, throttle
from console.facts import keys as facts
from console.forms import SignInForm
from console.http import SIGNED_IN, THEMES, back, go, page, public, render, signed_in
from console.models import User
from registry import audit
from registry.lifecycle import Refused

if TYPE_CHECKING:
    from console.http import Request

YEAR_S = 365 * 24 * 3600


@public("nobody is signed in yet")
def sign_in(request: Request) -> HttpResponse:
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "POST"])
    onwards = _onwards(request)
    if request.method != "POST":
        if signed_in(request):
            return HttpResponseRedirect(onwards)
        return render(request, "session/sign_in.html", {"form": SignInForm(request), "next": onwards})
    form, status = _try(request)
    if form.is_valid() and status == 200:
        login(request, form.get_user())
        audit.record(form.get_user(), "person.signed_in", form.get_user())
        return HttpResponseRedirect(onwards)
    return render(request, "session/sign_in.html", {"form": form, "next": onwards}, status=status)


def _try(request: Request) -> tuple[SignInForm, int]:
    """The filled form and the status of its answer; a throttled try never looks at the password."""
    name, address = request.POST.get("username", ""), request.META.get("REMOTE_ADDR", "")
    try:
        throttle.check(name, address)
    except Refused as error:
        form = SignInForm(request, initial={"username": name})
        form.refused = str(error)  # type: ignore[attr-defined]
        return form, 429
    form = SignInForm(request, data=request.POST)
    (throttle.passed if form.is_valid() else throttle.failed)(name, address)
    return form, 200 if form.is_valid() else 422


def _onwards(request: Request) -> str:
    target = request.POST.get("next") or request.GET.get("next") or "/"
    return target if url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure()) else "/"


@page(SIGNED_IN, methods="POST")
def sign_out(request: Request) -> HttpResponse:
    audit.record(request.user, "person.signed_out", request.user)
    logout(request)
    # Pictures may stay in the browser's cache for minutes; on a shared PC they go with the person.
    return HttpResponseRedirect(reverse("session-sign-in"), headers={"Clear-Site-Data": '"cache"'})


@public("the sign-in page has a language and a theme too")
def preferences(request: Request) -> HttpResponse:
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    wanted: dict[str, Any] = {}
    if (theme := request.POST.get("theme")) in THEMES:
        wanted["theme"] = theme
    if (language := request.POST.get("language")) in dict(settings.LANGUAGES):
        wanted["language"] = language
    if request.user.is_authenticated and wanted:
        User.objects.filter(pk=request.user.pk).update(**wanted)
    answer = HttpResponseRedirect(back(request))
    for name, cookie in (("theme", "loopline_theme"), ("language", settings.LANGUAGE_COOKIE_NAME)):
        if name in wanted:
            answer.set_cookie(
                cookie, wanted[name], YEAR_S, samesite="Lax", secure=settings.SESSION_COOKIE_SECURE, httponly=True
            )
    return answer


@page(SIGNED_IN, methods="GET POST")
def own_keys(request: Request) -> HttpResponse:
    """This person's keys, wherever they sign in; F5 and F8 are a matter of the workstation."""
    taken = facts.class_keys(request.lines.that_allow("capture.review"))
    sent = {} if request.POST.get("defaults") else request.POST
    wanted = keys.read(sent) if request.method == "POST" else keys.of(request.user)
    context = facts.page(wanted, taken)
    if request.method != "POST":
        return render(request, "session/keys.html", context)
    if context["against"]:
        return render(request, "session/keys.html", context, status=422)
    keys.choose(request.user, wanted)
    messages.success(request, _("Saved."))
    answer = go(request, reverse("session-keys"))
    fkeys = "1" if request.POST.get("fkeys") else "0"
    answer.set_cookie(
        keys.FKEYS_COOKIE, fkeys, YEAR_S, samesite="Lax", secure=settings.SESSION_COOKIE_SECURE, httponly=True
    )
    return answer


# ------------------------------------------------------------------------------------------------ error pages


def _error(request: Any, status: int, title: str, sentence: str) -> HttpResponse:
    template = "errors/error.html"
    if getattr(request, "htmx", False):
        answer = render(
            request, "components/notice.html", {"kind": "ng", "title": title, "sentence": sentence}, status=status
        )
        answer["HX-Retarget"], answer["HX-Reswap"] = "#notices", "innerHTML show:window:top"
        return answer
    return render(request, template, {"title": title, "sentence": sentence, "status": status}, status=status)


@public("an error page")
def forbidden(request: Any, exception: Exception | None = None) -> HttpResponse:
    return _error(request, 403, _("Not yours to open"), str(exception or _("Your roles do not include this page.")))


@public("an error page")
def csrf_failed(request: Any, reason: str = "") -> HttpResponse:
    return _error(
        request, 403, _("The form was too old"), _("Nothing was changed. Open the page again and repeat what you did.")
    )


@public("an error page")
def not_found(request: Any, exception: Exception | None = None) -> HttpResponse:
    return _error(
        request, 404, _("There is no such page"), _("It does not exist, or it belongs to a line that you do not see.")
    )


@public("an error page")
def crashed(request: Any) -> HttpResponse:
    """Without the frame: whatever broke may break it too."""
    from django.template.loader import render_to_string

    return HttpResponse(
        render_to_string("errors/crashed.html", {"theme": getattr(request, "theme", "light")}), status=500
    )
