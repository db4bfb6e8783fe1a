"""What comes with a picture (lot, serial, prediction, ...) as columns of a capture: cut, checked, never trusted."""

from __future__ import annotations

import math
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.utils.dateparse import parse_datetime

from registry import lines
from registry.models import DefectClass, Release, Station
from training.models import Capture, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from registry.models import Line

TEXTS = {"lot": 80, "serial": 80, "part": 80, "product": 80, "shift": 16, "file_name": 255}
DEVICE_REASONS = (Capture.Reason.BAND, Capture.Reason.AUDIT, Capture.Reason.OPERATOR, Capture.Reason.NO_MODEL)
MAX_MAP = 64 * 64


def columns(
    line: Line, meta: Mapping[str, Any], *, station: Station | None = None, arrived_at: datetime | None = None
) -> dict[str, Any]:
    """Columns of Capture from what a device or an importer says.

    `station` and `arrived_at` stand in for what `meta` does not say. A shift that is not said is the one that was on
    when the picture was taken.
    """
    found: dict[str, Any] = {name: _text(meta.get(name), size) for name, size in TEXTS.items()}
    found["station"] = _station(line, meta.get("station")) or station
    found["taken_at"] = _moment(line, meta.get("taken_at")) or arrived_at
    if not found["shift"] and found["taken_at"]:
        found["shift"] = lines.shift_at(line, found["taken_at"])
    return found


def prediction_columns(line: Line, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Reason, sampling weight and prediction as a device sent them, and what the queue is ordered by."""
    reason = meta.get("reason")
    found: dict[str, Any] = {
        "reason": reason if reason in DEVICE_REASONS else Capture.Reason.OPERATOR,
        "sampling_weight": _number(meta.get("sampling_weight"), 1.0, 1e9) or 1.0,
    }
    said = meta.get("prediction")
    if not said:
        return found
    verdict = said.get("verdict")
    score = _number(said.get("score"), 0.0, 1.0)
    if verdict not in Verdict.values or score is None:
        return found
    number = said.get("release_number")
    number = number if isinstance(number, int) and 0 < number < 2**31 else None
    top = _top_class(line, number, said.get("probabilities") or [])
    return found | {
        "verdict": verdict,
        "score": score,
        "release_number": number,
        "doubt": _doubt(score, said.get("thresholds") or {}),
        "predicted_class": top,
        "urgent": top is not None and DefectClass.objects.filter(line=line, number=top, critical=True).exists(),
        "prediction": {
            "probabilities": [value for value in map(_share, said.get("probabilities") or []) if value is not None][
                :256
            ],
            "thresholds": {
                str(key)[:32]: _share(value) for key, value in list((said.get("thresholds") or {}).items())[:8]
            },
            "map": _map(said.get("map")),
        },
    }


def _doubt(score: float, thresholds: Mapping[str, Any]) -> float:
    """1 in the middle of the review band, falling to 0 at the far end of the scale."""
    low, high = _share(thresholds.get("ok_below")), _share(thresholds.get("ng_from"))
    middle = 0.5 if low is None or high is None else (low + high) / 2
    return 1.0 - abs(score - middle) / max(middle, 1.0 - middle)


def _top_class(line: Line, release_number: int | None, probabilities: list[Any]) -> int | None:
    """The number of the most probable class, by the class table of the release that judged."""
    shares = [_share(value) or 0.0 for value in probabilities]
    if not release_number or not shares:
        return None
    try:
        table = _class_numbers(line.pk, release_number)
    except Release.DoesNotExist:
        return None
    return table[shares.index(max(shares))] if len(table) == len(shares) else None


@lru_cache(maxsize=64)
def _class_numbers(line_id: UUID, release_number: int) -> tuple[int, ...]:
    """Class numbers of a release by column; kept, because a published release never changes."""
    release = Release.objects.select_related("version").get(line=line_id, number=release_number)
    return tuple(int(entry["number"]) for entry in release.version.manifest.get("classes", ()))


def _text(value: Any, size: int) -> str:
    # PostgreSQL takes no NUL in text
    return "" if value is None else str(value).replace("\x00", "").strip()[:size]


def _number(value: Any, low: float, high: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return min(max(float(value), low), high)


def _share(value: Any) -> float | None:
    return _number(value, 0.0, 1.0)


def _map(said: Any) -> dict[str, Any] | None:
    """The coarse activation map {"w", "h", "values"}, or None when it does not add up."""
    if not isinstance(said, dict):
        return None
    width, height, values = said.get("w"), said.get("h"), said.get("values")
    if not isinstance(width, int) or not isinstance(height, int) or not isinstance(values, list):
        return None
    if not 0 < width * height <= MAX_MAP or len(values) != width * height:
        return None
    return {"w": width, "h": height, "values": [int(_number(value, 0, 255) or 0) for value in values]}


def _station(line: Line, said: Any) -> Station | None:
    if isinstance(said, Station):
        return said
    return Station.objects.filter(line=line, code=str(said)).first() if said else None


def _moment(line: Line, said: Any) -> datetime | None:
    """An aware time; one without an offset is plant time."""
    try:
        moment = said if isinstance(said, datetime) else parse_datetime(str(said or ""))
    except ValueError:  # well formed, but no such day
        return None
    if moment is None:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(line.site.timezone))
