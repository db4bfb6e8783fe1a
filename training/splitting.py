"""Which side of a snapshot each picture goes to: whole lots, the same way every time, and never back from where it was.

Pictures that share a lot, their bytes or a serial stay together: a model judged on a neighbour of what it learned from
looks better than it is (a random split of magnet tiles scores 98 %, a split by lot 60 %).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

TRAIN, VAL, TEST = "train", "val", "test"
SPLITS = (TRAIN, VAL, TEST)


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

    def ties(self) -> Iterable[tuple[str, str]]:
        """What keeps this picture together with others."""
        yield "digest", self.digest
        if self.lot:
            yield "lot", self.lot
        if self.serial:
            yield "serial", self.serial


@dataclass
class Group:
    """Pictures that must not be parted. `name` is its first lot, or its first picture's id."""

    name: str
    pictures: list[Picture] = field(default_factory=list)

    @property
    def lots(self) -> list[str]:
        return sorted({picture.lot for picture in self.pictures if picture.lot})

    def classes(self) -> Counter[int]:
        return Counter(picture.label for picture in self.pictures)


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
        return (asked.pop() if len(asked) == 1 else None), asked
    been = {
        former[key]
        for picture in group.pictures
        for key in (("lot", picture.lot), ("id", str(picture.id)))
        if key in former
    }
    if not been:
        return None, set()
    return (TRAIN if TRAIN in been else min(been)), set()


def deal(
    free: list[Group], taken: Mapping[str, Counter[int]], shares: Mapping[str, float], seed: int
) -> dict[str, str]:
    """Group name -> side: class by class, rarest first, each group to the side that lacks that class most.

    `taken`: pictures per side and class that are already placed. `shares`: wanted share of each side. The order depends
    on `seed` and the groups' names only.
    """
    placed = {side: Counter(taken.get(side, {})) for side in SPLITS}
    total: Counter[int] = Counter()
    for counted in (*placed.values(), *(group.classes() for group in free)):
        total.update(counted)
    holders = {label: sum(1 for group in free if group.classes()[label]) for label in total}
    waiting = sorted(free, key=lambda group: hashlib.sha256(f"{seed} {group.name}".encode()).digest())
    sides: dict[str, str] = {}
    for label in sorted(total, key=lambda label: (holders[label], total[label], label)):
        holding = [group for group in waiting if group.classes()[label]]
        for group in sorted(
            holding, key=lambda group: -group.classes()[label]
        ):  # large ones first; ties keep seed order
            side = max(
                SPLITS, key=lambda side: (_lack(label, side, placed, total, shares), shares[side], side == TRAIN)
            )
            sides[group.name + str(group.pictures[0].id)] = side
            placed[side].update(group.classes())
            waiting.remove(group)
    return sides


def _lack(
    label: int, side: str, placed: Mapping[str, Counter[int]], total: Counter[int], shares: Mapping[str, float]
) -> float:
    """How much of its share of this class a side still misses, 1 = all of it; a side without a share lacks nothing."""
    wanted = shares[side] * total[label]
    return (wanted - placed[side][label]) / wanted if wanted else float("-inf")
