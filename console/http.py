"""What every page shares: who may open it, on which line, in which language, and how a rule's "no" is answered.

Deny by default: a view without `page` or `public` answers nobody. Objects of a line that a person may not see do not
exist for them (404); a known line without the needed role is 403 with a sentence; `Refused` is 409 with the rule's own.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, cast

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.utils import timezone, translation
from django.utils.functional import cached_property
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from console.models import User
from console.roles import ACTIONS
from registry.lifecycle import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from django.db.models import Model
    from django_htmx.middleware import HtmxDetails

    from registry.models import Line

    Row = TypeVar("Row", bound=Model)

log = logging.getLogger(__name__)

View = "Callable[..., HttpResponse]"
THEMES = ("light", "dark", "line")
SIGNED_IN = "person.signed_in"  # pages about oneself: any person, no line
ALL_LINES = "*"


class Request(HttpRequest):
    """What views get: `user` is a person, `lines` are theirs, `line` is the one they work on (None = all of them)."""

    user: User
    htmx: HtmxDetails
    lines: Lines
    line: Line | None
    theme: str


class Lines:
    """The lines of one person and what they may do there, read once per request."""

    def __init__(self, user: Any) -> None:
        self._user = user

    @cached_property
    def all(self) -> list[Line]:
        if not self._user.is_authenticated:
            return []
        self._user.read_roles_once()
        return list(self._user.lines().select_related("site"))

    def that_allow(self, action: str) -> list[Line]:
        """The lines where this person may do `action`."""
        return [line for line in self.all if self._user.can(action, line)]

    def allow(self, action: str, line: Line | None = None) -> bool:
        """May this person do `action` on `line`, or on any line when none is given?"""
        return any(line is None or allowed.pk == line.pk for allowed in self.that_allow(action))

    def by_code(self, code: str) -> Line | None:
        return next((line for line in self.all if line.code == code), None)


# ------------------------------------------------------------------------------------------------ who may open what


def signed_in(request: HttpRequest) -> bool:
    """Is somebody signed in? `Request.user` is typed as a person, which holds only behind `page`."""
    return request.user.is_authenticated


def page(
    action: str, *, of: type[Model] | None = None, methods: str = "GET", line_path: str = "line"
) -> Callable[[Any], Any]:
    """Let a signed-in person with `action` open this view.

    With `of`, the URL's `pk` is loaded and given as second argument: 404 when its line is not theirs, 403 when their
    roles there lack the action. Without, the chosen line must allow it, or (all lines) at least one: `acting_lines`
    says which. `methods` is a space-separated list; HEAD comes with GET.
    """
    if action not in ACTIONS and action != SIGNED_IN:
        raise ValueError(f"no role grants the unknown action {action!r}")
    allowed = {*methods.split(), *(["HEAD"] if "GET" in methods.split() else [])}

    def decorate(view: Any) -> Any:
        @functools.wraps(view)
        def guarded(request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
            if not signed_in(request):
                return to_sign_in(request)
            if request.method not in allowed:
                return HttpResponseNotAllowed(sorted(allowed))
            if of is not None:
                obj = load(request, of, kwargs.pop("pk"), action=action, line_path=line_path)
                return cast("HttpResponse", view(request, obj, *args, **kwargs))
            if action != SIGNED_IN and not acting_lines(request, action):
                raise PermissionDenied(no_role_sentence())
            return cast("HttpResponse", view(request, *args, **kwargs))

        guarded.action = action  # type: ignore[attr-defined]
        guarded.methods = frozenset(allowed)  # type: ignore[attr-defined]
        guarded.of = of  # type: ignore[attr-defined]
        return guarded

    return decorate


def public(reason: str) -> Callable[[Any], Any]:
    """Let anybody open this view, because of `reason`: devices sign their requests, sign-in needs nobody yet."""

    def decorate(view: Any) -> Any:
        view.action = None
        view.public_because = reason
        return view

    return decorate


def load(request: Request, model: type[Row], pk: Any, *, action: str, line_path: str = "line") -> Row:
    """The row, if its line is one of this person's (else 404) and they may do `action` there (else 403)."""
    mine = {line.pk: line for line in request.lines.all}
    row = model._default_manager.filter(pk=pk, **{"pk__in" if line_path == "self" else "line__in": mine}).first()
    if row is None:
        raise Http404(f"no {model._meta.model_name} {pk}")
    line: Any = row
    if line_path != "self":  # the line was read with the person's, site and all
        line = row.line = mine[row.line_id]  # type: ignore[attr-defined]
    if not request.lines.allow(action, line):
        raise PermissionDenied(no_role_sentence())
    return row


