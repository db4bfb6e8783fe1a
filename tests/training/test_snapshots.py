"""Freezing: whole lots, the same digest for the same decisions, and a sentence for every refusal."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.db.models import Count
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from registry import blobs, counters, lines
from registry.ids import new_id
from registry.lifecycle import Refused
from tests.training.plant import RULE, picture
from training import captures, golden, queue, snapshots, splitting
from training.models import Capture, GoldenSet, Snapshot, SnapshotItem
from training.splitting import Picture

if TYPE_CHECKING:
    from tests.training.plant import Plant


def reserve(plant: Plant, made: list[Capture], code: str = "golden") -> GoldenSet:
    labels = [(one, one.decision.classes[0] if one.decision and one.decision.classes else 0) for one in made]
    kept: dict[str, Any] = {
        "captures": labels, "owner": plant.haneul, "expires_at": timezone.now() + timedelta(days=90), "leads": True,
        "by": plant.haneul,
    }  # fmt: skip
    former = golden.current(plant.line).filter(code=code).first()
    if former:
        return golden.renew(former, **kept)
    return golden.create(plant.line, code=code, name_ko="골든", name_en="golden", **kept)


def told(warnings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The warnings without the one that nothing here is compared yet."""
    return [row for row in warnings if row["text"] != snapshots.NOT_COMPARED]


def refusal(plant: Plant, **rule: Any) -> str:
    with pytest.raises(Refused) as caught:
        snapshots.freeze(plant.line, RULE | rule, by=plant.haneul)
    assert not Snapshot.objects.exists()
    return str(caught.value)


def test_a_snapshot_keeps_decision_side_and_label_and_its_blob_says_the_same(plant: Plant) -> None:
    made = plant.lots(6)
    snapshot = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    manifest = json.loads(blobs.read(snapshot.digest))
    rows = {str(item.capture_id): item for item in snapshot.items.select_related("capture")}
    assert len(rows) == len(manifest["items"]) == len(made)
    for item in manifest["items"]:
        row = rows[item["capture"]]
        assert (item["decision"], item["label"], item["split"]) == (str(row.decision_id), row.label, row.split)
    assert [entry["code"] for entry in snapshot.classes] == ["OK", "crack"]
    assert snapshot.counts["lots"]["train"] + snapshot.counts["lots"]["val"] == 6
    assert counters.value(plant.line, "captures_decided") == 0


def test_no_lot_is_on_two_sides_and_both_have_ok_and_ng(plant: Plant) -> None:
    plant.lots(9)
    snapshot = snapshots.freeze(plant.line, RULE | {"val_share": 0.2, "test_share": 0.2}, by=plant.haneul)
    sides: dict[str, set[str]] = {}
    for lot, side in snapshot.items.values_list("capture__lot", "split"):
        sides.setdefault(lot, set()).add(side)
    assert all(len(found) == 1 for found in sides.values())
    for side in ("train", "val", "test"):
        assert set(snapshot.counts[side]) == {"0", "1"}


def test_every_product_is_on_every_side_however_few_its_lots_are(plant: Plant) -> None:
    plant.lots(40, product="mono")
    plant.lots(5, product="poly")
    snapshot = snapshots.freeze(plant.line, RULE | {"val_share": 0.2, "test_share": 0.2}, by=plant.haneul)
    dealt = {
        (side, product): lots
        for side, product, lots in snapshot.items.values_list("split", "capture__product").annotate(
            n=Count("capture__lot", distinct=True)
        )
    }
    assert dealt == {
        ("train", "mono"): 24, ("val", "mono"): 8, ("test", "mono"): 8,
        ("train", "poly"): 3, ("val", "poly"): 1, ("test", "poly"): 1,
    }  # fmt: skip
    assert told(snapshot.warnings) == []


def test_a_class_of_one_lot_per_product_is_still_on_both_sides(plant: Plant) -> None:
    plant.lots(1, product="mono")
    plant.lots(1, product="poly")
    snapshot = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    assert snapshot.counts["lots"] == {"train": 1, "val": 1, "test": 0}
    assert [row["text"] for row in told(snapshot.warnings)] == list(snapshots.PRODUCT_THIN.values())


def test_the_same_rule_and_decisions_give_the_same_digest(plant: Plant) -> None:
    plant.lots(8)
    first = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    again = snapshots.freeze(plant.line, dict(reversed(RULE.items())) | {"products": None}, by=plant.seoyeon)
    assert first.digest == again.digest
    assert first.number + 1 == again.number


