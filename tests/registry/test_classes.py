"""The defect book: what of a class can change, what never does, and who may; the settings of a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from registry import classes, lines
from registry.lifecycle import Refused
from registry.models import AuditEvent, DefectClass
from tests.registry.plant import person

if TYPE_CHECKING:
    from tests.registry.plant import Plant


@pytest.fixture
def crack(plant: Plant) -> DefectClass:
    return DefectClass.objects.get(line=plant.line)


def added(plant: Plant, code: str, **more: Any) -> DefectClass:
    return lines.add_class(plant.line, code=code, name_ko=code, name_en=code, by=plant.engineer, **more)


def change(entry: DefectClass, by: Any, **wanted: Any) -> None:
    standing = {name: getattr(entry, name) for name in ("name_ko", "name_en", "hotkey", "critical")}
    classes.change(entry, by=by, **(standing | wanted))


def test_a_rename_keeps_number_and_code_and_says_what_it_was_before(plant: Plant, crack: DefectClass) -> None:
    change(crack, plant.engineer, name_ko="깨짐", name_en="fracture", critical=True)
    crack.refresh_from_db()
    assert (crack.number, crack.code, crack.name_ko, crack.critical) == (1, "crack", "깨짐", True)
    event = AuditEvent.objects.get(action="defectclass.change")
    assert event.old == {"name_ko": "균열", "name_en": "crack", "critical": False}
    assert event.new == {"name_ko": "깨짐", "name_en": "fracture", "critical": True}
    change(crack, plant.engineer)
    assert AuditEvent.objects.filter(action="defectclass.change").count() == 1


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"hotkey": "1"}, "Class crack has the key 1"),
        ({"hotkey": "o"}, "review itself uses the key O"),
        ({"hotkey": "ㅁ"}, "one digit from 1 to 9"),
        ({"hotkey": "0"}, "one digit from 1 to 9"),
        ({"name_en": "  "}, "needs a Korean and an English name"),
        ({"name_ko": "긴" * 81}, "at most 80"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    wanted: dict[str, Any], words: str, plant: Plant, crack: DefectClass
) -> None:
    stain = added(plant, "stain", hotkey="t")
    with pytest.raises(Refused, match=words):
        change(stain, plant.engineer, **wanted)
    stain.refresh_from_db()
    assert (stain.name_en, stain.hotkey) == ("stain", "t")


def test_a_new_class_cannot_take_a_key_that_is_given(plant: Plant, crack: DefectClass) -> None:
    with pytest.raises(Refused, match="Class crack has the key 1"):
        added(plant, "stain", hotkey="1")
    assert added(plant, "stain", hotkey="T").hotkey == "t"


def test_a_retired_class_leaves_the_table_gives_its_key_away_and_never_its_number(
    plant: Plant, crack: DefectClass
) -> None:
    classes.retire(crack, reason="nobody tells it from a scratch", by=plant.engineer)
    assert [entry["number"] for entry in lines.class_table(plant.line)] == [0]
    assert classes.meanings(plant.line) == {}
    stain = added(plant, "stain", hotkey="1")
    assert (stain.number, stain.hotkey) == (2, "1")
    with pytest.raises(Refused, match="taken"):
        added(plant, "crack")
    with pytest.raises(Refused, match="retired already"):
        classes.retire(crack, reason="again", by=plant.engineer)
    classes.restore(crack, reason="needed after all", by=plant.engineer)
    crack.refresh_from_db()
    assert (crack.retired_at, crack.hotkey) == (None, "")
    with pytest.raises(Refused, match="not retired"):
        classes.restore(crack, reason="again", by=plant.engineer)
    last = AuditEvent.objects.filter(noun="defectclass").order_by("-id")[0]
    assert (last.action, last.reason) == ("defectclass.restore", "needed after all")


def test_the_book_is_kept_by_those_who_decide_and_train(plant: Plant, crack: DefectClass) -> None:
    for role in ("engineer", "supervisor", "ml_engineer"):
        change(crack, person(f"a-{role}", plant.line, role), name_en=f"crack {role}")
    for name in ("viewer", "approver", "operator", "administrator"):
        with pytest.raises(Refused, match="roles"):
            change(crack, person(f"a-{name}", plant.line, name), name_en="mine")
    crack.refresh_from_db()
    assert crack.name_en == "crack ml_engineer"


def test_retiring_needs_a_reason(plant: Plant, crack: DefectClass) -> None:
    for verb in (classes.retire, classes.restore):
        with pytest.raises(Refused, match="Write a reason"):
            verb(crack, reason=" ", by=plant.engineer)


# ------------------------------------------------------------------------------------------------ settings of a line

SHIFTS = [{"code": "A", "from": "06:00", "to": "18:00"}, {"code": "B", "from": "18:00", "to": "06:00"}]


def test_settings_change_with_a_reason_and_the_log_says_what_they_were(plant: Plant) -> None:
    boss = person("boss", plant.line, "supervisor")
    lines.change_settings(
        plant.line, reason="two shifts", by=boss, review_due_s=3600, shifts=SHIFTS, window_low=10.0, window_high=900.0
    )
    plant.line.refresh_from_db()
    assert (plant.line.review_due_s, plant.line.shifts, plant.line.window_high) == (3600, SHIFTS, 900.0)
    event = AuditEvent.objects.get(action="line.settings")
    assert event.old == {"review_due_s": 28800, "window_low": None, "window_high": None, "shifts": []}
    assert event.new == {"review_due_s": 3600, "window_low": 10.0, "window_high": 900.0, "shifts": SHIFTS}
    assert event.reason == "two shifts"
    lines.change_settings(plant.line, reason="the same again", by=boss, shifts=SHIFTS)
    assert AuditEvent.objects.filter(action="line.settings").count() == 1


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"audit_rate": 1.5}, "from 0 to 100"),
        ({"escape_limit": -0.1}, "from 0 to 100"),
        ({"review_due_s": 1}, "at least one minute"),
        ({"window_low": 5.0}, "black and a white"),
        ({"window_low": 9.0, "window_high": 9.0}, "black and a white"),
        ({"shifts": [{"code": "A", "from": "06:00", "to": "25:00"}]}, "two different times"),
        ({"shifts": [{"code": "A", "from": "06:00", "to": "06:00"}]}, "two different times"),
        ({"shifts": [SHIFTS[0], SHIFTS[0]]}, "Shift A is there twice"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wanted: dict[str, Any], words: str, plant: Plant) -> None:
    boss = person("boss", plant.line, "administrator")
    before = {name: getattr(plant.line, name) for name in lines.SETTINGS}
    with pytest.raises(Refused, match=words):
        lines.change_settings(plant.line, reason="why not", by=boss, **wanted)
    plant.line.refresh_from_db()
    assert {name: getattr(plant.line, name) for name in lines.SETTINGS} == before


def test_settings_are_for_supervisors_and_administrators(plant: Plant) -> None:
    for by in (plant.engineer, plant.approver, "command:test"):
        with pytest.raises(Refused, match=r"roles|signed-in person"):
            lines.change_settings(plant.line, reason="mine", by=by, audit_rate=0.5)
    with pytest.raises(Refused, match="Write a reason"):
        lines.change_settings(plant.line, reason="", by=plant.administrator, audit_rate=0.5)
    plant.line.refresh_from_db()
    assert plant.line.audit_rate == 0.02
