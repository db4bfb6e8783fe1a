"""What devices call. JSON calls are Django views; picture bodies come through `capture_door`, a raw ASGI door that
knows the device and the length before it reads, and hashes while it streams."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils import timezone, translation
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from console import device_messages
from console.device_messages import BadMessage
from edge import protocol
from registry import blobs, deployments, devices
from registry.lifecycle import Refused
from training import captures, pictures

if TYPE_CHECKING:
    from registry.models import Device

log = logging.getLogger(__name__)
Headers = dict[str, str]
Answer = TypeVar("Answer")


def error(status: int, code: str, sentence: str = "", **more: str) -> JsonResponse:
    """An error as the protocol words it: a code for the agent, an English sentence for whoever reads its log."""
    return JsonResponse({"error": code, "sentence": sentence, **more}, status=status)


def answer_errors(call: Callable[..., Answer]) -> Callable[..., Answer | JsonResponse]:
    """The domain's "no" as HTTP: a wrong nonce 401, an unknown device 403, a rule's sentence 409, a bad message 400."""

    @wraps(call)
    def wrapped(*args: Any, **kwargs: Any) -> Answer | JsonResponse:
        with translation.override("en"):
            try:
                return call(*args, **kwargs)
            except devices.BadNonce as bad:
                return error(401, "nonce", nonce=bad.nonce)
            except devices.NotKnown:
                return error(
                    403, "not_known", "This device or its token is not known here, or it may not send any more."
                )
            except BadMessage as bad:
                return error(400, "bad_message", str(bad))
            except pictures.PictureRefused as refused:
                return error(422, refused.code, pictures.sentence(refused))
            except deployments.NotFound as missing:
                return error(404, "not_found", str(missing))
            except Refused as refused:
                return error(409, "refused", str(refused))

    return wrapped


def authenticate(method: str, target: str, headers: Headers, digest: str) -> Device:
    """The device whose signature stands on this request; raises BadNonce or NotKnown."""
    get = headers.get
    if get(protocol.HEADER_DIGEST.lower(), "") != digest:
        raise BadMessage(f"{protocol.HEADER_DIGEST}: is not the SHA-256 of the body")
    try:
        counter = int(get(protocol.HEADER_COUNTER.lower(), ""))
    except ValueError as bad:
        raise BadMessage(f"{protocol.HEADER_COUNTER}: is not a whole number") from bad
    return devices.authenticate(
        get(protocol.HEADER_DEVICE.lower(), ""),
        nonce=get(protocol.HEADER_NONCE.lower(), ""),
        counter=counter,
        digest=digest,
        signature=get(protocol.HEADER_SIGNATURE.lower(), ""),
        method=method,
        path=target,
    )


def device_call(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A signed call: the view gets the device as its second argument."""

    @csrf_exempt
    @wraps(view)
    @answer_errors
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        digest = hashlib.sha256(request.body).hexdigest()
        return view(
            request, authenticate(request.method or "", request.get_full_path(), headers, digest), *args, **kwargs
        )

    return wrapped


@csrf_exempt
@require_POST
@answer_errors
def enrol(request: HttpRequest) -> JsonResponse:
    message = device_messages.check(device_messages.ENROL, request.body)
    if message["protocol"] != protocol.PROTOCOL_VERSION:
        return error(409, "protocol", f"This console speaks protocol {protocol.PROTOCOL_VERSION}. Update the agent.")
    device, nonce = devices.enrol(
        token=message["token"],
        public_key=message["public_key"],
        hardware=message["hardware"],
        agent_version=message["agent_version"],
        now=timezone.now(),
    )
    return JsonResponse(
        {
            "device": str(device.pk),
            "code": device.code,
            "line": device.line.code,
            "station": device.station.code,
            "task": device.line.task,
            "nonce": nonce,
            "poll_s": devices.POLL_S,
        }
    )


@csrf_exempt
@require_POST
@answer_errors
def nonce(request: HttpRequest) -> JsonResponse:
    try:
        device_id = json.loads(request.body)["device"]
    except (ValueError, KeyError, TypeError) as bad:
        raise BadMessage("device: is missing") from bad
    return JsonResponse({"nonce": devices.new_nonce(device_id)})


@require_POST
@device_call
def check_in(request: HttpRequest, device: Device) -> JsonResponse:
    return JsonResponse(devices.check_in(device, device_messages.check(device_messages.CHECK_IN, request.body)))


@require_POST
@device_call
def report(request: HttpRequest, device: Device) -> JsonResponse:
    return JsonResponse(deployments.report(device, device_messages.check(device_messages.REPORT, request.body)))


