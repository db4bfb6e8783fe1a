"""A small real HTTP server that speaks the device protocol, written from its description.

It checks signatures, counters and digests on its own, without the agent's helpers, and can be told to fail.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PREFIX = "/api/device/v1"


class Console:
    """What the server knows and does; tests read and set its fields."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tokens = {"good-token"}
        self.public_key: Ed25519PublicKey | None = None
        self.nonce = "n-0"
        self.counter = 0
        self.blobs: dict[str, bytes] = {}
        self.assignment: dict[str, Any] | None = None
        self.policy: dict[str, Any] = {"audit_rate": 0.0, "flag_next": 0}
        self.check_ins: list[dict[str, Any]] = []
        self.reports: list[dict[str, Any]] = []
        self.captures: dict[str, tuple[dict[str, Any], bytes]] = {}
        self.puts: list[str] = []
        self.blob_requests: list[tuple[str, str]] = []
        self.refuse: set[str] = set()  # digests of pictures answered with 422
        self.answers: list[tuple[str, int, dict[str, str]]] = []  # (path part, status, headers): used up one by one
        self.unwanted_at: set[str] = set()  # states whose report is answered wanted: false
        self.cut_blobs: dict[str, int] = {}  # digest to bytes after which the connection is cut, once
        self.slow_blob_s = 0.0
        self.bad_signatures = 0
        self._http: _Server | None = None
        self.port = 0

    def start(self) -> None:
        console = self

        class Handler(_Handler):
            pass

        Handler.console = console
        self._http = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http.cut_connections()
            self._http = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def assign(self, release: Any, number: int, deployment: str = "dep-1") -> None:
        with self.lock:
            self.blobs.update(release.blobs)
            self.assignment = {
                "deployment": deployment,
                "release_number": number,
                "manifest_digest": release.digest,
                "manifest_bytes": len(release.data),
                "sequence": 0,
            }

    def states(self, deployment: str = "dep-1") -> list[str]:
        with self.lock:
            return [r["state"] for r in self.reports if r["deployment"] == deployment]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut_connections(self) -> None:
        """Kept-alive connections would outlive the listening socket: away means away."""
        for request in list(self._open):
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the agent was killed, or the connection cut on purpose


class _Handler(BaseHTTPRequestHandler):
    console: Console
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self.path.removeprefix(PREFIX)
        if self._told_to_fail():
            return
        console = self.console
        with console.lock:
            if path == "/enrol":
                self._enrol(json.loads(body))
            elif path == "/nonce":
                self._answer(200, {"nonce": self._fresh_nonce()})
            elif self._signed(body):
                if path == "/check-in":
                    console.check_ins.append(json.loads(body))
                    self._answer(200, {"assignment": console.assignment, "policy": console.policy, "poll_s": 0.2,
                                       "time": "2026-01-01T00:00:00+00:00"})  # fmt: skip
                elif path == "/reports":
                    report = json.loads(body)
                    console.reports.append(report)
                    self._answer(200, {"status": "ok", "wanted": report["state"] not in console.unwanted_at})
                else:
                    self._answer(404, {"error": "not_found"})

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._told_to_fail():
            return
        console = self.console
        with console.lock:
            if not self._signed(body):
                return
            capture = self.path.removeprefix(f"{PREFIX}/captures/")
            value = self.headers["Loopline-Capture"]
            header = json.loads(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)))
            assert header["bytes"] == len(body)
            assert header["digest"] == hashlib.sha256(body).hexdigest()
            console.puts.append(capture)
            if header["digest"] in console.refuse:
                self._answer(422, {"error": "truncated", "sentence": "The picture is incomplete."})
                return
            known = capture in console.captures
            console.captures[capture] = (header, body)
            self._answer(200, {"status": "known" if known else "created"})

    def do_GET(self) -> None:
        if self._told_to_fail():
            return
        console = self.console
        with console.lock:
            if not self._signed(b""):
                return
            digest = self.path.removeprefix(f"{PREFIX}/blobs/")
            span = self.headers.get("Range", "")
            console.blob_requests.append((digest, span))
            data = console.blobs.get(digest)
            cut = console.cut_blobs.pop(digest, None)
        if data is None:
            self._answer(404, {"error": "not_found", "sentence": "No such bytes."})
            return
        start = int(span.removeprefix("bytes=").removesuffix("-")) if span else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if cut is not None:
            self.wfile.write(data[start : start + cut])
            self.wfile.flush()
            self.close_connection = True
            return
        step = 4096 if console.slow_blob_s else len(data)
        for at in range(start, len(data), step):
            self.wfile.write(data[at : at + step])
            self.wfile.flush()
            time.sleep(console.slow_blob_s)

    def _enrol(self, fields: dict[str, Any]) -> None:
        console = self.console
        if fields["token"] not in console.tokens:
            self._answer(403, {"error": "token", "sentence": "This token was used already or has expired."})
            return
        console.tokens.discard(fields["token"])
        console.public_key = Ed25519PublicKey.from_public_bytes(base64.b64decode(fields["public_key"]))
        self._answer(200, {"device": "dev-1", "code": "EL-1-A", "line": "el-1", "station": "st-3", "task": "class",
                           "nonce": self._fresh_nonce(), "poll_s": 0.2})  # fmt: skip

    def _fresh_nonce(self) -> str:
        number = int(self.console.nonce.split("-")[1]) + 1
        self.console.nonce, self.console.counter = f"n-{number}", 0
        return self.console.nonce

    def _signed(self, body: bytes) -> bool:
        console, said = self.console, self.headers
        if said["Loopline-Nonce"] != console.nonce or int(said["Loopline-Counter"]) <= console.counter:
            self._answer(401, {"error": "nonce", "nonce": self._fresh_nonce()})
            return False
        lines = ["LOOPLINE1", self.command, self.path, said["Loopline-Device"], said["Loopline-Nonce"],
                 said["Loopline-Counter"], hashlib.sha256(body).hexdigest()]  # fmt: skip
        try:
            assert console.public_key is not None
            assert said["Loopline-Device"] == "dev-1"
            console.public_key.verify(base64.b64decode(said["Loopline-Signature"]), "\n".join(lines).encode())
        except InvalidSignature:
            console.bad_signatures += 1
            self._answer(401, {"error": "signature"})
            return False
        console.counter = int(said["Loopline-Counter"])
        return True

    def _told_to_fail(self) -> bool:
        with self.console.lock:
            for told in self.console.answers:
                part, status, headers = told
                if part in self.path:
                    self.console.answers.remove(told)
                    self._answer(status, {"error": "told"}, headers)
                    return True
        return False

    def _answer(self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)
