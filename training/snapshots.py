"""Freezing decisions: a snapshot lists (capture, decision, side) for ever, and its digest names that list.

The manifest is built from one consistent reading, stored as a blob, and then made a row only if every decision still
stands: a decision taken back meanwhile makes the freeze start over.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.db.models import Min
from django.utils.translation import gettext_noop

from registry import audit, blobs, classes, counters, events, lines, numbers
from registry.lifecycle import Refused
from registry.models import DefectClass, Line
from training import counts, leaks, near_duplicates, policies, splitting, usage
from training.models import Capture, GoldenItem, Snapshot, SnapshotItem, Verdict
from training.splitting import SPLITS, TRAIN, VAL, Group, Picture, Stratum

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from training.policies import Person

FORMAT = 1
TRIES = 3
DEFAULT_RULE: dict[str, Any] = {"products": None, "val_share": 0.2, "test_share": 0.2, "seed": 0, "assign": None}
NOTHING = gettext_noop("No decided picture fits this rule. Decide some first, or choose other products.")
LOT_ON_BOTH_SIDES = gettext_noop(
    "Lot %(lot)s would be on two sides: its pictures are assigned to %(sides)s. A lot stays together."
)
TIED_LOTS = gettext_noop(
    "Lots %(lots)s share a picture or a serial and would be on two sides: %(sides)s. Assign them to the same side."
)
TWINS_APART = gettext_noop(
    "Pictures %(one)s and %(other)s show nearly the same and would be on two sides: %(sides)s. "
    "Assign lots %(lots)s to the same side."
)
OK_MISSING = {
    TRAIN: gettext_noop("There is no OK part in training."),
    VAL: gettext_noop("There is no OK part in validation."),
}
NG_MISSING = {
    TRAIN: gettext_noop("There is no NG part in training."),
    VAL: gettext_noop("There is no NG part in validation."),
}
CRITICAL_MISSING = {
    TRAIN: gettext_noop("The critical class %(name)s is missing from training."),
    VAL: gettext_noop("The critical class %(name)s is missing from validation."),
}
CLASS_THIN = {
    TRAIN: gettext_noop("Class %(name)s is missing from training: it is not learned."),
    VAL: gettext_noop("Class %(name)s is missing from validation: it is not measured."),
}
PRODUCT_THIN = {
    TRAIN: gettext_noop("Product %(name)s is missing from training: it is not learned."),
    VAL: gettext_noop("Product %(name)s is missing from validation: the thresholds do not know it."),
}
WITHOUT_LOT = gettext_noop("%(count)s pictures have no lot. Each of them is split on its own.")
GOLDEN_LOT = gettext_noop("%(count)s pictures share a lot with a golden set: the comparison on it flatters.")
NOT_COMPARED = gettext_noop(
    "%(count)s pictures are not compared with the others yet. Near duplicates of them may be on two sides."
)
MOVED_BACK = gettext_noop(
    "Lot %(lot)s was trained on before: what is measured on it flatters. Leave it in training, or to the rule."
)
TWO_LABELS = gettext_noop("%(count)s pictures have the same bytes as another one but another decision.")
RULE_WRONG = gettext_noop("This rule cannot be used: %(detail)s.")
CHANGED = gettext_noop("Decisions keep changing while the snapshot is being frozen. Try again in a moment.")


@dataclass
class Plan:
    """What freezing this rule now would give: sides, counts, and what speaks against it."""

    rule: dict[str, Any]
    classes: list[dict[str, Any]]
    sides: list[tuple[Picture, str]] = field(default_factory=list)
    refusals: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    reserved: int = 0
    twins: int = 0  # pictures that are near duplicates of others in the plan

    def counts(self) -> dict[str, Any]:
        """{"train": {"0": n, "1": n}, "val": ..., "test": ..., "lots": {"train": n, ...}}."""
        found: dict[str, Any] = {side: Counter() for side in SPLITS}
        lots: dict[str, set[str]] = {side: set() for side in SPLITS}
        for picture, side in self.sides:
            found[side][str(picture.label)] += 1
            if picture.lot:
                lots[side].add(picture.lot)
        counted: dict[str, Any] = {
            side: dict(sorted(found[side].items(), key=lambda pair: int(pair[0]))) for side in SPLITS
        }
        return counted | {"lots": {side: len(lots[side]) for side in SPLITS}}

    def manifest(self, line: Line) -> bytes:
        """The one spelling of this snapshot: canonical JSON, items by capture id."""
        items = [
            {
                "capture": str(picture.id),
                "decision": str(picture.decision_id),
                "digest": picture.digest,
                "label": picture.label,
                "lot": picture.lot,
                "product": picture.product,
                "split": side,
            }
            for picture, side in sorted(self.sides, key=lambda pair: pair[0].id)
        ]
        document = {"format": FORMAT, "line": line.code, "rule": self.rule, "classes": self.classes, "items": items}
        return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def preview(line: Line, rule: Mapping[str, Any]) -> dict[str, Any]:
    """What freezing this rule now would give: counts per side and class, lots, and sentences against and about it."""
    made = plan(line, rule)
    counted = made.counts()
    return {
        "counts": {side: counted[side] for side in SPLITS},
        "lots": counted["lots"],
        "total": len(made.sides),
        "reserved": made.reserved,
        "twins": made.twins,
        "classes": made.classes,
        "refusals": made.refusals,
        "warnings": made.warnings,
        "rule": made.rule,
    }


def freeze(line: Line, rule: Mapping[str, Any], *, by: Person) -> Snapshot:
    """Freeze the present decisions by this rule. Raises Refused with the first sentence that speaks against it.

    rule: {"products": [..]|None, "val_share", "test_share", "seed", "assign": {lot or capture id: side}|None}
    """
    policies.check_can_freeze(line, by=by)
    for _ in range(TRIES):
        made = plan(line, rule)
        if made.refusals:
            raise Refused(made.refusals[0]["text"], **made.refusals[0]["params"])
        digest = blobs.put(made.manifest(line))
        if snapshot := _keep(line, made, digest, by):
            return snapshot
    raise Refused(CHANGED)


def _keep(line: Line, made: Plan, digest: str, by: Person) -> Snapshot | None:
    """Make the rows, or nothing when a decision no longer stands."""
    wanted = {picture.id: picture.decision_id for picture, _ in made.sides}
    with transaction.atomic():
        Line.objects.select_for_update(no_key=True).get(pk=line.pk)  # a golden set is made under the same lock
        # Held until the commit: nobody takes a decision back between this look and the snapshot's becoming visible.
        locked = Capture.objects.select_for_update(no_key=True).filter(pk__in=list(wanted)).order_by("id")
        now = {
            row[0]: row[1]
            for row in locked.values_list("pk", "decision_id", "state", "reserved")
            if row[2] == "DECIDED" and not row[3]
        }
        if now != wanted:
            return None
        snapshot = Snapshot.objects.create(
            line=line, number=numbers.next_number(line.site, "snapshot"), digest=digest, rule=made.rule,
            classes=made.classes, counts=made.counts(), warnings=made.warnings, frozen_by=by,
        )  # fmt: skip
        SnapshotItem.objects.bulk_create(
            (
                SnapshotItem(
                    snapshot=snapshot,
                    capture_id=picture.id,
                    decision_id=picture.decision_id,
                    split=side,
                    label=picture.label,
                )
                for picture, side in made.sides
            ),
            batch_size=2000,
        )
        counters.put(line, counts.DECIDED, counts.count_decided(line))
        audit.record(by, "snapshot.freeze", snapshot, new={"digest": digest, "pictures": len(wanted)})
        events.announce(*snapshot.topics(), f"{line.code}.captures")
    return snapshot


# ------------------------------------------------------------------------------------------------ planning


def plan(line: Line, rule: Mapping[str, Any]) -> Plan:
    """Read the decisions and split them. Raises Refused only for a rule that makes no sense."""
    asked = checked_rule(rule)
    pictures, reserved = _pictures(line, asked["products"])
    made = Plan(rule=asked, classes=_class_table(line, {picture.label for picture in pictures}), reserved=reserved)
    pairs = Counter(pair for picture in pictures for pair in picture.twins)
    made.twins = sum(any(pairs[pair] > 1 for pair in picture.twins) for picture in pictures)
    if not pictures:
        made.refusals.append({"text": NOTHING, "params": {}})
        return made
    _split(line, made, splitting.groups(pictures))
    _judge_classes(made)
    _judge_pictures(line, made, pictures)
    return made


def checked_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The rule with all keys, in one spelling: what is stored, and part of the digest."""
    unknown = sorted(set(rule) - set(DEFAULT_RULE))
    if unknown:
        raise Refused(RULE_WRONG, detail=f"unknown {unknown[0]}")
    full = DEFAULT_RULE | {key: value for key, value in rule.items() if value is not None}
    try:
        val, test, seed = float(full["val_share"]), float(full["test_share"]), int(full["seed"])
        assign = {str(key): str(side) for key, side in (full["assign"] or {}).items()}
        products = sorted({str(product) for product in full["products"]}) if full["products"] else None
    except (TypeError, ValueError, AttributeError) as error:
        raise Refused(RULE_WRONG, detail=str(error)) from error
    if not (0 < val < 1 and 0 <= test < 1 and val + test < 1):
        raise Refused(RULE_WRONG, detail=f"val_share {val}, test_share {test}")
    if wrong := sorted(set(assign.values()) - set(SPLITS)):
        raise Refused(RULE_WRONG, detail=f"assign {wrong[0]}")
    return {"products": products, "val_share": val, "test_share": test, "seed": seed, "assign": assign or None}


