"""Signed requests against a server that checks signatures on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge import protocol
from edge.__main__ import main
from edge.client import Backoff, Client, Denied, Final, Offline
from edge.config import Home
from tests.edge.console_double import Console
from tests.edge.plant import picture, sha256

CHECK_IN: Any = {"running": {}, "counts": {}, "outbox": {}, "free_bytes": 1, "agent_version": "x", "taken_at": "t"}


@pytest.fixture
def client(home: Home, console: Console) -> Any:
    client = Client(console.address, "dev-1", home.key(), timeout_s=5)
    yield client
    client.close()


def header(data: bytes, **more: Any) -> Any:
    return {"digest": sha256(data), "bytes": len(data), "lot": "로트 #1", "reason": "band", **more}


def test_enrolling_makes_a_private_key_and_takes_a_place_once(home: Home, console: Console) -> None:
    settings = home.settings()
    assert (settings.device, settings.line, settings.station) == ("dev-1", "el-1", "st-3")
    assert home.key_file.stat().st_mode & 0o777 == 0o600
    assert home.root.stat().st_mode & 0o777 == 0o700
    key = home.key_file.read_bytes()
    assert main(["enrol", "--home", str(home.root), "--server", console.address, "--token", "other"]) == 0
    assert home.key_file.read_bytes() == key


def test_a_used_token_is_refused_with_the_servers_sentence(
    home: Home, console: Console, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = ["enrol", "--home", str(tmp_path / "second"), "--server", console.address, "--token", "good-token"]
    assert main(second) == 2
    assert "used already" in capsys.readouterr().err
    assert not (tmp_path / "second" / "agent.json").exists()


def test_requests_are_signed_and_a_lost_nonce_is_renewed(client: Client, console: Console) -> None:
    for _ in range(3):
        assert client.check_in(CHECK_IN)["poll_s"] == 0.2
    console.nonce = "n-1000"  # the server restarted
    assert client.check_in(CHECK_IN)["poll_s"] == 0.2
    assert len(console.check_ins) == 4
    assert console.bad_signatures == 0


def test_another_key_is_denied(console: Console, home: Home) -> None:
    client = Client(console.address, "dev-1", Ed25519PrivateKey.generate(), timeout_s=5)
    with pytest.raises(Denied):
        client.check_in(CHECK_IN)
    client.close()
    assert console.bad_signatures == 1


def test_a_picture_travels_whole_and_again_is_known(client: Client, console: Console, tmp_path: Path) -> None:
    data = picture(1, size=(900, 700))
    file = tmp_path / "p"
    file.write_bytes(data)
    assert client.put_capture("c-1", header(data), file)["status"] == "created"
    console.nonce = "n-500"  # the body goes a second time with the retry
    assert client.put_capture("c-1", header(data), file)["status"] == "known"
    assert console.captures["c-1"] == (header(data), data)


@pytest.mark.parametrize(
    ("status", "raised"),
    [*((s, Final) for s in (400, 404, 409, 422)), (403, Denied), *((s, Offline) for s in (429, 500, 503))],
)
def test_each_status_has_its_meaning(client: Client, console: Console, status: int, raised: type[Exception]) -> None:
    console.answers.append(("/check-in", status, {"Retry-After": "7"}))
    with pytest.raises(raised) as caught:
        client.check_in(CHECK_IN)
    if isinstance(caught.value, Offline):
        assert caught.value.retry_after_s == 7
    assert client.check_in(CHECK_IN)


def test_a_server_that_is_away_is_offline(client: Client, console: Console) -> None:
    console.stop()
    with pytest.raises(Offline):
        client.check_in(CHECK_IN)


def test_back_off_doubles_with_jitter_up_to_its_ceiling_and_starts_again() -> None:
    backoff = Backoff(1.0, 60.0)
    waits = [backoff.next_s() for _ in range(12)]
    for n, wait in enumerate(waits):
        ceiling = min(60.0, 2.0**n)
        assert ceiling / 2 <= wait <= ceiling
    assert len(set(waits)) == 12
    assert backoff.next_s(at_least_s=90) == 90
    backoff.success()
    assert backoff.next_s() <= 1.0


def test_the_capture_header_survives_any_text_and_refuses_nonsense() -> None:
    fields = {"lot": "로트/#?", "serial": "検査 (2)", "prediction": {"map": {"values": [0, 255]}}}
    assert protocol.decode_capture(protocol.encode_capture(fields)) == fields
    assert protocol.decode_capture(protocol.encode_capture(fields).rstrip("=")) == fields
    for nonsense in ("%%%", "W10=", "bm90IGpzb24=", "ü", "A" * 20_000):
        with pytest.raises(ValueError, match="capture header"):
            protocol.decode_capture(nonsense)
    with pytest.raises(ValueError, match="JSON compliant"):
        protocol.encode_capture({"score": float("nan")})


def test_the_signed_text_is_what_the_protocol_says() -> None:
    text = protocol.signing_text("put", "/a/b?c=%20", "dev", "nonce", 7, "d" * 64)
    assert text == b"LOOPLINE1\nPUT\n/a/b?c=%20\ndev\nnonce\n7\n" + b"d" * 64
    assert json.dumps(list(protocol.DEPLOYMENT_STATES))
