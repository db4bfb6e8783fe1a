"""The device protocol, version 1: words, headers and the signed text, shared by the agent and the server.

JSON over HTTPS. Ids are opaque text. Every call is idempotent. 4xx is final (except 401 nonce and 429), 5xx backs off.
Standard library only, so that the server may import it without the agent's dependencies.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

PROTOCOL_VERSION = 1
PREFIX = "/api/device/v1"
ENROL = f"{PREFIX}/enrol"
NONCE = f"{PREFIX}/nonce"
CHECK_IN = f"{PREFIX}/check-in"
CAPTURES = f"{PREFIX}/captures"  # PUT {CAPTURES}/{capture id}
BLOBS = f"{PREFIX}/blobs"  # GET {BLOBS}/{digest}
REPORTS = f"{PREFIX}/reports"

HEADER_DEVICE = "Loopline-Device"
HEADER_NONCE = "Loopline-Nonce"
HEADER_COUNTER = "Loopline-Counter"
HEADER_DIGEST = "Loopline-Digest"
HEADER_SIGNATURE = "Loopline-Signature"
HEADER_CAPTURE = "Loopline-Capture"

EMPTY_DIGEST = hashlib.sha256(b"").hexdigest()
MAX_JSON_BYTES = 256 * 1024
MAX_PICTURE_BYTES = 64 * 1024 * 1024
MAX_CAPTURE_HEADER_BYTES = 16 * 1024
MAX_TEXT = 200  # lot, serial, part, ... and every id

Reason = Literal["band", "audit", "operator", "no_model"]
Verdict = Literal["OK", "NG", "REVIEW"]
DeploymentState = Literal[
    "DOWNLOADING", "VERIFIED", "STAGED", "PROBATION", "COMMITTED", "REFUSED", "FAILED", "FELL_BACK"
]  # fmt: skip
REASONS: tuple[str, ...] = ("band", "audit", "operator", "no_model")
VERDICTS: tuple[str, ...] = ("OK", "NG", "REVIEW")
DEPLOYMENT_STATES: tuple[str, ...] = (
    "DOWNLOADING", "VERIFIED", "STAGED", "PROBATION", "COMMITTED", "REFUSED", "FAILED", "FELL_BACK",
)  # fmt: skip
# What a report's `code` may say beside an empty one; the server renders them in the viewer's language.
REPORT_CODES: tuple[str, ...] = (
    "digest_mismatch",  # bytes are not what their name says
    "too_long",  # more bytes came than were declared
    "manifest_invalid",  # not a manifest of a format that this agent knows
    "release_number_falls",  # a lower number than one that was installed before
    "base_mismatch",  # base graph, targets and map do not belong together
    "adapter_does_not_fit_base",  # names or shapes of the factors are not those of the base
    "adapter_has_no_effect",  # outputs equal the bare base's
    "golden_mismatch",  # outputs differ from the expected ones by more than the tolerance
    "not_finite",
    "picture_unreadable",  # a golden picture does not decode
    "load_failed",  # the runtime refused the graph
    "load_timeout",
    "child_died",  # the inference process ended by itself
    "disk_full",
    "not_found",  # the server does not give the bytes
    "withdrawn",  # the server said: no longer wanted
)


class EnrolRequest(TypedDict):
    """`public_key` is base64 of the 32 raw ed25519 bytes; `hardware` is free: machine, cores, memory_bytes, python."""

    token: str
    public_key: str
    hardware: dict[str, Any]
    agent_version: str
    protocol: int


class EnrolResponse(TypedDict):
    device: str
    code: str
    line: str
    station: str
    task: str
    nonce: str
    poll_s: float


class Running(TypedDict):
    release_digest: str | None
    release_number: int | None
    base_digest: str | None


class Counts(TypedDict):
    """Totals since the device was installed; they never fall."""

    inspected: int
    ok: int
    ng: int
    review: int
    flagged: int
    refused: NotRequired[int]
    audit_dropped: NotRequired[int]
    dropped: NotRequired[int]


class OutboxState(TypedDict):
    waiting: int
    bytes: int


class CheckIn(TypedDict):
    running: Running
    counts: Counts
    outbox: OutboxState
    free_bytes: int
    agent_version: str
    taken_at: str


class Assignment(TypedDict):
    deployment: str
    release_number: int
    manifest_digest: str
    manifest_bytes: int
    sequence: int


class Policy(TypedDict):
    """`audit_rate` 0..1 of OK-judged pictures; `flag_next`: so many of the next pictures, said once when asked for."""

    audit_rate: float
    flag_next: int


class CheckInResponse(TypedDict):
    assignment: Assignment | None
    policy: Policy
    poll_s: float
    time: str


class ActivationMap(TypedDict):
    """Class-activation map of the strongest defect class: `values` 0..255, row by row, `w` * `h` of them."""

    w: int
    h: int
    values: list[int]


class Prediction(TypedDict):
    release_number: int
    verdict: Verdict
    score: float
    probabilities: list[float]
    thresholds: dict[str, float]
    map: ActivationMap | None


class CaptureHeader(TypedDict):
    """Goes beside the picture's bytes as base64url JSON. `taken_at` is ISO 8601 with offset; unknown texts are ""."""

    digest: str
    bytes: int
    taken_at: str
    lot: str
    serial: str
    part: str
    station: str
    shift: str
    product: str
    reason: Reason
    sampling_weight: float
    prediction: Prediction | None


class CaptureResponse(TypedDict):
    status: Literal["created", "known"]


class Report(TypedDict):
    """One step of a deployment. `loaded_digest`: manifest digest of the bytes that the inference process has loaded."""

    deployment: str
    sequence: int
    state: DeploymentState
    code: str
    params: dict[str, Any]
    loaded_digest: str | None
    delivered_bytes: int
    base_bytes: int
    max_abs: float | None


class ReportResponse(TypedDict):
    status: Literal["ok"]
    wanted: bool


class ErrorBody(TypedDict):
    error: str
    sentence: NotRequired[str]
    nonce: NotRequired[str]


def signing_text(method: str, path: str, device: str, nonce: str, counter: int, digest: str) -> bytes:
    """The bytes under the signature. `path` is what stands on the request line, percent-encoded, with its query."""
    return f"LOOPLINE1\n{method.upper()}\n{path}\n{device}\n{nonce}\n{counter}\n{digest}".encode()


def encode_capture(header: Mapping[str, Any]) -> str:
    """CaptureHeader to the value of `Loopline-Capture`; base64url because lots and serials may be Korean."""
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")


def decode_capture(value: str) -> dict[str, Any]:
    """The value of `Loopline-Capture` to its fields, unchecked but for being an object. Raises ValueError."""
    if len(value) > MAX_CAPTURE_HEADER_BYTES:
        raise ValueError("capture header is too long")
    try:
        fields = json.loads(base64.urlsafe_b64decode(value.encode("ascii") + b"=" * (-len(value) % 4)))
    except (binascii.Error, UnicodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError("capture header is not base64url JSON") from error
    if not isinstance(fields, dict):
        raise ValueError("capture header is not an object")
    return fields
