"""What reviewers draw: boxes and polygons of defect classes, in pixels of the picture as people see it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_noop

from registry.lifecycle import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KINDS = {"box": 2, "polygon": 3}  # fewest points; a box has two, left-top and right-bottom
MOST_REGIONS = 500
MOST_POINTS = 2000
SMALLEST_PX = 1.0

REGION_WRONG = gettext_noop(
    "A drawn region cannot be used: it has no area, too few points or lies outside the picture."
)
REGIONS_TOO_MANY = gettext_noop("At most %(most)s regions fit on a picture.")


def checked(regions: Iterable[Mapping[str, Any]], *, width: int, height: int) -> list[dict[str, Any]]:
    """The regions in their one spelling, cut to the picture. Raises Refused for one that names no area of it."""
    found = [_checked(region, width, height) for region in regions]
    if len(found) > MOST_REGIONS:
        raise Refused(REGIONS_TOO_MANY, most=MOST_REGIONS)
    return found


def numbers(regions: Iterable[Mapping[str, Any]]) -> list[int]:
    """The classes drawn, each once, in the order of drawing."""
    return list(dict.fromkeys(int(region["number"]) for region in regions))


def renumbered(regions: Iterable[dict[str, Any]], meant: Mapping[int, int]) -> list[dict[str, Any]]:
    """The regions with each class number as it is meant now; one that `meant` does not know stays."""
    return [{**region, "number": meant.get(region["number"], region["number"])} for region in regions]


def _checked(region: Mapping[str, Any], width: int, height: int) -> dict[str, Any]:
    try:
        kind, number = str(region["kind"]), int(region["number"])
        points = [(float(x), float(y)) for x, y in region["points"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(REGION_WRONG) from error
    fewest = KINDS.get(kind, math.inf)
    if not fewest <= len(points) <= MOST_POINTS or (kind == "box" and len(points) != fewest):
        raise Refused(REGION_WRONG)
    if not all(math.isfinite(value) for point in points for value in point):
        raise Refused(REGION_WRONG)
    cut = [[round(min(max(x, 0.0), width), 3), round(min(max(y, 0.0), height), 3)] for x, y in points]
    across, down = [x for x, _ in cut], [y for _, y in cut]
    if max(across) - min(across) < SMALLEST_PX or max(down) - min(down) < SMALLEST_PX:
        raise Refused(REGION_WRONG)
    if kind == "box":
        cut = [[min(across), min(down)], [max(across), max(down)]]
    return {"number": number, "kind": kind, "points": cut}