def _pictures(line: Line, products: list[str] | None) -> tuple[list[Picture], int]:
    """Decided pictures in one reading, without those that a golden set knows or that show nearly the same; and how many
    were left out for that.
    """
    critical = set(DefectClass.objects.filter(line=line, critical=True).values_list("number", flat=True))
    golden = GoldenItem.objects.filter(golden_set__line=line)
    digests: set[str] = set()
    serials: set[str] = set()
    kept: set[UUID] = set()
    for pk, digest, serial in golden.values_list("capture_id", "capture__digest", "capture__serial"):
        kept.add(pk)
        digests.add(digest)
        serials.add(serial)
    twins = near_duplicates.names(line)
    known = {pair for pk in kept for pair in twins.get(pk, ())}
    rows = Capture.objects.filter(line=line, state=Capture.State.DECIDED, reserved=False, decision__isnull=False)
    if products:
        rows = rows.filter(product__in=products)
    wanted = ("pk", "decision_id", "digest", "lot", "serial", "product", "decision__verdict", "decision__classes")
    found: list[Picture] = []
    left_out = 0
    for pk, decision, digest, lot, serial, product, verdict, chosen in rows.order_by("pk").values_list(*wanted):
        paired = twins.get(pk, ())
        if digest in digests or (serial and serial in serials) or known.intersection(paired):
            left_out += 1
            continue
        label = 0 if verdict == Verdict.OK else next((number for number in chosen if number in critical), chosen[0])
        found.append(Picture(pk, decision, digest, lot, serial, product, label, tuple(paired)))
    return found, left_out


