"""Drafts: what a person has drawn and typed on a picture before deciding. Only its owner ever sees it.

A save names the version that it began with: of two pages that change the same draft, the second one is told and asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils.translation import gettext_noop

from registry.lifecycle import Refused
from training import policies, regions
from training.models import Capture, Decision, Draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from training.policies import Person

LONGEST_COMMENT = 2000
LONGEST_TAB = 64

CHANGED = gettext_noop("Another page of yours has saved this picture in the meantime. Choose which one is kept.")


@dataclass(frozen=True)
class Opened:
    """A draft as a page begins with it. `version` 0: nothing was saved yet."""

    regions: list[dict[str, Any]] = field(default_factory=list)
    comment: str = ""
    version: int = 0
    at: datetime | None = None


class Changed(Refused):
    """The draft was saved by another page since. `standing` is what that page saved."""

    def __init__(self, standing: Opened) -> None:
        super().__init__(CHANGED)
        self.standing = standing


def opened(capture: Capture, *, by: Person) -> Opened:
    """This person's draft of the picture; without one, what their decision said that was taken back."""
    draft = Draft.objects.filter(capture=capture, by=by).first()
    if draft is not None:
        return _opened(draft)
    return _taken_back(capture, by)


def _opened(draft: Draft) -> Opened:
    return Opened(draft.data.get("regions", []), draft.data.get("comment", ""), draft.row_version, draft.updated_at)


def _taken_back(capture: Capture, by: Person) -> Opened:
    acts = Decision.objects.filter(capture=capture).order_by("-created_at", "-id")
    if capture.state == Capture.State.RETRACTED:
        last = acts.filter(kind__in=Decision.SAID).first()
    elif capture.line.opinions <= 1:
        return Opened()
    else:  # an opinion that was taken back before there was a decision
        own = acts.filter(by=by, kind__in=(Decision.Kind.OPINION, Decision.Kind.OPINION_BACK))[:2]
        last = own[1] if [act.kind for act in own] == ["OPINION_BACK", "OPINION"] else None
    return Opened(last.regions, last.comment) if last and last.by_id == by.pk else Opened()


def save(
    capture: Capture,
    *,
    drawn: Iterable[Mapping[str, Any]],
    comment: str = "",
    version: int = 0,
    tab: str = "",
    by: Person,
) -> Opened:
    """Keep what is drawn (`training.regions`) and typed. `version` is the one this page saw last, `tab` names the page.

    A page may repeat a save whose answer it never got: its own earlier save is no reason to ask. Raises Changed when
    another page saved in between, Refused when the picture is decided.
    """
    policies.check_can_review(capture.line, by=by)
    checked = regions.checked(drawn, width=capture.width, height=capture.height)
    data = {"regions": checked, "comment": comment[:LONGEST_COMMENT], "tab": tab[:LONGEST_TAB]}
    with transaction.atomic():
        # The same lock as a decision takes: a save that arrives behind it must not bring the draft back.
        row = Capture.objects.select_for_update(of=("self",)).get(pk=capture.pk)
        policies.check_can_draft(row, by=by)
        draft = Draft.objects.filter(capture=row, by=by).first()
        if draft is None:
            return _opened(Draft.objects.create(capture=row, by=by, data=data, row_version=version + 1))
        same = all(draft.data.get(name) == data[name] for name in ("regions", "comment"))
        if draft.row_version != version and not same and draft.data.get("tab") != data["tab"]:
            raise Changed(_opened(draft))
        if not same:
            draft.row_version += 1
        draft.data = data
        draft.save(update_fields=["data", "row_version", "updated_at"])
    return _opened(draft)


def discard(capture: Capture, *, by: Person) -> None:
    """Forget this person's draft: their decision says it all."""
    Draft.objects.filter(capture=capture, by=by).delete()
