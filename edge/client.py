"""Signed requests to the server: nonce renewal, streaming up and down, one word for each way an answer can fail.

The counter rises under one nonce, so a recorded request is worth nothing; no clock is needed. The client never decides
what a failure means for the line: it raises `Offline` (try later), `Denied` (this device may not) or `Final` (never).
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import random
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge import __version__, protocol

_CHUNK = 64 * 1024


class Offline(Exception):
    """No answer, or one that will be different later (5xx, 429). `retry_after_s` when the server said so."""

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Denied(Exception):
    """The server knows the question but not this device (any more). Nothing is thrown away for it."""


class Final(Exception):
    """4xx: asking again gives the same answer. `code` and `sentence` come from the server."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(f"{status} {code}: {sentence}")
        self.status = status
        self.code = code
        self.sentence = sentence


class Backoff:
    """Doubling waits with jitter, so that a plant's devices do not come back in one beat after an outage."""

    def __init__(self, first_s: float = 1.0, max_s: float = 60.0) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._tries = 0

    def success(self) -> None:
        self._tries = 0

    def next_s(self, at_least_s: float | None = None) -> float:
        ceiling = min(self._max_s, self._first_s * 2.0 ** min(self._tries, 30))
        self._tries += 1
        return max(random.uniform(ceiling / 2, ceiling), at_least_s or 0.0)


class Client:
    """Talks to one server as one device. Safe for use from several threads."""

    def __init__(
        self, server: str, device: str, key: Ed25519PrivateKey, *, timeout_s: float = 20.0, ca_file: str = ""
    ) -> None:
        self._device = device
        self._key = key
        self._lock = threading.Lock()
        self._nonce = ""
        self._counter = 0
        self._http = _http(server, timeout_s, ca_file)

    def close(self) -> None:
        self._http.close()

    def check_in(self, body: protocol.CheckIn) -> protocol.CheckInResponse:
        return cast(protocol.CheckInResponse, self._json("POST", protocol.CHECK_IN, body))

    def report(self, body: protocol.Report) -> protocol.ReportResponse:
        return cast(protocol.ReportResponse, self._json("POST", protocol.REPORTS, body))

    def put_capture(self, capture: str, header: protocol.CaptureHeader, picture: Path) -> protocol.CaptureResponse:
        """Streams the picture; a re-send of the same capture is answered "known"."""
        headers = {
            protocol.HEADER_CAPTURE: protocol.encode_capture(header),
            "Content-Type": "application/octet-stream",
            "Content-Length": str(header["bytes"]),
        }
        with self._send("PUT", f"{protocol.CAPTURES}/{capture}", header["digest"], headers, picture) as response:
            return cast(protocol.CaptureResponse, _object(response))

    @contextmanager
    def blob(self, digest: str, start: int = 0) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Yields (offset, chunks): offset is `start` when the server continues there, else 0."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        # Identity: a length was declared for the bytes as they are, and a compressed stream could expand without end.
        headers["Accept-Encoding"] = "identity"
        with self._send("GET", f"{protocol.BLOBS}/{digest}", protocol.EMPTY_DIGEST, headers, None) as response:
            offset = start if response.status_code == 206 else 0
            # As they come: with a set chunk size the last part before a cut would be thrown away.
            yield offset, response.iter_raw()

    def _json(self, method: str, path: str, body: Any) -> dict[str, Any]:
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        headers = {"Content-Type": "application/json"}
        with self._send(method, path, hashlib.sha256(data).hexdigest(), headers, data) as response:
            return _object(response)

    @contextmanager
    def _send(
        self, method: str, path: str, digest: str, headers: dict[str, str], body: bytes | Path | None
    ) -> Iterator[httpx.Response]:
        if not self._nonce:
            self._renew()
        for last in (False, True):
            signed = {**headers, **self._sign(method, path, digest)}
            with _request(self._http, method, path, signed, body) as response:
                if response.status_code == 401 and not last:
                    fresh = _error(response)
                    if fresh.get("error") == "nonce" and fresh.get("nonce"):
                        self._take(str(fresh["nonce"]))
                        continue
                    raise Denied(f"{method} {path}: {fresh.get('error', 401)} {fresh.get('sentence', '')}")
                _check(response)
                yield response
                return

    def _sign(self, method: str, path: str, digest: str) -> dict[str, str]:
        with self._lock:
            self._counter += 1
            nonce, counter = self._nonce, self._counter
        text = protocol.signing_text(method, path, self._device, nonce, counter, digest)
        return {
            protocol.HEADER_DEVICE: self._device,
            protocol.HEADER_NONCE: nonce,
            protocol.HEADER_COUNTER: str(counter),
            protocol.HEADER_DIGEST: digest,
            protocol.HEADER_SIGNATURE: base64.b64encode(self._key.sign(text)).decode("ascii"),
        }

    def _renew(self) -> None:
        data = json.dumps({"device": self._device}).encode()
        headers = {"Content-Type": "application/json"}
        with _request(self._http, "POST", protocol.NONCE, headers, data) as response:
            _check(response)
            self._take(str(_object(response).get("nonce", "")))

    def _take(self, nonce: str) -> None:
        with self._lock:
            self._nonce, self._counter = nonce, 0


