"""Near duplicates: found when features are kept, on one side of every snapshot, never in training and a golden set."""

from __future__ import annotations

import hashlib
import io
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from django.utils import timezone
from PIL import Image

from registry import bases
from registry.lifecycle import Refused
from tests.training import plant as plants
from tests.training.archives import imported, zipped
from tests.training.parts import brighter, cut, part, saved
from tests.training.plant import RULE, import_base
from training import embedder, embeddings, golden, near_duplicates, snapshots
from training.embeddings import Found
from training.models import Capture, NearDuplicate
from training.recipe.embed import GREY, grey_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.training.plant import Plant


@pytest.fixture
def based(plant: Plant, folders: Path) -> Plant:
    import_base(folders / "base")
    return plant


def compared(plant: Plant, *rows: tuple[Capture, Image.Image]) -> None:
    """Keep the features of these pictures: real grey copies, and vectors that are all near to each other."""
    basis = embeddings.basis(plant.line)
    assert basis is not None
    embeddings.keep(plant.line, basis, [(row, found(image)) for row, image in rows])


def found(image: Image.Image) -> Found:
    wobble = np.random.default_rng(int(np.asarray(image)[0, 0])).normal(0, 0.002, 256)
    vector = np.full(256, 1 / 16) + wobble
    return Found((vector / np.linalg.norm(vector)).tolist(), grey_of(np.asarray(image.convert("RGB"))).tobytes())


def pairs() -> set[frozenset[str]]:
    return {frozenset((row.a.serial, row.b.serial)) for row in NearDuplicate.objects.select_related("a", "b")}


# ------------------------------------------------------------------------------------------------ what is one


@pytest.mark.parametrize(
    "copy",
    [
        lambda image: Image.open(_again(image, "JPEG", quality=90)),
        lambda image: Image.open(_again(image, "JPEG", quality=75)),
        lambda image: brighter(image, 1.03),
        lambda image: brighter(image, 0.97),
        lambda image: cut(image, 1),
        lambda image: cut(image, 2),
        lambda image: image.resize((144, 108)),
    ],
    ids=["jpeg 90", "jpeg 75", "brighter", "darker", "cut by 1", "cut by 2", "smaller"],
)
def test_a_changed_copy_explains_the_original_and_another_part_does_not(copy: Any) -> None:
    for seed in range(12):
        image = part(seed)
        grey, changed, other = (
            grey_of(np.asarray(each.convert("RGB"))).tobytes() for each in (image, copy(image), part(seed + 100))
        )
        assert len(grey) == GREY * GREY
        assert near_duplicates.agreement(grey, changed) > 1 - near_duplicates.CUT
        assert near_duplicates.agreement(grey, other) < 0.9


def test_flat_pictures_are_alike_only_when_both_are_flat() -> None:
    flat, bright = bytes([40] * 576), bytes([200] * 576)
    noise = np.random.default_rng(0).integers(0, 255, 576).astype(np.uint8).tobytes()
    assert near_duplicates.agreement(flat, bright) == 1
    assert near_duplicates.agreement(flat, noise) < 0.1


def test_pairs_are_kept_with_the_features_and_only_of_the_same_line(based: Plant) -> None:
    image = part(1)
    one, two, three = (
        based.capture(serial=name, data=saved(each))
        for name, each in (("A", image), ("B", brighter(image, 1.03)), ("C", part(2)))
    )
    compared(based, (one, image))
    assert not NearDuplicate.objects.exists()
    compared(based, (two, brighter(image, 1.03)), (three, part(2)))
    assert pairs() == {frozenset("AB")}
    [row] = NearDuplicate.objects.all()
    assert row.a_id < row.b_id
    assert row.similarity > 0.995
    other = plants.make(code="mt-2")
    compared(other, (other.capture(serial="D", data=saved(brighter(image, 0.97))), brighter(image, 0.97)))
    assert pairs() == {frozenset("AB")}
    compared(based, (two, part(7)))  # of another base they are not alike any more
    assert pairs() == set()


def test_on_a_line_whose_parts_all_look_alike_only_what_stands_out_is_a_copy(based: Plant) -> None:
    base = np.asarray(part(5)).astype(float)
    images = []
    for seed in range(12):  # one part after the other differs by a faint texture of its own
        faint = np.asarray(part(200 + seed)).astype(float) - 110
        images.append(Image.fromarray((base + 0.05 * faint).clip(0, 255).astype(np.uint8)))
    rows = [(based.capture(serial=f"P{n}", data=saved(image)), image) for n, image in enumerate(images)]
    compared(based, *rows)
    assert pairs() == set()
    copy = brighter(images[3], 1.03)
    compared(based, (based.capture(serial="copy", data=saved(copy)), copy))
    assert pairs() == {frozenset(("P3", "copy"))}


