"""The doors for devices, opened by the real agent's client: who may send, what is kept, what is not."""

from __future__ import annotations

import base64
import csv
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge import protocol
from edge.client import Client, Final, enrol
from tests.running import Running

pytestmark = pytest.mark.slow

# What the decoder cannot show is refused with a code; everything else in the folder must be shown.
CODES = {"truncated", "not_a_picture", "too_many_pixels", "empty", "format_not_allowed"}
REFUSED = {
    "truncated_jpeg.jpg",
    "truncated_image.png",
    "broken.png",
    "decompression_bomb.gif",
    "reallybig.bmp",
    "cut-at-60-percent.jpg",
    "pointer-not-image.jpg",
    "empty.jpg",
}


@dataclass
class Place:
    """An enrolled device of the running console, and its client."""

    running: Running
    device: str
    key: Ed25519PrivateKey
    client: Client

    def header(self, data: bytes, **change: Any) -> dict[str, Any]:
        return {
            "digest": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "taken_at": datetime.now(UTC).isoformat(),
            "lot": "로트-7",
            "serial": "0083117",
            "part": "",
            "station": "",
            "shift": "C",
            "product": "",
            "reason": "no_model",
            "sampling_weight": 1.0,
            "prediction": None,
        } | change

    def send(self, capture_id: str, file: Path, **change: Any) -> str:
        return self.client.put_capture(capture_id, self.header(file.read_bytes(), **change), file)["status"]


@pytest.fixture(scope="module")
def place(running_console: Running, django_db_blocker: Any) -> Iterator[Place]:
    with django_db_blocker.unblock(), running_console.database():
        from registry import devices, lines
        from registry.models import Site
        from tests.registry.plant import SET_UP, person

        site = Site.objects.create(code="door", name="창원 1공장")
        line = lines.create_line(site, code="door-1", name="문 라인", by=SET_UP)
        station = lines.add_station(line, code="s1", name="Station 1", by=SET_UP)
        _, token = devices.create(line, station, code="door-1-01", by=person("door-admin", line, "administrator"))
    key = Ed25519PrivateKey.generate()
    answer = enrol(running_console.base_url, token, key)
    with pytest.raises(Final, match="token"):
        enrol(running_console.base_url, token, Ed25519PrivateKey.generate())
    client = Client(running_console.base_url, answer["device"], key)
    yield Place(running_console, answer["device"], key, client)
    client.close()


def captures_of(place: Place, django_db_blocker: Any) -> dict[str, Any]:
    with django_db_blocker.unblock(), place.running.database():
        from training.models import Capture

        return {row.device_capture_id: row for row in Capture.objects.filter(device_id=place.device)}


@pytest.mark.needs_shared_data
def test_every_odd_file_is_kept_whole_or_refused_with_a_sentence_and_nothing_else_suffers(
    place: Place, shared_data: Path, django_db_blocker: Any
) -> None:
    folder = shared_data / "odd-files"
    with (folder / "manifest.csv").open(encoding="utf-8-sig") as rows:
        names = [row["file"] for row in csv.DictReader(rows)]
    outcome: dict[str, str] = {}
    for index, name in enumerate(names):
        try:
            outcome[name] = place.send(f"odd-{index}", folder / name)
        except Final as final:
            outcome[name] = final.code if final.status == 422 and len(final.sentence) > 10 else repr(final)
    refused = {name for name, said in outcome.items() if said != "created"}
    assert {outcome[name] for name in refused} <= CODES, outcome
    assert refused == REFUSED, outcome
    kept = captures_of(place, django_db_blocker)
    assert {name for index, name in enumerate(names) if f"odd-{index}" in kept} == set(names) - refused
    from registry import blobs

    for index, name in enumerate(names):
        if row := kept.get(f"odd-{index}"):
            blob = place.running.state / "blobs" / row.digest[:2] / row.digest[2:4] / row.digest
            assert blob.read_bytes() == (folder / name).read_bytes(), name
            assert row.lot == "로트-7"
            assert blobs.is_digest(row.digest)
    waiting = place.running.state / "blobs" / "incoming"
    assert list(waiting.iterdir()) == [], "refused bytes were left behind"


@pytest.mark.needs_shared_data
def test_sending_again_changes_nothing_and_other_bytes_under_the_same_id_are_not_taken(
    place: Place, shared_data: Path, django_db_blocker: Any
) -> None:
    file = shared_data / "odd-files" / "hopper.webp"
    other = shared_data / "odd-files" / "hopper_rle8.bmp"
    assert place.send("twice", file) == "created"
    assert place.send("twice", file) == "known"
    assert place.send("twice", other) == "known"
    assert captures_of(place, django_db_blocker)["twice"].digest == hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_body_that_is_not_what_the_headers_promise_is_not_kept(
    place: Place, tmp_path: Path, django_db_blocker: Any
) -> None:
    file = tmp_path / "cell.png"
    file.write_bytes(b"not the promised bytes")
    with pytest.raises(Final) as final:
        place.client.put_capture("lied", place.header(b"the promised bytes...."), file)
    assert final.value.status == 400
    assert "lied" not in captures_of(place, django_db_blocker)


@pytest.mark.parametrize("call", ["check-in", "reports"])
def test_a_call_without_a_valid_signature_changes_nothing(place: Place, call: str) -> None:
    body = b"{}"
    headers = {
        protocol.HEADER_DEVICE: place.device,
        protocol.HEADER_NONCE: "made-up",
        protocol.HEADER_COUNTER: "1",
        protocol.HEADER_DIGEST: hashlib.sha256(body).hexdigest(),
        protocol.HEADER_SIGNATURE: base64.b64encode(b"x" * 64).decode(),
    }
    url = f"{place.running.base_url}{protocol.PREFIX}/{call}"
    assert httpx.post(url, content=body, headers=headers).status_code in (401, 403)
    assert httpx.post(url, content=body).status_code in (400, 401, 403)


def test_a_device_fetches_no_bytes_that_no_release_gave_it(place: Place, shared_data: Path) -> None:
    digest = hashlib.sha256((shared_data / "odd-files" / "hopper.webp").read_bytes()).hexdigest()
    with pytest.raises(Final) as final, place.client.blob(digest) as (_, chunks):
        list(chunks)
    assert final.value.status == 404
