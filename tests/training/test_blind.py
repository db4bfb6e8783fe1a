"""Blind pictures: which ones, their place in the orders, and who is told what the machine said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from edge.pictures import PictureInfo
from tests.registry.plant import person
from training import blind, captures, queue
from training.models import Capture
from training.selection import Selection

if TYPE_CHECKING:
    from tests.training.plant import Plant

THRESHOLDS = {"ok_below": 0.3, "ng_from": 0.7}


def flagged(plant: Plant, name: str, reason: str, score: float, verdict: str) -> Capture:
    device = plant.line.devices.first() or plant.device()
    said = {"verdict": verdict, "score": score, "probabilities": [1 - score, score], "thresholds": THRESHOLDS}
    meta: dict[str, Any] = {"reason": reason, "sampling_weight": 50.0, "prediction": said}
    info = PictureInfo(24, 16, "RGB", "PNG", 1, 8)
    made, _ = captures.receive(
        device=device, device_capture_id=name, digest=f"{len(name):064d}", size_bytes=1, info=info, meta=meta,
        now=timezone.now(),
    )  # fmt: skip
    made.line.refresh_from_db()
    return made


def test_an_audit_picture_is_blind_and_stands_where_a_doubtful_one_would(plant: Plant) -> None:
    band = flagged(plant, "a", "band", 0.55, "REVIEW")
    Capture.objects.filter(pk=band.pk).update(urgent=True)
    audit = flagged(plant, "b", "audit", 0.01, "OK")
    band.refresh_from_db()
    assert (band.blind, audit.blind) == (False, True)
    assert (audit.doubt, audit.urgent) == (band.doubt, True)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_decoys_are_drawn_at_the_lines_share(plant: Plant, share: float) -> None:
    type(plant.line).objects.update(blind_share=share)
    plant.line.refresh_from_db()
    made = [plant.capture() for _ in range(60)]
    assert sum(row.blind for row in made) == pytest.approx(60 * share, abs=14 if 0 < share < 1 else 0)
    assert [row.blind for row in made] == [blind.draw("blind", row.pk) < share for row in made]


def test_the_machines_answer_is_hidden_until_one_has_judged(plant: Plant) -> None:
    audit = flagged(plant, "b", "audit", 0.01, "OK")
    assert blind.hidden(audit, by=plant.haneul)
    decision = captures.decide(audit, verdict="OK", by=plant.haneul)
    assert decision.predicted == {"blind": True}
    assert not blind.hidden(audit, by=plant.haneul)
    assert not blind.hidden(flagged(plant, "cc", "band", 0.5, "REVIEW"), by=plant.haneul)


def test_one_of_two_opinions_lifts_the_blind_for_its_author_only(plant: Plant) -> None:
    type(plant.line).objects.update(opinions=2)
    audit = flagged(plant, "b", "audit", 0.01, "OK")
    captures.decide(audit, verdict="OK", by=plant.haneul)
    assert not blind.hidden(audit, by=plant.haneul)
    assert blind.hidden(audit, by=plant.seoyeon)


@pytest.mark.parametrize("query", [{"why": "audit"}, {"said": "0"}, {"why": "audit", "show": "all"}])
def test_no_filter_tells_the_audit_sample_apart_but_a_supervisors(plant: Plant, query: dict[str, str]) -> None:
    audit = flagged(plant, "b", "audit", 0.01, "OK")
    Capture.objects.filter(pk=audit.pk).update(predicted_class=0)
    asked, boss = Selection.read(query), person("boss", plant.line, "supervisor")
    assert list(asked.captures(plant.line, plant.haneul)) == []
    assert queue.claim(plant.line, by=plant.haneul, want=asked.want(plant.line, plant.haneul)) == []
    assert list(asked.captures(plant.line, boss)) == [audit]
    captures.decide(audit, verdict="OK", by=plant.haneul)
    found = Selection.read({**query, "show": "decided"}).captures(plant.line, plant.haneul)
    assert list(found) == [audit]
