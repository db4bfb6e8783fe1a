"""Counts and numbers: changed with the rows that they count, right when many write at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from django.db import connection, transaction

from registry import clock, counters, lines, numbers, tasks
from registry.lifecycle import Refused
from registry.models import DefectClass

if TYPE_CHECKING:
    from tests.registry.plant import Plant


def test_a_counter_rises_and_falls_and_starts_at_zero(plant: Plant) -> None:
    assert counters.value(plant.line, "apples") == 0
    counters.add(plant.line, "apples", 3)
    counters.add(plant.line, "apples", -1)
    assert counters.value(plant.line, "apples") == 2
    assert counters.values(plant.line)["apples"] == 2
    counters.put(plant.line, "apples", 7)
    assert counters.value(plant.line, "apples") == 7


def test_a_recount_says_which_counter_was_wrong(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_counts", {})
    counters.counted("classes")(lambda line: DefectClass.objects.filter(line=line).count())
    assert counters.recount(plant.line) == {"classes": (0, 1)}
    assert counters.recount(plant.line) == {}
    counters.add(plant.line, "classes", 5)
    tasks.recount()
    assert counters.value(plant.line, "classes") == 1


def test_numbers_go_up_by_one_per_noun_and_come_back_when_nothing_happened(plant: Plant) -> None:
    site = plant.line.site
    assert [numbers.next_number(site, "pear"), numbers.next_number(site, "pear")] == [1, 2]
    with transaction.atomic():
        assert numbers.next_number(site, "pear") == 3
        transaction.set_rollback(True)
    assert numbers.next_number(site, "pear") == 3
    assert numbers.next_number(site, "plum") == 1


def test_writers_at_the_same_moment_lose_no_count_and_share_no_number(committed_plant: Plant) -> None:
    plant, given = committed_plant, []

    def work() -> None:
        try:
            for _ in range(10):
                with transaction.atomic():
                    counters.add(plant.line, "apples", 1)
                    given.append(numbers.next_number(plant.line.site, "pear"))
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counters.value(plant.line, "apples") == 40
    assert sorted(given) == list(range(1, 41))


@pytest.mark.django_db
def test_the_clock_is_the_databases_and_goes_on_within_a_transaction() -> None:
    first, second = clock.now_db(), clock.now_db()
    assert first < second
    assert first.tzinfo is not None


def test_the_defect_book_gives_numbers_once_and_ok_is_first(plant: Plant) -> None:
    lines.add_class(plant.line, code="scratch", name_ko="긁힘", name_en="scratch", critical=True, by=plant.engineer)
    table = lines.class_table(plant.line)
    assert [(row["index"], row["number"], row["code"], row["critical"]) for row in table] == [
        (0, 0, "OK", False),
        (1, 1, "crack", False),
        (2, 2, "scratch", True),
    ]
    for again in ({"code": "crack"}, {"code": "ok"}, {"code": "dent", "number": 2}, {"code": "dent", "number": 0}):
        with pytest.raises(Refused):
            lines.add_class(plant.line, by=plant.engineer, **again)
    with pytest.raises(Refused, match="roles"):
        lines.add_class(plant.line, code="dent", by=plant.operator)


def test_a_retired_class_leaves_the_table_and_its_number_is_not_given_again(plant: Plant) -> None:
    DefectClass.objects.update(retired_at=clock.now_db())
    assert lines.add_class(plant.line, code="dent", by=plant.engineer).number == 2
    assert [row["code"] for row in lines.class_table(plant.line)] == ["OK", "dent"]


def test_a_line_code_is_given_once(plant: Plant) -> None:
    with pytest.raises(Refused, match="taken"):
        lines.create_line(plant.line.site, code="el-1", name="Again", by="command:test")
    with pytest.raises(Refused, match="no code"):
        lines.create_line(plant.line.site, code="el 1", name="Again", by="command:test")
    with pytest.raises(Refused):
        lines.create_line(plant.line.site, code="el-2", name="Two", by=plant.engineer)
    assert lines.create_line(plant.line.site, code="el-2", name="Two", by=plant.administrator).escape_limit == 0.0