# ------------------------------------------------------------------------------------------------ snapshots


def twins(plant: Plant, seed: int, label: int, lots: tuple[str, str]) -> list[tuple[Capture, Image.Image]]:
    """The same part in two lots, saved in two ways, decided alike."""
    images = (part(seed), brighter(part(seed), 1.03))
    return [
        (plant.decided(label, lot=lot, serial=f"{lot}-{seed}", data=saved(image)), image)
        for lot, image in zip(lots, images, strict=True)
    ]


def test_near_duplicates_are_on_one_side_and_the_person_hears_how_many(based: Plant) -> None:
    rows = [row for n in range(12) for row in twins(based, n, n % 2, (f"A{n}", f"B{n}"))]
    apart = snapshots.plan(based.line, RULE)
    assert parted(apart, rows) > 0  # before anything is compared
    assert warned(apart)[snapshots.NOT_COMPARED] == 24
    assert apart.twins == 0
    compared(based, *rows)
    made = snapshots.plan(based.line, RULE)
    assert made.refusals == []
    assert made.twins == 24
    assert snapshots.NOT_COMPARED not in warned(made)
    assert parted(made, rows) == 0
    snapshot = snapshots.freeze(based.line, RULE, by=based.haneul)
    assert {item.split for item in snapshot.items.all()} == {"train", "val"}


def parted(plan: snapshots.Plan, rows: list[tuple[Capture, Image.Image]]) -> int:
    sides = {picture.id: side for picture, side in plan.sides}
    return sum(sides[rows[n][0].pk] != sides[rows[n + 1][0].pk] for n in range(0, len(rows), 2))


def warned(plan: snapshots.Plan) -> dict[str, int]:
    return {row["text"]: row["params"].get("count", 0) for row in plan.warnings}


def test_an_assignment_that_would_part_near_duplicates_is_refused_with_the_two(based: Plant) -> None:
    rows = [row for n in range(6) for row in twins(based, n, n % 2, (f"A{n}", f"B{n}"))]
    compared(based, *rows)
    with pytest.raises(Refused) as refused:
        snapshots.freeze(based.line, RULE | {"assign": {"A2": "train", "B2": "val"}}, by=based.haneul)
    assert "A2-2" in str(refused.value)
    assert "B2-2" in str(refused.value)
    assert "train, val" in str(refused.value)
    [refusal] = snapshots.plan(based.line, RULE | {"assign": {"A2": "train", "B2": "val"}}).refusals
    assert set(refusal["params"]["pictures"]) == {str(rows[4][0].pk), str(rows[5][0].pk)}
    same = snapshots.plan(based.line, RULE | {"assign": {"A2": "train", "B2": "train"}})
    assert same.refusals == []


def test_a_lot_that_is_assigned_to_two_sides_is_refused_as_before(based: Plant) -> None:
    rows = [row for n in range(4) for row in twins(based, n, n % 2, ("A", "A"))]
    compared(based, *rows)
    picture = str(rows[0][0].pk)
    plan = snapshots.plan(based.line, RULE | {"assign": {"A": "train", picture: "val"}})
    assert plan.refusals[0]["text"] == snapshots.LOT_ON_BOTH_SIDES


def test_pictures_that_cannot_be_read_count_as_not_compared(based: Plant) -> None:
    rows = [row for n in range(4) for row in twins(based, n, n % 2, (f"A{n}", f"B{n}"))]
    compared(based, *rows[1:])
    basis = embeddings.basis(based.line)
    assert basis is not None
    embeddings.keep(based.line, basis, [(rows[0][0], Found(problem="truncated"))])
    assert warned(snapshots.plan(based.line, RULE))[snapshots.NOT_COMPARED] == 1


