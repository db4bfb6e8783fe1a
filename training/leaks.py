"""Pictures that show a leak: why a group cannot be parted as somebody asked, by a few of its pictures."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from training.splitting import Group, Picture

SHOWN = 4


def tied(group: Group, assigned: Mapping[str, str]) -> list[str]:
    """Ids of pictures that are asked onto two sides: first such that share their bytes or a serial, else one a side."""
    holders: dict[Any, list[Picture]] = defaultdict(list)
    for picture in group.pictures:
        for tie in picture.ties():
            holders[tie].append(picture)
    # The narrowest tie shows it best: two shots of one part say more than two pictures of one lot.
    for pictures in sorted(holders.values(), key=len):
        sides = _one_a_side(pictures, assigned)
        if len(sides) > 1:
            return sides[:SHOWN]
    return _one_a_side(group.pictures, assigned)[:SHOWN]


def _one_a_side(pictures: list[Picture], assigned: Mapping[str, str]) -> list[str]:
    first: dict[str, str] = {}
    for picture in pictures:
        side = assigned.get(picture.lot) or assigned.get(str(picture.id))
        if side:
            first.setdefault(side, str(picture.id))
    return list(first.values())


def trained(group: Group, former: Mapping[tuple[str, str], str], side: str) -> tuple[str, list[str]]:
    """The name of what of this group was on `side` in an earlier snapshot, and pictures of it; ("", []) for nothing."""
    found = [
        picture
        for picture in group.pictures
        if former.get(("lot", picture.lot) if picture.lot else ("id", str(picture.id))) == side
    ]
    if not found:
        return "", []
    return found[0].lot or found[0].serial or str(found[0].id), [str(picture.id) for picture in found[:SHOWN]]
