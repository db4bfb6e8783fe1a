"""The audit log as pages show it: newest first, by key, narrowed by person, noun and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from console.facts.paging import Page, newest_first
from console.models import User
from registry import blobs
from registry.models import AuditEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from registry.models import Line

_OWN = ("line", "device", "snapshot", "job", "version", "promotion", "rollout", "capture")
# noun -> name of its page
PAGES = {noun: f"{noun}-detail" for noun in _OWN} | {"defectclass": "line-class", "goldenset": "golden-detail"}


def nouns() -> list[tuple[str, Any]]:
    """Every noun that the log can be about, with its name."""
    return [
        ("line", _("line")), ("station", _("station")), ("defectclass", _("defect class")), ("device", _("device")),
        ("capture", _("capture")), ("goldenset", _("golden set")), ("snapshot", _("snapshot")), ("job", _("job")),
        ("basemodel", _("base model")), ("version", _("version")), ("promotion", _("promotion")),
        ("release", _("release")),
        ("rollout", _("rollout")), ("stage", _("stage")), ("deployment", _("deployment")), ("user", _("person")),
    ]  # fmt: skip


def events(lines: Iterable[Line], *, person: str = "", noun: str = "", words: str = "", after: str = "") -> Page:
    """Events of these lines. `person` is a login name or machine label, `words` is looked for in all texts."""
    query = AuditEvent.objects.filter(line__in=lines).select_related("by", "line")
    if person:
        query = query.filter(by_label=person)
    if noun:
        query = query.filter(noun=noun)
    for word in words.split():
        query = query.filter(Q(name__icontains=word) | Q(action__icontains=word) | Q(reason__icontains=word))
    return told(newest_first(query, after))


def told(page: Page) -> Page:
    """Each event with its words and the address of what it is about."""
    for event in page.rows:
        say(event)
    return page


def say(event: AuditEvent) -> AuditEvent:
    noun, _dot, verb = event.action.partition(".")
    event.verb = _VERBS.get(event.action) or _VERBS.get(verb) or verb.replace("_", " ")  # type: ignore[attr-defined]
    has_page = noun in PAGES and event.noun == noun
    event.url = reverse(PAGES[noun], args=[event.object_id]) if has_page else ""  # type: ignore[attr-defined]
    event.noun_word = _NOUNS.get(event.noun, event.noun)  # type: ignore[attr-defined]
    event.was, event.became = _state(event.old), _state(event.new)  # type: ignore[attr-defined]
    event.changes = _changes(event.old, event.new)  # type: ignore[attr-defined]
    return event


def _changes(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [
        (name, _short(old.get(name)), _short(value))
        for name, value in new.items()
        if name != "state" and value != "" and old.get(name) != value
    ]


def _state(side: dict[str, Any]) -> Any:
    code = str(side.get("state") or "").lower()
    return _VERBS.get(code) or code.replace("_", " ")


def _short(value: Any) -> Any:
    return value[:12] if isinstance(value, str) and blobs.is_digest(value) else value


# verbs as participles; `noun.verb` before `verb`
_VERBS: dict[str, Any] = {
    "create": _("created"), "request": _("requested"), "approved": _("approved"), "rejected": _("rejected"),
    "withdrawn": _("withdrawn"), "expired": _("expired"), "voided": _("voided"), "freeze": _("frozen"),
    "submit": _("submitted"),
    "cancel": _("cancel asked"), "queued": _("queued"), "running": _("running"), "cancelling": _("cancelling"),
    "cancelled": _("cancelled"), "succeeded": _("succeeded"), "failed": _("failed"), "poisoned": _("poisoned"),
    "registered": _("registered"), "validated": _("validated"), "refused": _("refused"), "released": _("released"),
    "retired": _("retired"), "published": _("published"), "superseded": _("superseded"), "revoked": _("revoked"),
    "paused": _("paused"), "completed": _("completed"), "completed_with_exceptions": _("completed with exceptions"),
    "stopped": _("stopped"), "start": _("started"), "waiting": _("waiting"), "soaking": _("soaking"),
    "passed": _("passed"),
    "skipped": _("skipped"), "enrolled": _("enrolled"), "enrol": _("enrolled anew"), "active": _("active"),
    "quarantined": _("quarantined"), "token": _("new token"), "ask": _("asked for pictures"), "publish": _("published"),
    "import": _("imported"), "retract": _("taken back"), "sign_in": _("signed in"), "sign_out": _("signed out"),
    "change": _("changed"), "retire": _("retired"), "restore": _("restored"), "merge": _("merged"),
    "unmerge": _("merge undone"), "example": _("example added"), "no_example": _("example removed"),
    "line.settings": _("settings changed"), "extend": _("extended"), "hand_over": _("handed over"),
    "requeue": _("asked for again"), "rollout.running": _("started or resumed"),
    "review_policy": _("review policy set"),
    # states alone
    "new": _("undecided"), "decided": _("decided"), "disputed": _("disputed"), "retracted": _("taken back"),
    "drafted": _("drafted"), "scheduled": _("scheduled"), "reverted": _("reverted"), "requested": _("requested"),
    "pending": _("pending"), "offered": _("offered"), "downloading": _("downloading"), "verified": _("verified"),
    "staged": _("staged"), "probation": _("probation"), "committed": _("committed"), "fell_back": _("fell back"),
}  # fmt: skip
_NOUNS = dict(nouns())


def of_row(row: Any, *, limit: int = 20) -> list[AuditEvent]:
    """The last events of one row, newest first."""
    found = AuditEvent.objects.filter(noun=row._meta.model_name, object_id=str(row.pk)).select_related("by")
    return [say(event) for event in found[:limit]]


def people(lines: Iterable[Line]) -> list[User]:
    """People who have a role on these lines, for the filter."""
    return list(User.objects.filter(memberships__line__in=lines).distinct().order_by("username"))