def enrol(
    server: str, token: str, key: Ed25519PrivateKey, *, timeout_s: float = 20.0, ca_file: str = ""
) -> protocol.EnrolResponse:
    """Trades a one-time token for a place on a line. Raises Final (403: bad, used or expired token), Offline."""
    body: protocol.EnrolRequest = {
        "token": token,
        "public_key": base64.b64encode(key.public_key().public_bytes_raw()).decode("ascii"),
        "hardware": hardware(),
        "agent_version": __version__,
        "protocol": protocol.PROTOCOL_VERSION,
    }
    http = _http(server, timeout_s, ca_file)
    try:
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        with _request(http, "POST", protocol.ENROL, headers, data) as response:
            if response.status_code in (401, 403):  # here it is the token's fault, and final
                fields = _error(response)
                raise Final(response.status_code, str(fields.get("error", "")), str(fields.get("sentence", "")))
            _check(response)
            return cast(protocol.EnrolResponse, _object(response))
    finally:
        http.close()


def hardware() -> dict[str, Any]:
    """What the server shows about this machine; no serial numbers, no addresses."""
    import os

    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
    }


def _http(server: str, timeout_s: float, ca_file: str) -> httpx.Client:
    # trust_env off: a proxy variable must not carry plant pictures elsewhere. Redirects are not followed (the default).
    verify = ssl.create_default_context(cafile=ca_file or None)
    return httpx.Client(base_url=server.rstrip("/"), timeout=timeout_s, trust_env=False, verify=verify)


@contextmanager
def _request(
    http: httpx.Client, method: str, path: str, headers: dict[str, str], body: bytes | Path | None
) -> Iterator[httpx.Response]:
    content = _file_chunks(body) if isinstance(body, Path) else body
    try:
        with http.stream(method, path, headers=headers, content=content) as response:
            yield response
    except httpx.TransportError as error:
        raise Offline(f"{method} {path}: {type(error).__name__} {error}") from error


def _file_chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as handle:
        while chunk := handle.read(_CHUNK):
            yield chunk


def _check(response: httpx.Response) -> None:
    status = response.status_code
    if status < 300:
        return
    fields = _error(response)
    code, sentence = str(fields.get("error", status)), str(fields.get("sentence", ""))
    if status >= 500 or status in (408, 425, 429) or status < 400:
        after = response.headers.get("retry-after", "")
        raise Offline(f"{status} {code} {sentence}", float(after) if after.isdigit() else None)
    if status in (401, 403):
        raise Denied(f"{status} {code} {sentence}")
    raise Final(status, code, sentence)


def _object(response: httpx.Response) -> dict[str, Any]:
    """A proxy's HTML page with status 200 is no answer of ours: Offline."""
    try:
        value = json.loads(_read(response))
    except ValueError as error:
        raise Offline(f"{response.url.path}: answer is not JSON") from error
    if not isinstance(value, dict):
        raise Offline(f"{response.url.path}: answer is not an object")
    return value


def _error(response: httpx.Response) -> dict[str, Any]:
    try:
        value = json.loads(_read(response))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _read(response: httpx.Response) -> bytes:
    body = b""
    for chunk in response.iter_bytes(_CHUNK):
        body += chunk
        if len(body) > protocol.MAX_JSON_BYTES:
            raise Offline(f"{response.url.path}: answer is too long")
    return body