def test_another_decision_gives_another_digest_and_the_old_snapshot_stays(plant: Plant) -> None:
    made = plant.lots(8)
    first = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    before = list(first.items.order_by("id").values_list("capture_id", "decision_id", "label", "split"))
    captures.retract(made[0], reason="looked again", by=plant.seoyeon)
    captures.decide(made[0], verdict="NG", classes=[1], by=plant.seoyeon)
    second = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    assert first.digest != second.digest
    assert list(first.items.order_by("id").values_list("capture_id", "decision_id", "label", "split")) == before


def test_a_lot_stays_where_it_was_whatever_arrives_and_whatever_the_seed(plant: Plant) -> None:
    plant.lots(8)
    first = dict(snapshots.freeze(plant.line, RULE, by=plant.haneul).items.values_list("capture__lot", "split"))
    plant.lots(8)
    later = dict(
        snapshots.freeze(plant.line, RULE | {"seed": 5}, by=plant.haneul).items.values_list("capture__lot", "split")
    )
    assert {lot: later[lot] for lot in first} == first


def test_the_seed_deals_new_lots_otherwise(plant: Plant) -> None:
    plant.lots(12)
    dealt = {
        json.dumps([side for _, side in sorted(((str(p.id), side) for p, side in made.sides))])
        for made in (snapshots.plan(plant.line, RULE | {"seed": seed}) for seed in range(4))
    }
    assert len(dealt) > 1


def test_pictures_of_one_lot_assigned_to_two_sides_are_refused_by_the_lots_name(plant: Plant) -> None:
    made = plant.lots(6)
    assign = {str(made[0].pk): "train", str(made[1].pk): "val"}
    assert refusal(plant, assign=assign) == (
        f"Lot {made[0].lot} would be on two sides: its pictures are assigned to train, val. A lot stays together."
    )


def test_lots_that_share_a_part_cannot_be_parted(plant: Plant) -> None:
    plant.lots(6)
    plant.decided(0, lot="A", serial="SN-1")
    plant.decided(0, lot="B", serial="SN-1")
    assert "Lots A, B share a picture or a serial" in refusal(plant, assign={"A": "train", "B": "val"})


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [((0, 0), "There is no NG part in training."), ((1, 1), "There is no OK part in training.")],
)
def test_a_missing_side_is_named(plant: Plant, labels: tuple[int, ...], sentence: str) -> None:
    plant.lots(6, labels=labels)
    assert refusal(plant) == sentence


def test_ng_missing_from_validation_is_named(plant: Plant) -> None:
    plant.lots(1)
    plant.lots(5, labels=(0, 0))
    assert refusal(plant) == "There is no NG part in validation."


def test_a_missing_critical_class_is_refused_and_another_is_a_warning(plant: Plant) -> None:
    lines.add_class(plant.line, code="burr", name_ko="버", name_en="burr", by="test")
    plant.lots(6)
    snapshot = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    assert [(row["text"], row["params"]["name"]) for row in told(snapshot.warnings)] == [
        ("Class %(name)s is missing from training: it is not learned.", "burr"),
        ("Class %(name)s is missing from validation: it is not measured.", "burr"),
    ]
    lines.add_class(plant.line, code="hole", name_ko="구멍", name_en="hole", critical=True, by="test")
    with pytest.raises(Refused, match="The critical class hole is missing from training"):
        snapshots.freeze(plant.line, RULE, by=plant.haneul)


def test_nothing_decided_is_refused(plant: Plant) -> None:
    plant.capture()
    assert "No decided picture" in refusal(plant)


