"""Archives through the door of the real server: in little memory, not too large, and only from whom they may come."""

from __future__ import annotations

import hashlib
import http.client
import io
import threading
import time
import zipfile
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
import pytest
from PIL import Image

from console import uploads
from registry import blobs
from tests import committed
from tests.running import wait_for
from training.models import Capture, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.running import Running

HTMX = {"HX-Request": "true"}
PASSWORD = "쉬운-문장-12"
MB = 1_000_000


async def test_more_than_was_promised_is_cut_off_and_what_came_is_thrown_away(tmp_path: Any, settings: Any) -> None:
    settings.BLOB_ROOT = tmp_path
    asked: list[uploads.Arriving] = []

    async def django(scope: dict[str, Any], receive: Any, send: Any) -> None:
        arriving = scope[uploads.KEY]
        asked.append(arriving)
        answer = uploads.judge(arriving)
        await send({"type": "http.response.start", "status": answer.status_code if answer else 201})

    sent: list[int] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["status"])

    async def body() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    await uploads.door(django)({"headers": [(b"content-length", b"2500")]}, body, send)
    assert (sent, len(asked), asked[0].too_long) == ([413], 2, True)
    sent.clear()

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    await uploads.door(django)({"headers": []}, gone, send)
    assert sent == []
    assert list((tmp_path / "incoming").iterdir()) == []


@pytest.fixture(scope="module")
def line(running_console: Running, django_db_blocker: Any) -> str:
    """A line in the running console with an engineer, a viewer, and somebody of another line."""
    from console.models import Membership, User
    from registry import lines
    from registry.models import Site

    def make() -> None:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "Site"})
        mine = lines.create_line(site, code="door", name="Door", by="command:test")
        other = lines.create_line(site, code="door-2", name="Door 2", by="command:test")
        for name, where, role in (
            ("sender", mine, "engineer"),
            ("looker", mine, "viewer"),
            ("other", other, "engineer"),
        ):
            person = User.objects.create_user(f"door-{name}", password=PASSWORD)
            Membership.objects.create(user=person, line=where, role=role)

    committed.on(running_console, django_db_blocker, make)
    return "door"


@pytest.fixture
def session(running_console: Running, line: str) -> Iterator[Callable[[str], httpx.Client]]:
    clients: list[httpx.Client] = []

    def make(name: str) -> httpx.Client:
        client = httpx.Client(base_url=running_console.base_url, timeout=120)
        clients.append(client)
        client.get("/sign-in/")
        form = {"username": f"door-{name}", "password": PASSWORD, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        assert client.post("/sign-in/", data=form).status_code == 302
        return client

    yield make
    for client in clients:
        client.close()


def headers(client: httpx.Client) -> dict[str, str]:
    return {"Accept": "application/json", "X-CSRFToken": client.cookies["csrftoken"]}


def noise(seed: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (500, 400, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(out, "PNG", compress_level=0)
    return out.getvalue()


@pytest.mark.slow
def test_sixty_megabytes_come_in_through_the_door_in_little_memory(
    running_console: Running, line: str, session: Callable[[str], httpx.Client], django_db_blocker: Any
) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for n in range(100):
            target.writestr(f"큰 그림/{n:03d}.png", noise(n))
    data = out.getvalue()
    assert len(data) > 60 * MB
    client = session("sender")
    webs = [psutil.Process(pid) for name, pid in running_console.pids().items() if name.startswith("web")]
    client.get("/transfers/new")  # the upload comes over the same connection, to the same of them
    before, most, ended = [web.memory_info().rss for web in webs], [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            now = [web.memory_info().rss for web in webs]
            most[0] = max(most[0], *(is_ - was for is_, was in zip(now, before, strict=True)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    answer = client.post(
        "/transfers/upload", params={"in": line, "name": "큰 그림.zip"}, content=data, headers=headers(client)
    )
    took = time.monotonic() - began
    ended.set()
    watcher.join()
    grown = most[0] / MB
    print(f"{len(data) / MB:.0f} MB in {took:.1f} s, the web grew by {grown:.1f} MB")
    assert answer.status_code == 201, answer.text
    assert grown < 25
    address = answer.json()["url"]
    wait_for(lambda: "큰 그림/000.png" in client.get(address).text, within_s=60)
    client.post(f"{address}confirm", headers=headers(client))
    wait_for(lambda: "pill ok" in client.get(address).text, within_s=120)

    def counted() -> tuple[int, str]:
        row = Transfer.objects.get(line__code=line, file_name="큰 그림.zip")
        return Capture.objects.filter(line__code=line).count(), row.digest

    count, digest = committed.on(running_console, django_db_blocker, counted)
    assert count == 100
    assert digest == hashlib.sha256(data).hexdigest()
    export = client.post(
        f"/transfers/new?kind=export&show=all&in={line}",
        data={"format": "coco", "with_pictures": "on", "first_id": "1", "in": line}, headers=headers(client),
    )  # fmt: skip
    made = export.headers["Location"]
    wait_for(lambda: "pill ok" in client.get(made).text, within_s=120)
    back = client.get(f"{made}download")
    assert len(zipfile.ZipFile(io.BytesIO(back.content)).namelist()) == 101


@pytest.mark.slow
def test_one_over_the_limit_is_refused_before_it_is_read(
    running_console: Running, line: str, session: Callable[[str], httpx.Client]
) -> None:
    client = session("sender")
    status, body = _promise(running_console, client, line, 3_000_000_000)
    assert status == 413
    assert "larger than 2,048 MB" in body


@pytest.mark.slow
def test_the_door_asks_who_it_is_before_it_reads(
    running_console: Running, line: str, session: Callable[[str], httpx.Client], django_db_blocker: Any
) -> None:
    sender, looker, other = session("sender"), session("looker"), session("other")
    small = 1000
    assert _promise(running_console, sender, line, small, token="")[0] == 403
    assert _promise(running_console, looker, line, small)[0] == 403
    assert _promise(running_console, other, line, small)[0] == 404
    with httpx.Client(base_url=running_console.base_url) as nobody:
        nobody.get("/sign-in/")
        assert _promise(running_console, nobody, line, small)[0] == 401
    answer = sender.post(
        "/transfers/upload", params={"in": line, "name": "cat.jpg"}, content=b"\xff\xd8 no", headers=headers(sender)
    )
    assert answer.status_code == 409
    assert answer.json()["sentence"].startswith("cat.jpg is not a zip file.")

    def left() -> int:
        return Transfer.objects.filter(line__code=line, file_name="cat.jpg").count() + len(
            list((blobs.root() / "incoming").iterdir())
        )

    assert committed.on(running_console, django_db_blocker, left) == 0


def _promise(
    running: Running, client: httpx.Client, line: str, size: int, *, token: str | None = None
) -> tuple[int, str]:
    """The answer to the headers of an upload alone: not a byte of the body is sent."""
    parts = urlsplit(running.base_url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.putrequest("POST", f"/transfers/upload?in={line}&name=a.zip")
        sent = headers(client) | {"Content-Length": str(size), "Origin": running.base_url}
        sent |= {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}
        if token is not None:
            sent["X-CSRFToken"] = token
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