def test_overlapping_crops_of_one_part_leak_in_a_naive_split_and_not_in_ours(based: Plant) -> None:
    """30 parts, 20 overlapping crops of each: the split by serial leaks nothing, a random one nearly everything."""
    rng = np.random.default_rng(0)
    part_of: dict[Any, int] = {}
    for number in range(30):
        noise = rng.integers(0, 255, (60, 60)).astype(np.uint8)
        for place in rng.choice(400, 20, replace=False):
            y, x = divmod(int(place), 20)
            piece = Image.fromarray(noise[y : y + 40, x : x + 40])
            row = based.decided(number % 2, serial=f"part-{number}", data=saved(piece))
            part_of[row.pk] = number
    sides = {picture.id: side for picture, side in snapshots.plan(based.line, RULE).sides}
    assert len(sides) == 600
    assert leaks(sides, part_of) == 0
    naive = {
        key: "val" if int(hashlib.sha256(str(key).encode()).hexdigest(), 16) % 10 < 3 else "train" for key in sides
    }
    assert leaks(naive, part_of) > 100


def leaks(sides: dict[Any, str], part_of: dict[Any, int]) -> int:
    """Held-out pictures of a part that was trained on."""
    trained = {part_of[key] for key, side in sides.items() if side == "train"}
    return sum(part_of[key] in trained for key, side in sides.items() if side == "val")


# ------------------------------------------------------------------------------------------------ golden sets


def test_a_near_duplicate_of_a_trained_picture_cannot_be_golden_and_one_of_a_golden_is_left_out(based: Plant) -> None:
    rows = [row for n in range(6) for row in twins(based, n, n % 2, (f"A{n}", f"A{n}"))]
    compared(based, *rows)
    frozen = snapshots.freeze(based.line, RULE, by=based.haneul)
    copy = brighter(part(0), 0.97)
    twin = based.capture(serial="TWIN", data=saved(copy))
    compared(based, (twin, copy))
    with pytest.raises(Refused) as refused:
        reserve(based, twin)
    assert "TWIN" in str(refused.value)
    assert str(frozen) in str(refused.value)
    twin.refresh_from_db()
    assert not twin.reserved
    fresh, again = part(50), brighter(part(50), 1.03)
    kept, other = based.capture(serial="G", data=saved(fresh)), based.decided(0, serial="NEAR-G", data=saved(again))
    compared(based, (kept, fresh), (other, again))
    reserve(based, kept)
    plan = snapshots.plan(based.line, RULE)
    assert plan.reserved == 1
    assert other.pk not in {picture.id for picture, _side in plan.sides}


def reserve(plant: Plant, row: Capture) -> None:
    golden.create(
        plant.line, code="golden", name_ko="골든", name_en="golden", captures=[(row, 0)], owner=plant.haneul,
        expires_at=timezone.now() + timedelta(days=9), leads=True, by=plant.haneul,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ uploads


@pytest.mark.slow
def test_a_second_upload_adds_what_is_new_and_hints_at_what_only_looks_new(
    real_plant: Plant, base_bundle: Path, settings: Any
) -> None:
    """100 pictures, then the same with 20 renamed and 10 saved again: 10 new, 90 here already, 10 near duplicates."""
    settings.TRAIN_THREADS = 2
    bases.import_bundle(base_bundle, by="test")
    images = [part(n) for n in range(100)]
    first = imported(
        real_plant.line, real_plant.haneul, zipped({f"p{n:03d}.png": saved(i) for n, i in enumerate(images)})
    )
    assert (first.report["created"], first.report["known"]) == (100, 0)
    names = [f"renamed-{n:03d}.png" if n < 20 else f"p{n:03d}.png" for n in range(100)]
    data = {name: saved(image) for name, image in zip(names, images, strict=True)}
    for n in range(20, 30):
        data[f"p{n:03d}.jpg"] = saved(images[n], "JPEG", quality=90)
        del data[f"p{n:03d}.png"]
    second = imported(real_plant.line, real_plant.haneul, zipped(data))
    assert (second.report["created"], second.report["known"]) == (10, 90)
    embedder.run()
    assert not Capture.objects.filter(embedded=False).exists()
    hinted = {
        row.a.file_name.split("/")[-1][:4] + row.b.file_name.split("/")[-1][-4:] for row in NearDuplicate.objects.all()
    }
    assert hinted == {f"p{n:03d}.jpg"[:4] + ".jpg" for n in range(20, 30)}
    assert NearDuplicate.objects.count() == 10
    fresh = Capture.objects.get(file_name__endswith="p025.jpg")
    [(other, _share)] = near_duplicates.of(fresh, 5)
    assert other.file_name.endswith("p025.png")


def _again(image: Image.Image, kind: str, **how: Any) -> io.BytesIO:
    return io.BytesIO(saved(image, kind, **how))
