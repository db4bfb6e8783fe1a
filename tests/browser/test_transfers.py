"""Import and export in a real browser: sending a file by the keyboard, the look before, the report, the download."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from tests import committed
from tests.browser.plant import live

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Running

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSWORD = "쉬운-문장-12"


@pytest.fixture(scope="module")
def line(running_console: Running, django_db_blocker: Any) -> str:
    """A line of its own with a small defect book and an engineer for each language."""
    from console.models import Membership, User
    from registry import lines
    from registry.models import Site

    def make() -> None:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "Site"})
        line = lines.create_line(site, code="carry", name="EL 3", product="mono", by="command:test")
        lines.add_class(line, code="crack", name_ko="균열", name_en="crack", by="command:test")
        for name, shown, language, theme in (("carry-en", "Haneul", "en", "light"), ("carry-ko", "서연", "ko", "dark")):
            person = User.objects.create_user(
                name, password=PASSWORD, display_name=shown, language=language, theme=theme
            )
            Membership.objects.create(user=person, line=line, role="engineer")

    committed.on(running_console, django_db_blocker, make)
    return "carry"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """YOLO labels and cells with Korean names; two files are broken."""
    from tests.console.world import cell

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        target.writestr("data.yaml", "names: [Crack, 스크래치, OK]\n")
        for n in range(18):
            name = f"불량_스크래치_{n:03d}"
            target.writestr(f"images/{name}.png", cell(2000 + n, cracked=n % 3 != 2))
            if n < 15:
                target.writestr(f"labels/{name}.txt", "" if n % 3 == 2 else f"{n % 3} 0.5 0.5 0.3 0.4\n")
        target.writestr("images/half.png", cell(2100, cracked=True)[:200])
        target.writestr("images/text.jpg", b"no picture at all")
    file = tmp_path_factory.mktemp("archive") / "라인3_불량_2026-11.zip"
    file.write_bytes(out.getvalue())
    return file


def sign_in(running: Running, page: Page, name: str) -> None:
    page.goto(running.base_url + "/sign-in/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    expect(page.locator(".who summary")).to_be_visible()


@pytest.mark.parametrize("name", ["carry-en", "carry-ko"])
def test_a_file_is_sent_by_the_keyboard_looked_at_imported_and_exported_again(
    running_console: Running, page: Page, line: str, archive: Path, shot: Callable[[Page, str], Path], name: str
) -> None:
    sign_in(running_console, page, name)
    kept = name.removeprefix("carry-")
    page.goto(running_console.base_url + "/transfers/")
    live(page)
    shot(page, f"transfers-list-empty-{kept}")
    page.goto(running_console.base_url + "/transfers/new")
    live(page)
    page.locator("#archive").set_input_files(archive)
    shot(page, f"transfers-new-{kept}")
    page.locator("#archive").focus()
    page.keyboard.press("Tab")
    expect(page.locator("#upload [type=submit]")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/transfers/*-*/")
    live(page)
    expect(page.locator(".names")).to_contain_text("불량_스크래치_000.png")  # by itself, when the worker has looked
    shot(page, f"transfers-look-{kept}")
    button = page.locator("#acts form button")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".pill.ok")).to_be_visible()
    live(page)
    expect(page.locator("#now")).to_contain_text("text.jpg")
    shot(page, f"transfers-report-{kept}")
    page.goto(running_console.base_url + f"/transfers/new?kind=export&show=all&in={line}")
    live(page)
    shot(page, f"transfers-export-{kept}")
    page.locator("input[value=label_studio]").check()
    page.click("form .acts button")
    expect(page.locator(".pill.ok")).to_be_visible()
    live(page)
    shot(page, f"transfers-export-done-{kept}")
    with page.expect_download() as expected:
        page.locator("#acts a.btn").click()
    with zipfile.ZipFile(expected.value.path()) as back:
        assert "images/images/불량_스크래치_000.png" in back.namelist()
    page.goto(running_console.base_url + "/transfers/")
    live(page)
    shot(page, f"transfers-list-{kept}")
    page.goto(running_console.base_url + "/captures/?show=all")
    live(page)
    shot(page, f"transfers-grid-{kept}")


def test_what_is_no_zip_is_said_beside_the_field(
    running_console: Running, new_page: Any, line: str, tmp_path: Path
) -> None:
    page = new_page(locale="en-GB", allow="409")
    sign_in(running_console, page, "carry-en")
    page.goto(running_console.base_url + "/transfers/new")
    file = tmp_path / "cat.zip"
    file.write_bytes(b"no archive")
    page.locator("#archive").set_input_files(file)
    page.click("#upload [type=submit]")
    expect(page.locator("#upload-failed")).to_contain_text("cat.zip is not a zip file.")
    expect(page.locator("#archive")).to_be_focused()