def _class_table(line: Line, labels: set[int]) -> list[dict[str, Any]]:
    """The defect book as it stands, and retired classes that are still in the pictures; columns counted anew.

    What only golden sets still have is judged as well, or its pictures would leave the comparison unseen; it cannot be
    critical, because nothing teaches it.
    """
    table = lines.class_table(line)
    known = {entry["number"] for entry in table}
    meant = classes.meanings(line)
    judged = {meant.get(number, number) for number in usage.golden(line)}
    for entry in DefectClass.objects.filter(line=line, number__in=(labels | judged) - known).order_by("number"):
        table.append({"number": entry.number, "code": entry.code, "name_ko": entry.name_ko, "name_en": entry.name_en,
                      "critical": entry.critical and entry.number in labels})  # fmt: skip
    return [
        {**entry, "index": index} for index, entry in enumerate(sorted(table, key=lambda entry: int(entry["number"])))
    ]


def _split(line: Line, made: Plan, found: list[Group]) -> None:
    assigned = made.rule["assign"] or {}
    former = _former_sides(line)
    taken: dict[str, Counter[Stratum]] = {side: Counter() for side in SPLITS}
    sides: dict[str, str] = {}
    free: list[Group] = []
    for group in found:
        side, asked = splitting.fixed(group, assigned, former)
        if len(asked) > 1:
            made.refusals.append(_conflict(group, asked, assigned))
            continue
        if side is None:
            free.append(group)
            continue
        sides[_key(group)] = side
        taken[side].update(group.strata())
        name, shown = leaks.trained(group, former, TRAIN) if asked and side != TRAIN else ("", [])
        if name:
            made.refusals.append({"text": MOVED_BACK, "params": {"lot": name, "pictures": shown}})
    val, test = made.rule["val_share"], made.rule["test_share"]
    sides |= splitting.deal(free, taken, {TRAIN: 1 - val - test, VAL: val, "test": test}, made.rule["seed"])
    made.sides = [
        (picture, sides[_key(group)]) for group in found if _key(group) in sides for picture in group.pictures
    ]


