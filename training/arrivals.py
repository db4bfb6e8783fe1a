"""What comes with a picture (lot, serial, prediction, ...) as columns of a capture: cut, checked, never trusted."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.utils.dateparse import parse_datetime

from registry import lines
from registry.models import Station
from training.models import Capture, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def prediction_columns(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Reason, sampling weight and prediction as a device sent them."""
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
    return found | {
        "verdict": verdict,
        "score": score,
        "release_number": number if isinstance(number, int) and 0 < number < 2**31 else None,
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
