"""Golden sets keep their promise: new to every model, never trained on, one edition after the other, a person's."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from registry.lifecycle import Refused
from tests.registry.plant import person
from tests.training import plant as plants
from tests.training.plant import RULE, SET_UP, picture
from training import captures, golden, snapshots
from training.models import Capture, GoldenSet

if TYPE_CHECKING:
    from tests.training.plant import Plant


def kept(plant: Plant, rows: list[Capture], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "captures": golden.as_decided(plant.line, rows), "owner": plant.haneul, "leads": False, "by": plant.haneul,
        "expires_at": timezone.now() + timedelta(days=90),
    }  # fmt: skip
    return found | more


def make(plant: Plant, rows: list[Capture], code: str = "master", **more: Any) -> GoldenSet:
    return golden.create(plant.line, code=code, name_ko="기준", name_en="master", **kept(plant, rows, **more))


def refusal(plant: Plant, rows: list[Capture], **more: Any) -> str:
    with pytest.raises(Refused) as caught:
        make(plant, rows, **more)
    assert not GoldenSet.objects.exists()
    return str(caught.value)


def test_every_offending_picture_is_named_up_to_twenty(plant: Plant) -> None:
    rows = plant.lots(8)
    for n, row in enumerate(rows):
        Capture.objects.filter(pk=row.pk).update(serial=f"SN-{n:02d}")
    snapshots.freeze(plant.line, RULE, by=plant.haneul)
    rows = list(Capture.objects.order_by("pk"))
    said = refusal(plant, rows[:3])
    assert "SN-00 (S-0001), SN-01 (S-0001), SN-02 (S-0001)." in said
    said = refusal(plant, rows)
    assert said.count("(S-0001)") == 20
    assert "… +4" in said


def test_each_reason_names_all_its_pictures(plant: Plant) -> None:
    undecided = [plant.capture(serial=f"U-{n}") for n in range(2)]
    assert "U-0, U-1" in refusal(plant, undecided)
    differing = [plant.decided(1, serial=f"D-{n}") for n in range(2)]
    assert "D-0, D-1" in refusal(plant, [], captures=[(row, 0) for row in differing])
    twice = plant.decided(0, serial="T-0")
    assert "twice: T-0." in refusal(plant, [], captures=[(twice, 0), (twice, 0)])
    foreign = plants.make(code="mt-2").decided(0, serial="F-0")
    assert "another line: F-0." in refusal(plant, [], captures=[(foreign, 0)])
    assert "Classes 7, 8" in refusal(plant, [], captures=[(twice, 8), (differing[0], 7)])


def test_a_new_set_never_takes_the_code_of_another(plant: Plant) -> None:
    first = make(plant, [plant.decided(0)])
    with pytest.raises(Refused, match="already"):
        make(plant, [plant.decided(1)])
    assert list(GoldenSet.objects.all()) == [first]


def test_an_edition_is_made_from_the_newest_one_also_when_that_is_retired(plant: Plant) -> None:
    rows = [plant.decided(0), plant.decided(1)]
    first = make(plant, rows)
    golden.retire(first, reason="product ended", by=plant.haneul)
    assert not golden.current(plant.line).exists()
    second = golden.renew(first, **kept(plant, rows))
    assert list(golden.current(plant.line)) == [second]
    with pytest.raises(Refused, match="Edition 2 of golden set master is newer"):
        golden.renew(first, **kept(plant, rows))
    assert GoldenSet.objects.count() == 2


def test_one_set_leads_at_a_time(plant: Plant) -> None:
    first = make(plant, [plant.decided(0)], leads=True)
    second = make(plant, [plant.decided(1)], code="second", leads=True)
    assert list(golden.current(plant.line)) == [second, first]
    first.refresh_from_db()
    assert not first.leads


def test_the_owner_is_a_person_of_the_line(plant: Plant) -> None:
    stranger = person("stranger", plants.make(code="mt-2").line, "engineer")
    assert "has no role" in refusal(plant, [plant.decided(0)], owner=stranger)
    made = make(plant, [plant.decided(0)])
    with pytest.raises(Refused, match="has no role"):
        golden.hand_over(made, owner=stranger, by=plant.haneul)
    golden.hand_over(made, owner=plant.viewer, by=plant.haneul)
    assert made.owner == plant.viewer


def test_nobody_without_the_role_makes_or_changes_a_set(plant: Plant) -> None:
    rows = [plant.decided(0)]
    assert "roles" in refusal(plant, rows, by=plant.viewer)
    made = make(plant, rows)
    for act in (
        lambda: golden.renew(made, **kept(plant, rows, by=plant.viewer)),
        lambda: golden.retire(made, reason="x", by=plant.viewer),
        lambda: golden.extend(made, expires_at=timezone.now() + timedelta(days=300), reason="x", by=plant.viewer),
        lambda: golden.hand_over(made, owner=plant.viewer, by=plant.viewer),
    ):
        with pytest.raises(Refused, match="roles"):
            act()
    assert GoldenSet.objects.get().retired_at is None


def test_a_critical_class_is_the_label_of_a_picture_that_has_several(plant: Plant) -> None:
    from registry import lines

    lines.add_class(plant.line, code="break", name_ko="깨짐", name_en="break", critical=True, by=SET_UP)
    row = plant.capture()
    captures.decide(row, verdict="NG", classes=[1, 2], by=plant.haneul)
    assert [label for _, label in golden.as_decided(plant.line, [row])] == [2]


def test_sets_that_expire_within_two_weeks_or_have_expired_are_found(plant: Plant) -> None:
    now = timezone.now()
    days = {"gone": -1, "soon": 13, "later": 15}
    for code in days:
        make(plant, [plant.decided(0)], code=code)
        GoldenSet.objects.filter(code=code).update(expires_at=now + timedelta(days=days[code]))
    assert [row.code for row in golden.expiring([plant.line], now)] == ["gone", "soon"]


def test_importing_a_golden_picture_again_leaves_it_golden_and_out_of_snapshots(plant: Plant) -> None:
    data = picture()
    row = plant.decided(1, data=data, lot="G", serial="SN-1")
    make(plant, [row])
    plant.lots(6)
    again, created = captures.import_one(plant.line, data, {"lot": "other"}, by=SET_UP)
    assert (again.pk, created, again.reserved) == (row.pk, False, True)
    with pytest.raises(Refused):
        captures.decide(again, verdict="OK", by=plant.haneul)
    plant.decided(1, lot="H", serial="SN-1")  # another shot of the same part comes in by import
    frozen = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    assert frozen.items.count() == 18
    assert not frozen.items.filter(capture__serial="SN-1").exists()
    golden.retire(GoldenSet.objects.get(), reason="product ended", by=plant.haneul)
    assert not snapshots.freeze(plant.line, RULE, by=plant.haneul).items.filter(capture__serial="SN-1").exists()
