"""Pages of imports and exports: who may do what, and what they say before, while and after it happens."""

from __future__ import annotations

import io
import re
import zipfile
from typing import TYPE_CHECKING

from django.urls import reverse

from registry import blobs
from tests.console.world import cell
from tests.registry.plant import person
from training import transfer_runner, transfers
from training.models import Capture, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

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