def acting_lines(request: Request, action: str) -> list[Line]:
    """The lines that this page is about: the chosen one, else all, as far as the person may do `action` there."""
    return [line for line in request.lines.that_allow(action) if request.line is None or line.pk == request.line.pk]


def no_role_sentence() -> str:
    return _("Your roles on this line do not include this. A site administrator can grant it.")


def to_sign_in(request: HttpRequest) -> HttpResponse:
    """Send somebody without a session to the sign-in page and back here afterwards; htmx follows with a full page."""
    asked = request.headers.get("HX-Current-URL", "") if is_partial(request) else request.get_full_path()
    answer = redirect_to_login(
        asked if request.method in ("GET", "HEAD") or is_partial(request) else "/", "session-sign-in"
    )
    if is_partial(request):
        return HttpResponse(status=401, headers={"HX-Redirect": answer["Location"]})
    if wants_json(request):
        return HttpResponse(status=401)
    return answer


# ------------------------------------------------------------------------------------------------ answering


def is_partial(request: HttpRequest) -> bool:
    return bool(getattr(request, "htmx", False))


def wants_json(request: HttpRequest) -> bool:
    return request.headers.get("Accept", "").startswith("application/json")


def render(
    request: HttpRequest, template: str, context: dict[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    """A page, or with `page.html#part` one of its partials, with what the frame needs."""
    from console.frame import frame

    return HttpResponse(render_to_string(template, {**frame(request), **(context or {})}, request), status=status)


def go(request: HttpRequest, to: str) -> HttpResponse:
    """After a POST: send the browser on, with htmx as a full page load."""
    if is_partial(request):
        return HttpResponse(status=204, headers={"HX-Redirect": to})
    return HttpResponseRedirect(to)


def back(request: HttpRequest, otherwise: str = "/") -> str:
    """Where a form came from, if that is a page of ours."""
    target = request.POST.get("next") or request.headers.get("Referer", "")
    ours = url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure())
    return target if ours else otherwise


def refusal(request: HttpRequest, error: Refused) -> HttpResponse:
    """A rule's "no": 409 with its sentence, as JSON, as a notice for htmx, or as a page."""
    from django.http import JsonResponse

    if wants_json(request):
        return JsonResponse({"error": "refused", "sentence": str(error)}, status=409)
    if is_partial(request):
        answer = render(request, "components/notice.html", {"kind": "ng", "sentence": str(error)}, status=409)
        answer["HX-Retarget"], answer["HX-Reswap"] = "#notices", "innerHTML show:window:top"
        return answer
    return render(request, "errors/refused.html", {"sentence": str(error), "back": back(request)}, status=409)


# ------------------------------------------------------------------------------------------------ middleware


class ConsoleMiddleware:
    """Person, line, language, theme, plant time; deny by default; a rule's "no"; nothing kept by caches."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        ours = cast("Request", request)
        ours.lines = Lines(request.user)
        ours.line = None
        ours.theme = _theme(ours)
        if language := getattr(request.user, "language", ""):
            translation.activate(language)
            ours.LANGUAGE_CODE = translation.get_language() or "en"
        response = self.get_response(request)
        if not response.has_header("Cache-Control"):
            response["Cache-Control"] = "no-store"
        response.headers.setdefault("Content-Language", translation.get_language() or "en")
        timezone.deactivate()
        return response

    def process_view(
        self, request: Request, view: Any, args: Iterable[Any], kwargs: dict[str, Any]
    ) -> HttpResponse | None:
        if not hasattr(view, "action"):
            log.error("no action is declared for %s: refused", request.path)
            raise PermissionDenied(no_role_sentence())
        if view.action is not None and request.user.is_authenticated:
            request.line = _chosen_line(request)
            shown = request.line or next(iter(request.lines.all), None)
            if shown is not None:
                timezone.activate(shown.site.timezone)
        return None

    def process_exception(self, request: Request, error: Exception) -> HttpResponse | None:
        return refusal(request, error) if isinstance(error, Refused) else None


def _theme(request: Request) -> str:
    asked = getattr(request.user, "theme", "") or request.COOKIES.get("loopline_theme", "")
    return asked if asked in THEMES else THEMES[0]


def _chosen_line(request: Request) -> Line | None:
    """`?line=<code>` chooses a line until another is chosen, `?line=*` all of them; a foreign code is a 404."""
    code = request.GET.get("line") if request.method in ("GET", "HEAD") else None
    if code is None:
        return request.lines.by_code(request.session.get("line", ALL_LINES))
    line = request.lines.by_code(code)
    if line is None and code not in ("", ALL_LINES):
        raise Http404(f"no line {code}")
    if request.session.get("line") != (line.code if line else ALL_LINES):
        request.session["line"] = line.code if line else ALL_LINES
    return line
