"""People: a custom User from day one, Membership, which grants a role on a line, and wrong passwords, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models

from console.roles import ACTIONS, ROLES
from registry.ids import new_id

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from django.db.models import QuerySet

    from registry.models import Line


class User(AbstractUser):
    """A person. Deactivated, never deleted: their name stays on every record."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    display_name = models.CharField(max_length=80, blank=True)
    language = models.CharField(max_length=8, blank=True)
    theme = models.CharField(max_length=8, blank=True)
    keys = models.JSONField(default=dict, blank=True, help_text="act of the review -> key, where it is not the default")
    roles_held: dict[UUID, set[str]] | None = None  # line -> roles, when they were read for a request

    def __str__(self) -> str:
        return self.display_name or self.username

    def can(self, action: str, line: Line) -> bool:
        """May this person do `action` on `line`? Unknown actions are a programming error, not a "no"."""
        if action not in ACTIONS:
            raise ValueError(f"no role grants the unknown action {action!r}")
        return self.is_active and action in self._actions_on(line.pk)

    def roles_on(self, lines: Collection[Line]) -> list[str]:
        """The codes of this person's roles on any of these lines, in the order of the role table."""
        held = self.roles_held if self.roles_held is not None else self._read_roles()
        mine = {role for line in lines for role in held.get(line.pk, ())}
        return [code for code in ROLES if code in mine]

    def read_roles_once(self) -> None:
        """Answer `can` from what is read now: for the moment of one request, whose person is loaded anew each time."""
        self.roles_held = self._read_roles()

    def lines(self) -> QuerySet[Line]:
        """The lines that this person may see."""
        from registry.models import Line

        return Line.objects.filter(memberships__user=self).distinct() if self.is_active else Line.objects.none()

    def _actions_on(self, line_id: UUID) -> frozenset[str]:
        held = self.roles_held if self.roles_held is not None else self._read_roles(line_id)
        return frozenset().union(*(ROLES[role].actions for role in held.get(line_id, ()) if role in ROLES))

    def _read_roles(self, *line_ids: UUID) -> dict[UUID, set[str]]:
        rows = self.memberships.filter(line_id__in=line_ids) if line_ids else self.memberships.all()
        held: dict[UUID, set[str]] = {}
        for line_id, role in rows.values_list("line_id", "role"):
            held.setdefault(line_id, set()).add(role)
        return held


class Membership(models.Model):
    """A role of a person on a line."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    line = models.ForeignKey("registry.Line", on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=24, choices=[(role.code, role.name) for role in ROLES.values()])

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("user", "line", "role"), name="role_once_per_line")]

    def __str__(self) -> str:
        return f"{self.user} {self.role} {self.line}"


class SignInTries(models.Model):
    """Wrong passwords of one name, address or both (`key` is a digest of them) until the window closes."""

    key = models.CharField(primary_key=True, max_length=32)
    count = models.PositiveIntegerField(default=1)
    until = models.DateTimeField(db_index=True)


class SavedView(models.Model):
    """Filters of the review that a person keeps under a name, as the query string of the grid."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=60)
    query = models.TextField(blank=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=("user", "name"), name="view_name_once_per_person")]
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
