"""Verdicts by two thresholds; flags by band, request and a draw that can be repeated."""

from __future__ import annotations

import pytest

from edge.flagging import Flag, draw, flag, verdict

THRESHOLDS = {"operating": 0.5, "ok_below": 0.3, "ng_from": 0.7}


@pytest.mark.parametrize(
    ("score", "said"), [(0.0, "OK"), (0.2999, "OK"), (0.3, "REVIEW"), (0.6999, "REVIEW"), (0.7, "NG"), (1.0, "NG")]
)
def test_the_verdict_follows_the_two_thresholds(score: float, said: str) -> None:
    assert verdict(score, THRESHOLDS) == said


def test_equal_thresholds_leave_no_band() -> None:
    assert {verdict(s / 10, {"ok_below": 0.5, "ng_from": 0.5}) for s in range(11)} == {"OK", "NG"}


def test_reasons_in_their_order() -> None:
    always = {"device": "d", "index": 0, "audit_rate": 1.0}
    assert flag(None, asked=True, **always) == Flag("no_model", 1.0)
    assert flag("REVIEW", asked=True, **always) == Flag("band", 1.0)
    assert flag("NG", asked=True, **always) == Flag("operator", 1.0)
    assert flag("OK", asked=False, **always) == Flag("audit", 1.0)
    assert flag("NG", asked=False, **always) is None


def test_audit_samples_come_at_their_rate_and_stand_for_the_others() -> None:
    flags = [flag("OK", device="d", index=n, audit_rate=0.05, asked=False) for n in range(20_000)]
    drawn = [f for f in flags if f is not None]
    assert 900 < len(drawn) < 1100
    assert {f.reason for f in drawn} == {"audit"}
    assert sum(f.sampling_weight for f in drawn) == pytest.approx(20_000, rel=0.1)
    assert not any(flag("OK", device="d", index=n, audit_rate=0.0, asked=False) for n in range(1000))


def test_the_draw_is_repeatable_uniform_and_differs_between_devices() -> None:
    assert draw("d", 5) == draw("d", 5)
    assert draw("d", 5) != draw("e", 5)
    values = [draw("d", n) for n in range(5000)]
    assert all(0 <= v < 1 for v in values)
    assert sum(values) / 5000 == pytest.approx(0.5, abs=0.02)
