"""Pages of imports and exports: who may do what, what they say; and archives through the door of the real server."""

from __future__ import annotations

import hashlib
import http.client
import io
import re
import threading
import time
import zipfile
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
import pytest
from django.urls import reverse
from PIL import Image

from console import uploads
from registry import blobs
from tests import committed
from tests.console.world import cell
from tests.registry.plant import person
from tests.running import wait_for
from training import transfer_runner, transfers
from training.models import Capture, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test import Client

    from tests.console.world import World
    from tests.running import Running

HTMX = {"HX-Request": "true"}
PASSWORD = "쉬운-문장-12"
MB = 1_000_000


def archive(count: int = 3, **more: bytes) -> bytes:
    """YOLO: cracked cells with a box, whole ones with an empty file, and one that nobody labelled."""
    files: dict[str, bytes] = {"data.yaml": b"names: [Crack, burr]\n", **more}
    for n in range(count):
        files[f"images/셀_{n}.png"] = cell(500 + n, cracked=n % 2 == 0)
        if n < count - 1:
            files[f"labels/셀_{n}.txt"] = b"0 0.5 0.5 0.25 0.25\n" if n % 2 == 0 else b""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name, data in files.items():
            target.writestr(name, data)
    return out.getvalue()


def received(world: World, data: bytes | None = None, name: str = "라벨.zip") -> Transfer:
    incoming = blobs.Incoming()
    incoming.write(archive() if data is None else data)
    row = transfers.receive(world.line, incoming, file_name=name, by=world.plant.engineer)
    transfer_runner.look(row.pk)
    row.refresh_from_db()
    return row


def exported(world: World) -> Transfer:
    world.pictures(2)
    row = transfers.ask_export(world.line, code="coco", options={}, by=world.plant.engineer)
    transfer_runner.run(row.pk, worker="worker:test")
    row.refresh_from_db()
    return row


def url(verb: str, row: Transfer) -> str:
    return reverse(f"transfer-{verb}", args=[row.pk])


# ------------------------------------------------------------------------------------------------ pages


def test_an_empty_list_says_where_to_go_next(world: World, signed_in: Callable[..., Client]) -> None:
    page = signed_in(world.viewer).get(reverse("transfer-list")).content.decode()
    assert 'class="empty"' in page
    assert reverse("capture-list") in page
    assert page.count('aria-disabled="true"') == 2  # a viewer neither imports nor exports, and reads why


def test_the_page_says_what_would_happen_before_anything_does(world: World, signed_in: Callable[..., Client]) -> None:
    row = received(world)
    client = signed_in(world.plant.engineer)
    page = client.get(url("detail", row)).content.decode()
    assert "images/셀_0.png" in page
    assert "라벨.zip" in page
    assert re.search(r"Crack</th><td>1 · crack</td>", page)
    assert not Capture.objects.exists()
    client.post(url("confirm", row))
    transfer_runner.run(row.pk, worker="worker:test")
    page = client.get(url("detail", row)).content.decode()
    assert Capture.objects.filter(decision__verdict="NG").count() == 1
    assert '<dt>New here</dt><dd class="v">3</dd>' in page
    assert client.post(url("confirm", row)).status_code == 409


def test_refused_pictures_stand_in_a_table_by_name_and_reason(world: World, signed_in: Callable[..., Client]) -> None:
    row = received(world, archive(**{"images/반쪽.png": cell(1, cracked=True)[:120]}))
    transfers.confirm(row, by=world.plant.engineer)
    transfer_runner.run(row.pk, worker="worker:test")
    page = signed_in(world.viewer).get(url("detail", row)).content.decode()
    assert re.search(r"images/반쪽\.png</th><td[^>]*>The picture is damaged", page)


def test_a_format_that_nobody_can_tell_is_asked_for(world: World, signed_in: Callable[..., Client]) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        target.writestr("1.png", cell(1, cracked=True))
        target.writestr("1.txt", "0 0.5 0.5 0.2 0.2")
    row = received(world, out.getvalue())
    client = signed_in(world.plant.engineer)
    page = client.get(url("detail", row)).content.decode()
    assert "The files do not say which format this is." in page
    assert 'aria-describedby="confirm-why"' in page
    assert client.post(url("confirm", row)).status_code == 409
    client.post(url("format", row), {"format": "pictures"})
    transfer_runner.look(row.pk)
    client.post(url("confirm", row))
    transfer_runner.run(row.pk, worker="worker:test")
    assert Capture.objects.get().decision is None


def test_an_export_is_asked_for_and_downloaded(world: World, signed_in: Callable[..., Client]) -> None:
    world.pictures(2)
    client = signed_in(world.plant.engineer)
    address = reverse("transfer-new") + "?kind=export&show=decided&lot=L00"
    page = client.get(address).content.decode()
    assert "<dt>Pictures</dt><dd>3</dd>" in page
    answer = client.post(address, {"format": "yolo", "with_pictures": "on", "first_id": "1", "in": world.line.code})
    row = Transfer.objects.get()
    assert answer["Location"] == url("detail", row)
    assert client.get(url("download", row)).status_code == 404
    transfer_runner.run(row.pk, worker="worker:test")
    answer = client.get(url("download", row))
    assert answer["Content-Disposition"] == f'attachment; filename="{world.line.code}-{row.number}-yolo.zip"'
    data = b"".join(answer.streaming_content)  # type: ignore[attr-defined]
    assert len([name for name in zipfile.ZipFile(io.BytesIO(data)).namelist() if name.startswith("images/")]) == 3