def _conflict(group: Group, asked: set[str], assigned: Mapping[str, str]) -> dict[str, Any]:
    """Why these pictures cannot be parted as asked, with two of them where it is because they show nearly the same."""
    params: dict[str, Any] = {"lot": group.name, "lots": ", ".join(group.lots), "sides": ", ".join(sorted(asked))}
    if apart := splitting.twins_apart(group, assigned):
        names = [picture.serial or picture.lot or str(picture.id) for picture in apart]
        params |= {"one": names[0], "other": names[1], "pictures": [str(picture.id) for picture in apart]}
        return {"text": TWINS_APART, "params": params}
    params |= {"pictures": leaks.tied(group, assigned)}
    return {"text": TIED_LOTS if len(group.lots) > 1 else LOT_ON_BOTH_SIDES, "params": params}


def _key(group: Group) -> str:
    return group.name + str(group.pictures[0].id)


def _former_sides(line: Line) -> dict[tuple[str, str], str]:
    """Where lots, and pictures without one, were in earlier snapshots: training once is for ever, else the first."""
    items = SnapshotItem.objects.filter(snapshot__line=line)
    lots = items.exclude(capture__lot="").values_list("capture__lot", "split")
    alone = items.filter(capture__lot="").values_list("capture_id", "split")
    found: dict[tuple[str, str], str] = {}
    for kind, rows in (("lot", lots), ("id", alone)):
        for name, side, _ in rows.annotate(first=Min("snapshot__number")).order_by("first"):
            if found.setdefault((kind, str(name)), side) != TRAIN and side == TRAIN:
                found[kind, str(name)] = TRAIN
    return found


def _judge_classes(made: Plan) -> None:
    present = {side: {picture.label for picture, at in made.sides if at == side} for side in SPLITS}
    for side in (TRAIN, VAL):
        if 0 not in present[side]:
            made.refusals.append({"text": OK_MISSING[side], "params": {}})
        if not present[side] - {0}:
            made.refusals.append({"text": NG_MISSING[side], "params": {}})
        for entry in made.classes[1:]:
            if entry["number"] not in present[side]:
                texts, to = (CRITICAL_MISSING, made.refusals) if entry["critical"] else (CLASS_THIN, made.warnings)
                to.append({"text": texts[side], "params": {"name": entry["code"]}})
        there = {picture.product for picture, at in made.sides if at == side}
        for product in sorted({picture.product for picture, _ in made.sides} - there - {""}):
            made.warnings.append({"text": PRODUCT_THIN[side], "params": {"name": product}})


def _judge_pictures(line: Line, made: Plan, pictures: Iterable[Picture]) -> None:
    golden = GoldenItem.objects.filter(golden_set__line=line, golden_set__retired_at=None)
    golden_lots = set(golden.exclude(capture__lot="").values_list("capture__lot", flat=True))
    labels: dict[str, int] = {}
    without = shared = differing = 0
    for picture in pictures:
        without += not picture.lot
        shared += picture.lot in golden_lots
        differing += labels.setdefault(picture.digest, picture.label) != picture.label
    lacking = near_duplicates.not_compared(line, {picture.id for picture in pictures})
    told = ((WITHOUT_LOT, without), (GOLDEN_LOT, shared), (TWO_LABELS, differing), (NOT_COMPARED, lacking))
    for text, count in told:
        if count:
            made.warnings.append({"text": text, "params": {"count": count}})


def members(snapshot: Snapshot, ids: Iterable[UUID] = ()) -> dict[UUID, str]:
    """Capture id -> side, of all items or of these captures."""
    rows = snapshot.items.all()
    wanted = list(ids)
    return dict((rows.filter(capture__in=wanted) if wanted else rows).values_list("capture_id", "split"))
