"""Example pictures of the defect book: decided captures that show what a class looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext_noop

from registry import audit, events
from registry.lifecycle import Refused
from registry.models import DefectClass
from training import policies
from training.models import Capture, ClassExample

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from registry.models import Line
    from training.policies import Person

MOST = 6

NOT_DECIDED_SO = gettext_noop("Only a picture that is decided as %(name)s can be an example of it.")
ENOUGH = gettext_noop("Class %(name)s has %(most)s examples. Remove one first.")


def of_line(line: Line) -> QuerySet[ClassExample]:
    """The examples of the line's classes that are still decided so, oldest first."""
    rows = ClassExample.objects.filter(entry__line=line, capture__state=Capture.State.DECIDED)
    return rows.filter(capture__decision__classes__contains=[F("entry__number")]).select_related("capture", "entry")


def add(capture: Capture, *, number: int, by: Person) -> ClassExample:
    """Show this picture in the book as an example of a class that it is decided as."""
    policies.check_can_give_example(capture, by=by)
    with transaction.atomic():
        entry = DefectClass.objects.select_for_update(no_key=True).filter(line=capture.line, number=number).first()
        if entry is None or capture.decision is None or number not in capture.decision.classes:
            raise Refused(NOT_DECIDED_SO, name=entry.name if entry else number)
        _drop_stale(entry)
        if entry.examples.exclude(capture=capture).count() >= MOST:
            raise Refused(ENOUGH, name=entry.name, most=MOST)
        made, created = ClassExample.objects.get_or_create(entry=entry, capture=capture, defaults={"by": by})
        if created:
            audit.record(by, "defectclass.example", entry, new={"capture": str(capture)})
            events.announce(*entry.line.topics())
    return made


def remove(capture: Capture, *, number: int, by: Person) -> None:
    """The picture is no example of this class any more; it stays decided as it is."""
    policies.check_can_give_example(capture, by=by)
    with transaction.atomic():
        found = ClassExample.objects.select_related("entry__line").filter(capture=capture, entry__number=number).first()
        if found is None:
            return
        found.delete()
        audit.record(by, "defectclass.no_example", found.entry, old={"capture": str(capture)})
        events.announce(*found.entry.line.topics())


def _drop_stale(entry: DefectClass) -> None:
    """Forget examples that were decided otherwise since: they are not shown, and must not count."""
    standing = of_line(entry.line).filter(entry=entry)
    entry.examples.exclude(pk__in=[row.pk for row in standing]).delete()
