"""Who may do what: one readable table, role -> actions, granted per line. What is not here is refused."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True)
class Role:
    code: str
    name: object  # lazy translation
    actions: frozenset[str]


VIEW = frozenset({"line.view"})

ROLES: dict[str, Role] = {
    role.code: role
    for role in (
        Role("viewer", _("viewer"), VIEW),
        Role(
            "engineer",
            _("quality engineer"),
            VIEW
            | {"capture.review", "capture.import", "capture.export", "book.edit"}
            | {"snapshot.freeze", "golden.manage", "job.submit", "job.cancel", "promotion.request"},
        ),
        Role(
            "supervisor",
            _("review supervisor"),
            VIEW | {"capture.review", "capture.supervise", "review.policy", "book.edit", "line.settings"},
        ),
        Role("adjudicator", _("adjudicator"), VIEW | {"capture.review", "capture.adjudicate"}),
        Role("approver", _("approver"), VIEW | {"promotion.approve", "audit.view"}),
        Role("operator", _("operator"), VIEW | {"rollout.operate", "capture.flag"}),
        Role(
            "ml_engineer",
            _("ML engineer"),
            VIEW
            | {"capture.export", "book.edit", "snapshot.freeze", "golden.manage"}
            | {"job.submit", "job.cancel", "promotion.request", "base.import"},
        ),
        Role(
            "administrator",
            _("site administrator"),
            VIEW | {"device.administer", "person.administer", "audit.view", "review.policy", "line.settings"},
        ),
    )
}

ACTIONS: frozenset[str] = frozenset().union(*(role.actions for role in ROLES.values()))
