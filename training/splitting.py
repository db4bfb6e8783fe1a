"""Which side of a snapshot each picture goes to: whole lots, the same way every time, and never back from where it was.

Pictures that share a lot, their bytes or a serial, or that show nearly the same, stay together: a model judged on a
neighbour of what it learned from looks better than it is (a random split of magnet tiles scores 98 %, a split by lot
60 %).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

TRAIN, VAL, TEST = "train", "val", "test"
SPLITS = (TRAIN, VAL, TEST)
Stratum = tuple[int, "str | None"]  # class number; product, None for all of them


@dataclass(frozen=True)
class Picture:
    """What splitting must know of a capture. `label`: class number, 0 = OK."""

    id: UUID
    decision_id: UUID
    digest: str
    lot: str
    serial: str
    product: str
    label: int
    twins: tuple[str, ...] = ()  # names of the pairs of near duplicates that it is one of

    def strata(self) -> tuple[Stratum, Stratum]:
        """What every side should have its share of: this class, and this class of this product."""
        return (self.label, None), (self.label, self.product)

    def ties(self) -> Iterable[tuple[str, str]]:
        """What keeps this picture together with others."""
        yield "digest", self.digest
        if self.lot:
            yield "lot", self.lot
        if self.serial:
            yield "serial", self.serial
        for pair in self.twins:
            yield "twins", pair


@dataclass
class Group:
    """Pictures that must not be parted. `name` is its first lot, or its first picture's id."""

    name: str
    pictures: list[Picture] = field(default_factory=list)

    @property
    def lots(self) -> list[str]:
        return sorted({picture.lot for picture in self.pictures if picture.lot})

    def strata(self) -> Counter[Stratum]:
        """How many pictures of each class, and of each class of each product, it brings to a side."""
        return Counter(stratum for picture in self.pictures for stratum in picture.strata())


def groups(pictures: Iterable[Picture]) -> list[Group]:
    """Connected pictures, in a fixed order."""
    parent: dict[Any, Any] = {}

    def root(node: Any) -> Any:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    ordered = sorted(pictures, key=lambda picture: picture.id)
    for picture in ordered:
        for tie in picture.ties():
            parent[root(tie)] = root(picture.id)
    members: dict[Any, list[Picture]] = defaultdict(list)
    for picture in ordered:
        members[root(picture.id)].append(picture)
    made = [Group(min((p.lot for p in found if p.lot), default=str(found[0].id)), found) for found in members.values()]
    return sorted(made, key=lambda group: (group.name, str(group.pictures[0].id)))


def fixed(
    group: Group, assigned: Mapping[str, str], former: Mapping[tuple[str, str], str]
) -> tuple[str | None, set[str]]:
    """The side this group must go to, and all sides that the person's own assignment names for it (two are a conflict).

    `assigned`: lot or capture id -> side, as asked for. `former`: lot or picture -> side in earlier snapshots. What was
    once trained on stays in training: it can judge no version that continues an older one.
    """
    asked = {assigned[key] for picture in group.pictures for key in (picture.lot, str(picture.id)) if key in assigned}
    if asked:
        return (next(iter(asked)) if len(asked) == 1 else None), asked
    been = {
        former[key]
        for picture in group.pictures
        for key in (("lot", picture.lot), ("id", str(picture.id)))
        if key in former
    }
    if not been:
        return None, set()
    return (TRAIN if TRAIN in been else min(been)), set()


def twins_apart(group: Group, assigned: Mapping[str, str]) -> tuple[Picture, Picture] | None:
    """Two pictures that show nearly the same and that the assignment would part; None when other ties hold the group.

    Without its near duplicates the group falls into parts that each have one side; the two are of different parts.
    """
    parts = groups(replace(picture, twins=()) for picture in group.pictures)
    sides = {picture.id: fixed(part, assigned, {})[1] for part in parts for picture in part.pictures}
    pairs: dict[str, list[Picture]] = defaultdict(list)
    for picture in group.pictures:
        for name in picture.twins:
            pairs[name].append(picture)
    whole = [(pair[0], pair[1]) for pair in pairs.values() if len(pair) == 2]
    if any(len(asked) > 1 for asked in sides.values()) or not whole:
        return None
    return max(whole, key=lambda pair: (sides[pair[0].id] != sides[pair[1].id], str(pair[0].id)))


def deal(
    free: list[Group], taken: Mapping[str, Counter[Stratum]], shares: Mapping[str, float], seed: int
) -> dict[str, str]:
    """Group name -> side: rarest class of a product first, each group to the side that lacks it most.

    A side lacks a class as a whole and a class of a product; both count, so that thresholds chosen on validation know
    every product, and a class that only one lot of each product holds still comes to more than one side.

    `taken`: pictures per side and stratum that are already placed. `shares`: wanted share of each side. The order
    depends on `seed` and the groups' names only.
    """
    placed = {side: Counter(taken.get(side, {})) for side in SPLITS}
    total: Counter[Stratum] = Counter()
    brings = [(group, group.strata()) for group in free]
    for counted in (*placed.values(), *(counted for _, counted in brings)):
        total.update(counted)
    waiting = sorted(brings, key=lambda pair: hashlib.sha256(f"{seed} {pair[0].name}".encode()).digest())
    sides: dict[str, str] = {}
    for label, product in _rarest_first(total, [counted for _, counted in brings]):
        holding = [pair for pair in waiting if pair[1][label, product]]
        waiting = [pair for pair in waiting if not pair[1][label, product]]
        for group, counted in sorted(holding, key=lambda pair: -pair[1][label, product]):  # ties keep the seed's order
            side = max(
                SPLITS,
                key=lambda side: (
                    sum(_lack(stratum, side, placed, total, shares) for stratum in ((label, None), (label, product))),
                    shares[side],
                    side == TRAIN,
                ),
            )
            sides[group.name + str(group.pictures[0].id)] = side
            placed[side].update(counted)
    return sides


def _rarest_first(total: Counter[Stratum], groups: list[Counter[Stratum]]) -> list[tuple[int, str]]:
    """Classes of products in the order in which they are dealt: the class that the fewest groups hold first."""
    holders: Counter[Stratum] = Counter(stratum for counted in groups for stratum in counted)
    dealt = [(label, product) for label, product in total if product is not None]
    return sorted(
        dealt, key=lambda stratum: (holders[stratum[0], None], total[stratum[0], None], holders[stratum], stratum)
    )


def _lack(
    stratum: Stratum,
    side: str,
    placed: Mapping[str, Counter[Stratum]],
    total: Counter[Stratum],
    shares: Mapping[str, float],
) -> float:
    """How much of its share of this stratum a side still misses, 1 = all of it; one without a share lacks nothing."""
    wanted = shares[side] * total[stratum]
    return (wanted - placed[side][stratum]) / wanted if wanted else float("-inf")