def test_a_filter_that_nothing_fits_keeps_the_button_off(world: World, signed_in: Callable[..., Client]) -> None:
    client = signed_in(world.plant.engineer)
    address = reverse("transfer-new") + "?kind=export&lot=none"
    assert 'aria-describedby="export-why"' in client.get(address).content.decode()
    assert client.post(address, {"format": "yolo", "in": world.line.code}).status_code == 409
    assert client.post(address, {"format": "no", "in": world.line.code}).status_code == 422
    assert not Transfer.objects.exists()


def test_grid_and_snapshot_lead_here(world: World, signed_in: Callable[..., Client]) -> None:
    snapshot = world.snapshot()
    client = signed_in(world.plant.engineer)
    grid = client.get(reverse("capture-list") + "?show=decided&lot=L00").content.decode()
    link = re.search(r'href="(/transfers/new\?kind=export[^"]*)"', grid)
    assert link
    assert "<dt>Pictures</dt><dd>3</dd>" in client.get(link.group(1).replace("&amp;", "&")).content.decode()
    assert "/transfers/new?kind=export" not in signed_in(world.viewer).get(reverse("capture-list")).content.decode()
    page = client.get(reverse("snapshot-detail", args=[snapshot.pk])).content.decode()
    link = re.search(r'href="(/transfers/new\?kind=export[^"]*snapshot=[^"]*)"', page)
    assert link
    assert str(snapshot) in client.get(link.group(1).replace("&amp;", "&")).content.decode()


def test_cancelling_ends_it(world: World, signed_in: Callable[..., Client]) -> None:
    row = received(world)
    client = signed_in(world.plant.engineer)
    assert 'id="now"' in client.post(url("cancel", row), headers=HTMX).content.decode()
    row.refresh_from_db()
    assert row.state == Transfer.State.CANCELLED
    assert client.post(url("cancel", row)).status_code == 409


def test_pages_open_in_both_languages_and_their_parts_alone(world: World, signed_in: Callable[..., Client]) -> None:
    rows = [received(world), received(world, b"PK nonsense"), exported(world)]
    client = signed_in(world.plant.engineer)
    addresses = [url("detail", row) for row in rows]
    addresses += [reverse("transfer-list"), reverse("transfer-new"), reverse("transfer-new") + "?kind=export"]
    for language, word in (("en", "Imports and exports"), ("ko", "가져오기와 내보내기")):
        for address in addresses:
            page = client.get(address, headers={"Accept-Language": language}).content.decode()
            assert word in page, address
            assert not re.search(r"\sstyle=|<style|\son[a-z]+=|hx-on", page), address
            for name, part in re.findall(r'id="(\w+)" data-topic="[^"]+" hx-get="([^"]+)"', page):
                if name != "stops":
                    assert f'id="{name}"' in client.get(part.replace("&amp;", "&"), headers=HTMX).content.decode()[:200]


# ------------------------------------------------------------------------------------------------ who may


def test_a_viewer_reads_and_does_nothing(world: World, signed_in: Callable[..., Client]) -> None:
    row, made = received(world), exported(world)
    client = signed_in(world.viewer)
    assert client.get(url("detail", row)).status_code == 200
    for verb in ("confirm", "format", "cancel"):
        assert client.post(url(verb, row)).status_code == 403
    assert client.get(url("download", made)).status_code == 403
    for kind in ("import", "export"):
        assert client.get(reverse("transfer-new") + f"?kind={kind}").status_code == 403
    assert client.post(reverse("transfer-upload")).status_code == 403
    row.refresh_from_db()
    assert (row.state, row.confirmed_at) == (Transfer.State.QUEUED, None)


def test_another_line_does_not_exist(world: World, signed_in: Callable[..., Client]) -> None:
    row, made = received(world), exported(world)
    client = signed_in(world.stranger)
    assert client.get(url("detail", row)).status_code == 404
    assert client.get(url("download", made)).status_code == 404
    for verb in ("confirm", "format", "cancel"):
        assert client.post(url(verb, row)).status_code == 404
    assert str(row.pk) not in client.get(reverse("transfer-list")).content.decode()
    for kind in ("import", "export"):
        assert client.get(reverse("transfer-new") + f"?kind={kind}&in={world.line.code}").status_code == 404
    snapshot = world.snapshot()
    assert client.get(reverse("transfer-new") + f"?kind=export&snapshot={snapshot.pk}").status_code == 404
    assert not Transfer.objects.exclude(pk__in=[row.pk, made.pk]).exists()


def test_who_may_only_export_is_not_shown_the_import(world: World, signed_in: Callable[..., Client]) -> None:
    client = signed_in(person("ml", world.line, "ml_engineer"))
    assert client.get(reverse("transfer-new") + "?kind=export").status_code == 200
    assert client.get(reverse("transfer-new")).status_code == 403
    row = received(world)
    assert client.post(url("confirm", row)).status_code == 403
    assert client.post(url("cancel", row)).status_code == 409
    row.refresh_from_db()
    assert row.state == Transfer.State.QUEUED


# ------------------------------------------------------------------------------------------------ the door


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
    web = psutil.Process(running_console.pids()["web"])
    client.get("/transfers/new")
    before, most, ended = web.memory_info().rss, [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], web.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    answer = client.post(
        "/transfers/upload", params={"in": line, "name": "큰 그림.zip"}, content=data, headers=headers(client)
    )
    took = time.monotonic() - began
    ended.set()
    watcher.join()
    grown = (most[0] - before) / MB
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