@require_GET
@device_call
def blob(request: HttpRequest, device: Device, digest: str) -> HttpResponse:
    """Bytes of a release that this device was assigned, whole or from an offset (`Range: bytes=N-`)."""
    if digest not in deployments.allowed_digests(device) or not blobs.exists(digest):
        return error(404, "not_found", "This device has no release with these bytes.")
    size = blobs.size(digest)
    start = _range_start(request.headers.get("Range", ""), size)
    with blobs.open_read(digest) as handle:
        handle.seek(start)
        response = HttpResponse(handle.read(), content_type="application/octet-stream", status=206 if start else 200)
    response["ETag"] = f'"{digest}"'
    response["Accept-Ranges"] = "bytes"
    if start:
        response["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
    return response


def _range_start(header: str, size: int) -> int:
    """The offset of `bytes=N-`; anything else asks for the whole blob, as the standard allows."""
    first, dash, last = header.removeprefix("bytes=").partition("-")
    if not header.startswith("bytes=") or not dash or last or not first.isdigit() or int(first) >= size:
        return 0
    return int(first)


urlpatterns = [
    path("enrol", enrol, name="device-api-enrol"),
    path("nonce", nonce, name="device-api-nonce"),
    path("check-in", check_in, name="device-api-check-in"),
    path("reports", report, name="device-api-report"),
    path("blobs/<str:digest>", blob, name="device-api-blob"),
]


# ------------------------------------------------------------------------------------------------ the capture door


class CaptureRequest:
    """One picture on its way in: what the headers promise, checked before the first byte of the body is read."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.headers: Headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.target = scope.get("raw_path", scope["path"].encode()).decode("ascii")
        self.capture_id = unquote(self.target.removeprefix(protocol.CAPTURES + "/"))
        self.device: Device | None = None
        self.meta: dict[str, Any] = {}
        self.incoming: blobs.Incoming | None = None

    def admit(self) -> None:
        """Who sends what, and how much; raises like the domain does, or BadMessage."""
        try:
            fields = protocol.decode_capture(self.headers.get(protocol.HEADER_CAPTURE.lower(), ""))
        except ValueError as bad:
            raise BadMessage(f"{protocol.HEADER_CAPTURE}: {bad}") from bad
        self.meta = device_messages.check(device_messages.CAPTURE, fields)
        if not self.capture_id or len(self.capture_id) > 80 or "/" in self.capture_id:
            raise BadMessage("capture id: 1 to 80 characters without a slash")
        if self.headers.get("content-length") != str(self.meta["bytes"]):
            raise BadMessage("Content-Length: is not the length that Loopline-Capture names")
        if self.meta["bytes"] > protocol.MAX_PICTURE_BYTES:
            raise TooLarge
        self.device = authenticate("PUT", self.target, self.headers, self.meta["digest"])
        self.incoming = blobs.Incoming()

    def finish(self) -> JsonResponse:
        """All bytes are here: check the digest, decode once in a bounded child, then bytes, then rows."""
        incoming, device = self.incoming, self.device
        if incoming is None or device is None:
            raise RuntimeError("finish() before admit()")
        if incoming.size_bytes != self.meta["bytes"] or incoming.digest != self.meta["digest"]:
            raise BadMessage("body: its length or SHA-256 is not what the headers say")
        if captures.known(device=device, device_capture_id=self.capture_id):
            return JsonResponse({"status": "known"})
        info = pictures.check(incoming.temporary_path)
        size = incoming.size_bytes
        digest = incoming.keep()
        _, created = captures.receive(
            device=device,
            device_capture_id=self.capture_id,
            digest=digest,
            size_bytes=size,
            info=info,
            meta=self.meta,
            now=timezone.now(),
        )
        return JsonResponse({"status": "created" if created else "known"})


class TooLarge(Exception):
    """The body is larger than any picture may be."""


async def capture_door(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Any) -> None:
    """ASGI application for `PUT /api/device/v1/captures/{id}`."""
    if scope["method"] != "PUT":
        await _answer(send, error(405, "method", "Pictures are sent with PUT."))
        return
    request = CaptureRequest(scope)
    try:
        refusal = await in_thread(_admit)(request)
        if refusal is not None:
            await _answer(send, refusal)
            return
        if await _read_body(request, receive):
            await _answer(send, await in_thread(_finish)(request))
    finally:
        if request.incoming is not None:
            request.incoming.discard()


async def _read_body(request: CaptureRequest, receive: Callable[[], Awaitable[dict[str, Any]]]) -> bool:
    """Stream the body into the blob store's waiting room; False when the device hung up."""
    assert request.incoming is not None
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return False
        chunk = message.get("body", b"")
        if request.incoming.size_bytes + len(chunk) > request.meta["bytes"]:
            return True  # longer than promised: finish() sees the wrong digest
        request.incoming.write(chunk)
        if not message.get("more_body", False):
            return True


@answer_errors
def _admit(request: CaptureRequest) -> JsonResponse | None:
    try:
        request.admit()
    except TooLarge:
        return error(413, "too_large", f"A picture may have {protocol.MAX_PICTURE_BYTES} bytes.")
    return None


@answer_errors
def _finish(request: CaptureRequest) -> JsonResponse:
    return request.finish()


def in_thread(call: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Run blocking work on a thread of its own and give its database connection back to the pool."""

    def run(*args: Any) -> Any:
        try:
            return call(*args)
        finally:
            connections.close_all()

    return sync_to_async(run, thread_sensitive=False)


async def _answer(send: Any, response: JsonResponse) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(response.content)).encode())]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})
