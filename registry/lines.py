"""Lines and their defect books."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Max
from django.utils.text import slugify
from django.utils.translation import gettext_noop

from registry import audit, classes, events, lifecycle, policies
from registry.lifecycle import Refused
from registry.models import DefectClass, Line, Station

if TYPE_CHECKING:
    from datetime import datetime

    from registry.audit import Actor
    from registry.models import Site

SHIFT = re.compile(r"\S{1,16} ([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")
OK_CLASS: dict[str, Any] = {
    "index": 0,
    "number": 0,
    "code": "OK",
    "name_ko": "양품",
    "name_en": "OK",
    "critical": False,
}

CODE_TAKEN = gettext_noop("The code %(code)s is taken. Codes are never used twice.")
CODE_INVALID = gettext_noop("%(code)s is no code. Use letters, digits, hyphens and underscores.")
NUMBER_TAKEN = gettext_noop("Class number %(number)s of line %(line)s was given before. Numbers are never given again.")
LIMIT_INVALID = gettext_noop("The escape limit is a share from 0 to 1.")
SHARE_INVALID = gettext_noop("Escape limit and audit rate are shares from 0 to 100 %.")
DUE_INVALID = gettext_noop("The review deadline is at least one minute.")
WINDOW_INVALID = gettext_noop("The window needs a black and a white value, black below white, or neither.")
SHIFT_INVALID = gettext_noop("A shift is a short code and two different times: A 06:00-14:00.")
SHIFT_TWICE = gettext_noop("Shift %(code)s is there twice.")


def create_line(
    site: Site,
    *,
    code: str,
    name: str,
    by: Actor,
    product: str = "",
    escape_limit: float = 0.0,
    audit_rate: float = 0.02,
    **fields: Any,
) -> Line:
    """A new line of the site; `fields` are further columns of Line (shifts, credit, window_low, ...)."""
    policies.check_can_administer_site(site, by=by)
    if slugify(code) != code:
        raise Refused(CODE_INVALID, code=code)
    if not 0 <= escape_limit <= 1 or not 0 <= audit_rate <= 1:
        raise Refused(LIMIT_INVALID)
    with transaction.atomic():
        line, created = Line.objects.get_or_create(
            code=code,
            defaults={
                "site": site,
                "name": name,
                "product": product,
                "escape_limit": escape_limit,
                "audit_rate": audit_rate,
                **fields,
            },
        )
        if not created:
            raise Refused(CODE_TAKEN, code=code)
        audit.record(by, "line.create", line, new={"code": code, "name": name, "escape_limit": escape_limit})
    return line


SETTINGS = ("review_due_s", "audit_rate", "escape_limit", "window_low", "window_high", "shifts")


def change_settings(line: Line, *, reason: str, by: Actor, **wanted: Any) -> Line:
    """Change what the line is run by: some of SETTINGS. The audit log says what each was before, and why."""
    policies.check_can_change_settings(line, by=by)
    policies.check_reason(reason)
    with transaction.atomic():
        row = Line.objects.select_for_update(no_key=True).get(pk=line.pk)
        settings = {name: wanted.get(name, getattr(row, name)) for name in SETTINGS}
        _check_settings(settings)
        changed = {name: value for name, value in settings.items() if value != getattr(row, name)}
        if changed:
            old = {name: getattr(row, name) for name in changed}
            lifecycle.touch(row, **changed)
            audit.record(by, "line.settings", row, old=old, new=changed, reason=reason.strip())
    line.refresh_from_db()
    return line


def _check_settings(settings: dict[str, Any]) -> None:
    if not all(0 <= settings[name] <= 1 for name in ("escape_limit", "audit_rate")):
        raise Refused(SHARE_INVALID)
    if settings["review_due_s"] < 60:
        raise Refused(DUE_INVALID)
    low, high = settings["window_low"], settings["window_high"]
    if (low is None) != (high is None) or (low is not None and low >= high):
        raise Refused(WINDOW_INVALID)
    seen: set[str] = set()
    for shift in settings["shifts"]:
        if not SHIFT.fullmatch(f"{shift['code']} {shift['from']}-{shift['to']}") or shift["from"] == shift["to"]:
            raise Refused(SHIFT_INVALID)
        if shift["code"] in seen:
            raise Refused(SHIFT_TWICE, code=shift["code"])
        seen.add(shift["code"])


def add_station(line: Line, *, code: str, name: str, by: Actor) -> Station:
    """A station of the line; the standing one when the code is known."""
    policies.check_can_administer_devices(line, by=by)
    station, created = Station.objects.get_or_create(line=line, code=code, defaults={"name": name})
    if created:
        audit.record(by, "station.create", station, new={"code": code, "name": name})
    return station


def add_class(
    line: Line,
    *,
    code: str,
    by: Actor,
    number: int | None = None,
    name_ko: str = "",
    name_en: str = "",
    critical: bool = False,
    hotkey: str = "",
) -> DefectClass:
    """A new entry of the defect book. Without a number it gets the next one; numbers and codes are never used again."""
    policies.check_can_edit_defect_book(line, by=by)
    if not code or slugify(code, allow_unicode=True) != code.lower():
        raise Refused(CODE_INVALID, code=code)
    with transaction.atomic():
        Line.objects.select_for_update(no_key=True).get(pk=line.pk)
        book = DefectClass.objects.filter(line=line)
        if code.upper() == OK_CLASS["code"] or book.filter(code=code).exists():
            raise Refused(CODE_TAKEN, code=code)
        if number is None:
            number = (book.aggregate(last=Max("number"))["last"] or 0) + 1
        if number < 1 or book.filter(number=number).exists():
            raise Refused(NUMBER_TAKEN, number=number, line=line.code)
        hotkey = classes.checked_key(line, hotkey)
        if not hotkey and number <= 9 and not book.filter(hotkey=str(number), retired_at=None).exists():
            hotkey = str(number)
        entry = DefectClass.objects.create(
            line=line,
            number=number,
            code=code,
            name_ko=name_ko or name_en or code,
            name_en=name_en or code,
            critical=critical,
            hotkey=hotkey,
        )
        audit.record(by, "defectclass.create", entry, new={"number": number, "code": code, "critical": critical})
        events.announce(*line.topics())
    return entry


def class_table(line: Line) -> list[dict[str, Any]]:
    """Classes as a model knows them, OK first: [{"index", "number", "code", "name_ko", "name_en", "critical"}]."""
    entries = DefectClass.objects.filter(line=line, retired_at=None).order_by("number")
    return [dict(OK_CLASS)] + [
        {
            "index": index,
            "number": entry.number,
            "code": entry.code,
            "name_ko": entry.name_ko,
            "name_en": entry.name_en,
            "critical": entry.critical,
        }
        for index, entry in enumerate(entries, start=1)
    ]


def shift_at(line: Line, when: datetime) -> str:
    """The code of the line's shift at this moment ("" when none is set up); shifts may pass midnight."""
    clock = when.astimezone(ZoneInfo(line.site.timezone)).strftime("%H:%M")
    for shift in line.shifts:
        start, end = shift["from"], shift["to"]
        if (start <= clock < end) if start < end else (clock >= start or clock < end):
            return str(shift["code"])
    return ""
