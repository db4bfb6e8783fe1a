"""The nearest pictures: in order, under filters, never of another line, and never across two bases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from tests.training import plant as plants
from tests.training.vectors import place
from training import captures, queue, similarity
from training.models import Capture
from training.selection import Selection

if TYPE_CHECKING:
    from tests.training.plant import Plant


@pytest.fixture
def circle(plant: Plant) -> list[Capture]:
    """Six open pictures, ten degrees apart."""
    rows = [plant.capture(lot=f"L{n % 2}", serial=f"S{n}") for n in range(6)]
    place({row: 10 * n for n, row in enumerate(rows)})
    return rows


def near(capture: Capture, **where: object) -> list[str]:
    found = similarity.nearest(capture.pk, capture.line, where=Q(**where))
    return [Capture.objects.get(pk=pk).serial for pk, _share in found]


def test_the_nearest_come_first_with_how_near_they_are(circle: list[Capture]) -> None:
    assert near(circle[1])[0] == "S1"
    assert set(near(circle[1])[1:3]) == {"S0", "S2"}
    assert near(circle[1])[3:] == ["S3", "S4", "S5"]
    shares = [share for _pk, share in similarity.nearest(circle[0].pk, circle[0].line, where=Q())]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(1, abs=0.001)
    assert shares[1] == pytest.approx(0.985, abs=0.002)


def test_filters_and_count_hold(circle: list[Capture], plant: Plant) -> None:
    assert near(circle[0], lot="L1") == ["S1", "S3", "S5"]
    captures.decide(circle[2], verdict="OK", by=plant.haneul)
    open_ones = similarity.nearest(circle[0].pk, plant.line, where=Q(), waiting=True, count=3)
    assert [pk for pk, _share in open_ones] == [circle[0].pk, circle[1].pk, circle[3].pk]


def test_other_lines_and_other_bases_are_not_compared(circle: list[Capture], plant: Plant) -> None:
    other = plants.make(code="mt-2")
    place({other.capture(serial="foreign"): 0})
    place({plant.capture(serial="old base"): 0}, basis="a" * 64)
    assert near(circle[0]) == ["S0", "S1", "S2", "S3", "S4", "S5"]
    assert similarity.nearest(circle[0].pk, other.line, where=Q()) == []


def test_a_picture_without_features_has_no_neighbours(plant: Plant, circle: list[Capture]) -> None:
    assert similarity.nearest(plant.capture().pk, plant.line, where=Q()) == []


def test_the_queue_gives_the_most_similar_first_and_those_alone_that_can_be_compared(
    plant: Plant, circle: list[Capture]
) -> None:
    later = plant.capture(serial="not compared yet")
    selection = Selection.parse(f"like={circle[3].pk}")
    rail = queue.claim(plant.line, by=plant.haneul, count=9, want=selection.want(plant.line, plant.haneul))
    assert [row.serial for row in rail[:1]] == ["S3"]
    assert {row.serial for row in rail[1:3]} == {"S2", "S4"}
    assert later not in rail
    with_filter = Selection.parse(f"like={circle[3].pk}&lot=L0")
    rail = queue.claim(plant.line, by=plant.haneul, count=9, want=with_filter.want(plant.line, plant.haneul))
    assert [row.serial for row in rail] == ["S2", "S4", "S0"] or [row.serial for row in rail] == ["S4", "S2", "S0"]


def test_a_selection_keeps_the_picked_picture_and_exports_take_the_nearest(plant: Plant, circle: list[Capture]) -> None:
    selection = Selection.parse(f"like={circle[0].pk}&lot=L1")
    assert Selection.parse(selection.query()) == selection
    assert {row.serial for row in selection.captures(plant.line, plant.haneul)} == {"S1", "S3", "S5"}
    assert Selection.parse("like=nothing").like is None


def test_few_in_the_queue_are_compared_one_by_one_and_many_by_the_index(
    plant: Plant, circle: list[Capture], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = similarity.nearest(circle[0].pk, plant.line, where=Q(), waiting=True)
    monkeypatch.setattr(similarity, "EXACT_BELOW", 0)
    assert similarity.nearest(circle[0].pk, plant.line, where=Q(), waiting=True) == exact


def test_the_search_can_walk_the_vector_index(circle: list[Capture], plant: Plant) -> None:
    with connection.cursor() as cursor, CaptureQueriesContext(connection) as queries:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        similarity.nearest(circle[0].pk, plant.line, where=Q(lot="L0"))
        [sql] = [query["sql"] for query in queries if "<=>" in query["sql"]]
        cursor.execute(f"EXPLAIN {sql}")
        assert "embedding_nearest" in str(cursor.fetchall())