@pytest.mark.parametrize(
    "rule",
    [
        {"val_share": 0.0},
        {"val_share": 0.6, "test_share": 0.5},
        {"assign": {"A": "nowhere"}},
        {"splits": 3},
        {"seed": "x"},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(plant: Plant, rule: dict[str, Any]) -> None:
    assert "rule cannot be used" in refusal(plant, **rule)


def test_golden_pictures_their_bytes_and_their_parts_are_never_in_a_snapshot(plant: Plant) -> None:
    made = plant.lots(8)
    kept = plant.decided(1, lot="G1", serial="SN-9")
    reserve(plant, [kept])
    other_shot = plant.decided(1, lot="H1", serial="SN-9")  # the same part, photographed again
    device = plant.device()
    same_bytes = Capture.objects.create(
        line=plant.line, device=device, device_capture_id="c", digest=kept.digest, size_bytes=1, width=1, height=1,
        mode="L", reason="band", lot="H2",
    )  # fmt: skip
    captures.decide(same_bytes, verdict="NG", classes=[1], by=plant.haneul)
    seen = snapshots.preview(plant.line, RULE)
    frozen = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    ids = set(frozen.items.values_list("capture_id", flat=True))
    assert ids == {one.pk for one in made}
    assert ids.isdisjoint({kept.pk, other_shot.pk, same_bytes.pk})
    assert (seen["total"], seen["reserved"]) == (len(made), 2)


def test_a_picture_that_was_trained_on_cannot_become_golden(plant: Plant) -> None:
    made = plant.lots(6)
    frozen = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    with pytest.raises(Refused, match=rf"trained on before .*: .* \({frozen}\)\."):
        reserve(plant, [made[0]])
    made[0].refresh_from_db()
    assert not made[0].reserved


def test_a_golden_set_takes_pictures_out_of_the_queue_and_keeps_editions(plant: Plant) -> None:
    undecided, decided = plant.capture(), plant.decided(1)
    first = reserve(plant, [undecided, decided])
    assert queue.claim(plant.line, by=plant.haneul) == []
    with pytest.raises(Refused, match="belongs to golden set golden"):
        captures.retract(Capture.objects.get(pk=decided.pk), reason="x", by=plant.haneul)
    second = reserve(plant, [decided, plant.decided(0)])
    editions = [(one.number, one.retired_at is None) for one in GoldenSet.objects.order_by("number")]
    assert editions == [(1, False), (2, True)]
    assert list(golden.current(plant.line)) == [second]
    assert first.digest != second.digest
    assert counters.recount(plant.line) == {}


def test_a_golden_label_that_contradicts_the_decision_is_refused(plant: Plant) -> None:
    with pytest.raises(Refused, match="decided otherwise"):
        golden.create(
            plant.line, code="g", name_ko="g", name_en="g", captures=[(plant.decided(1), 0)], owner=plant.haneul,
            expires_at=timezone.now() + timedelta(days=1), leads=False, by=plant.haneul,
        )  # fmt: skip


def test_preview_writes_nothing_and_says_what_freezing_would_say(plant: Plant) -> None:
    plant.lots(4, labels=(0, 0))
    seen = snapshots.preview(plant.line, RULE)
    assert [row["text"] for row in seen["refusals"]] == [
        "There is no NG part in training.", "There is no NG part in validation.",
    ]  # fmt: skip
    assert seen["counts"]["train"]["0"] + seen["counts"]["val"]["0"] == 8
    assert not Snapshot.objects.exists()


def test_a_viewer_freezes_nothing(plant: Plant) -> None:
    plant.lots(4)
    with pytest.raises(Refused, match="roles"):
        snapshots.freeze(plant.line, RULE, by=plant.viewer)


def test_pictures_without_a_lot_and_twins_with_two_labels_are_warned_of(plant: Plant) -> None:
    plant.lots(6)
    data = picture()
    plant.decided(0, data=data)
    twin = Capture.objects.create(
        line=plant.line, device=plant.device(), device_capture_id="c", digest=Capture.objects.latest("id").digest,
        size_bytes=1, width=1, height=1, mode="L", reason="band",
    )  # fmt: skip
    captures.decide(twin, verdict="NG", classes=[1], by=plant.haneul)
    warned = {row["text"]: row["params"]["count"] for row in told(snapshots.preview(plant.line, RULE)["warnings"])}
    assert warned == {snapshots.WITHOUT_LOT: 2, snapshots.TWO_LABELS: 1}


def test_a_decision_taken_back_while_freezing_is_never_in_the_snapshot(real_plant: Plant) -> None:
    made = real_plant.lots(6)
    victim, start, freezing = made[0], threading.Event(), threading.Event()

    def take_back() -> None:
        try:
            with transaction.atomic():
                captures.retract(Capture.objects.get(pk=victim.pk), reason="wrong", by=real_plant.seoyeon)
                start.set()
                freezing.wait(10)
                threading.Event().wait(0.3)  # the freeze now waits for this row
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(take_back)
        start.wait(10)
        freezing.set()
        snapshot = snapshots.freeze(real_plant.line, RULE, by=real_plant.haneul)
        done.result()
    assert not SnapshotItem.objects.filter(snapshot=snapshot, capture=victim).exists()
    assert len(json.loads(blobs.read(snapshot.digest))["items"]) == snapshot.items.count() == len(made) - 1


ROW = st.tuples(st.sampled_from("ABCDEFGH"), st.integers(0, 2), st.integers(0, 30))
PICTURES = st.lists(ROW, min_size=1, max_size=60)


@given(PICTURES, st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_splitting_never_parts_what_is_tied_and_ignores_the_order(rows: list[tuple[str, int, int]], seed: int) -> None:
    shares = {"train": 0.6, "val": 0.2, "test": 0.2}
    made = [Picture(new_id(), new_id(), f"d{twin}", lot, "", "p", label) for lot, label, twin in rows]

    def sides(order: list[Picture]) -> dict[Any, str]:
        found = splitting.groups(order)
        dealt = splitting.deal(found, {}, shares, seed)
        return {one.id: dealt[group.name + str(group.pictures[0].id)] for group in found for one in group.pictures}

    dealt = sides(made)
    assert dealt == sides(list(reversed(made)))
    assert set(dealt) == {one.id for one in made}
    for key in ("lot", "digest"):
        by_key: dict[str, set[str]] = {}
        for one in made:
            by_key.setdefault(getattr(one, key), set()).add(dealt[one.id])
        assert all(len(found) == 1 for found in by_key.values())


def test_a_lot_that_was_trained_on_never_judges_again(plant: Plant) -> None:
    plant.lots(6)
    first = snapshots.freeze(plant.line, RULE, by=plant.haneul)
    trained = first.items.filter(split="train").order_by("pk")[0].capture.lot
    for side in ("val", "test"):
        rule = RULE | {"assign": {trained: side}}
        with pytest.raises(Refused, match=f"Lot {trained} was trained on before"):
            snapshots.freeze(plant.line, rule, by=plant.haneul)
        (refused,) = snapshots.preview(plant.line, rule)["refusals"]
        shown = {str(pk) for pk in first.items.filter(capture__lot=trained).values_list("capture_id", flat=True)}
        assert set(refused["params"]["pictures"]) == shown
    judged = first.items.filter(split="val").order_by("pk")[0].capture.lot
    snapshots.freeze(plant.line, RULE | {"assign": {judged: "train"}}, by=plant.haneul)
    with pytest.raises(Refused, match=f"Lot {judged} was trained on before"):
        snapshots.freeze(plant.line, RULE | {"assign": {judged: "val"}}, by=plant.haneul)
    assert Snapshot.objects.count() == 2


def test_a_picture_without_a_lot_that_was_trained_on_never_judges_again(plant: Plant) -> None:
    plant.lots(4)
    alone = plant.decided(0, serial="SN-77")
    snapshots.freeze(plant.line, RULE | {"assign": {str(alone.pk): "train"}}, by=plant.haneul)
    with pytest.raises(Refused, match="Lot SN-77 was trained on before"):
        snapshots.freeze(plant.line, RULE | {"assign": {str(alone.pk): "val"}}, by=plant.haneul)


def test_a_refused_leak_shows_pictures_of_both_sides(plant: Plant) -> None:
    plant.lots(4)
    one, other = (plant.decided(0, lot=lot, serial="SN-5") for lot in ("A", "B"))
    plant.decided(0, lot="A")
    plant.decided(0, lot="B")
    (refused,) = snapshots.preview(plant.line, RULE | {"assign": {"A": "train", "B": "val"}})["refusals"]
    assert refused["text"] == snapshots.TIED_LOTS
    assert set(refused["params"]["pictures"]) == {str(one.pk), str(other.pk)}


def test_thousands_of_pictures_without_a_lot_are_dealt_in_seconds() -> None:
    made = [Picture(new_id(), new_id(), f"d{n}", "", "", "p", int(n % 50 == 0)) for n in range(20_000)]
    began = time.monotonic()
    dealt = splitting.deal(splitting.groups(made), {}, {"train": 0.6, "val": 0.2, "test": 0.2}, 0)
    assert time.monotonic() - began < 20  # it was a minute, and four times that for twice as many
    assert len(dealt) == len(made)
