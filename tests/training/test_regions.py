"""What people draw: kept in one spelling, cut to the picture, and refused when it names no area."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from registry.lifecycle import Refused
from training import captures, regions

if TYPE_CHECKING:
    from tests.training.plant import Plant

BOX = {"number": 1, "kind": "box", "points": [[2, 3], [10, 12]]}


def test_a_region_is_cut_to_the_picture_and_a_box_turned_upright() -> None:
    drawn = {"number": 1, "kind": "box", "points": [[30.00049, 12], [-4, 3.5]]}
    assert regions.checked([drawn], width=24, height=16) == [
        {"number": 1, "kind": "box", "points": [[0.0, 3.5], [24.0, 12.0]]}
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "circle"},
        {"points": [[1, 1]]},
        {"points": [[1, 1], [1.5, 9]]},
        {"points": [[30, 3], [40, 9]]},
        {"points": [[float("nan"), 3], [4, 9]]},
        {"points": "abc"},
        {"kind": "polygon"},
        {"number": None},
    ],
)
def test_what_names_no_area_of_the_picture_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="region cannot be used"):
        regions.checked([BOX | wrong], width=24, height=16)


def test_a_drawn_class_counts_as_said_and_makes_the_part_ng(plant: Plant) -> None:
    capture = plant.capture()
    decision = captures.decide(capture, verdict="NG", regions=[BOX], by=plant.haneul)
    assert decision.regions == [{"number": 1, "kind": "box", "points": [[2.0, 3.0], [10.0, 12.0]]}]
    assert (decision.classes, capture.decided_class) == ([1], 1)
    captures.retract(capture, reason="looked again", by=plant.seoyeon)
    assert capture.decided_class is None
    with pytest.raises(Refused, match="remove them to say OK"):
        captures.decide(capture, verdict="OK", regions=[BOX], by=plant.haneul)
    with pytest.raises(Refused, match="not in the defect book"):
        captures.decide(capture, verdict="NG", regions=[BOX | {"number": 9}], by=plant.haneul)
    captures.decide(capture, verdict="OK", by=plant.haneul)
    assert capture.decided_class == 0
