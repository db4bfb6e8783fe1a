"""One's own keys in a real browser: set by pressing, used at once; F5 decides; so does a Korean input method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from tests import committed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Running

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSWORD = "쉬운-문장-12"
# A letter as Chromium reports it while the Korean input method is on: a jamo, or no sign at all.
JAMO = "([key, code]) => document.body.dispatchEvent(new KeyboardEvent('keydown', {key, code, bubbles: true}))"

# Says whether the page kept a key from the browser. Headless Chromium has no keys of its own that could reload a page.
KEPT = "addEventListener('keydown', (event) => { window.kept = event.defaultPrevented; })"


@pytest.fixture(scope="module")
def line(running_console: Running, django_db_blocker: Any) -> str:
    """A line with two defect classes, pictures that wait, and somebody who reviews them."""
    from console.models import Membership, User
    from registry import lines
    from registry.models import Site
    from tests.console.world import cell
    from training import captures

    def make() -> None:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "창원 1공장"})
        made = lines.create_line(site, code="ky-1", name="KY-1 라인", by="command:test")
        for code, korean, key in (("crack", "균열", "1"), ("stain", "얼룩", "t")):
            lines.add_class(made, code=code, name_ko=korean, name_en=code, hotkey=key, by="command:test")
        person = User.objects.create_user("typist", password=PASSWORD, display_name="이서연")
        Membership.objects.create(user=person, line=made, role="engineer")
        for n in range(10):
            captures.import_one(
                made, cell(800 + n, cracked=bool(n % 2)), {"lot": "L1", "serial": f"K{n:03d}"}, by=person
            )

    committed.on(running_console, django_db_blocker, make)
    return "ky-1"


@pytest.fixture
def decided(running_console: Running, django_db_blocker: Any) -> Callable[[], list[tuple[str, list[int]]]]:
    from training.models import Decision

    def read() -> list[tuple[str, list[int]]]:
        rows = Decision.objects.filter(capture__line__code="ky-1", kind="DECIDED").order_by("created_at", "id")
        return [(row.verdict, row.classes) for row in rows]

    return lambda: committed.on(running_console, django_db_blocker, read)


def sign_in(running: Running, page: Page) -> None:
    page.goto(running.base_url + "/sign-in/")
    page.fill("[name=username]", "typist")
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    expect(page.locator(".who summary")).to_be_visible()


def open_review(running: Running, page: Page, line: str) -> None:
    page.goto(f"{running.base_url}/captures/review/?line={line}")
    expect(page.locator("#ready")).not_to_be_empty()


def test_a_key_is_set_by_pressing_it_and_the_old_one_does_nothing(
    running_console: Running, page: Page, line: str, shot: Callable[[Page, str], Path], decided: Any
) -> None:
    sign_in(running_console, page)
    page.goto(running_console.base_url + "/preferences/keys")
    page.focus("#k-ok")
    page.keyboard.press("n")
    expect(page.locator("#p-ok")).to_contain_text("N is also: NG")
    expect(page.locator("#save-keys")).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("t")
    expect(page.locator("#p-ok")).to_contain_text("T is the key of class stain")
    shot(page, "keys-collide")
    page.keyboard.press("k")
    expect(page.locator("#k-ok")).to_have_value("K")
    page.focus("#k-skip")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#k-skip")).to_have_value("↓")
    page.click("#save-keys")
    expect(page.locator("#notices")).to_contain_text("Saved")
    expect(page.locator("#k-ok")).to_have_value("K")
    shot(page, "keys")

    open_review(running_console, page, line)
    expect(page.locator(".vb.ok .key")).to_have_text("K")
    left = page.locator("#left")
    page.keyboard.press("o")
    page.keyboard.press("Space")
    page.wait_for_timeout(300)
    expect(left).to_have_text("10")
    for key, remaining in (("k", 9), ("t", 8)):
        page.keyboard.press(key)
        expect(left).to_have_text(str(remaining))
    page.evaluate(JAMO, ["ㅏ", "KeyK"])
    expect(left).to_have_text("7")
    page.evaluate(JAMO, ["Process", "KeyT"])
    expect(left).to_have_text("6")
    expect(page.locator("#saved")).to_contain_text("Saved")
    assert decided() == [("OK", []), ("NG", [2]), ("OK", []), ("NG", [2])]
    page.keyboard.press("c")
    page.keyboard.type("kkk s")
    page.keyboard.press("Enter")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    shot(page, "sheet")
    page.keyboard.press("Escape")
    assert len(decided()) == 4


def test_f5_decides_and_does_not_reload_where_the_workstation_says_so(
    running_console: Running, page: Page, line: str, decided: Any
) -> None:
    sign_in(running_console, page)
    open_review(running_console, page, line)
    before, left = len(decided()), page.locator("#left")
    page.evaluate(KEPT)
    page.keyboard.press("F5")
    assert page.evaluate("window.kept") is False  # not asked for: F5 is the browser's
    assert len(decided()) == before
    page.goto(running_console.base_url + "/preferences/keys")
    page.check("[name=fkeys]")
    page.click("#save-keys")
    expect(page.locator("#notices")).to_contain_text("Saved")
    open_review(running_console, page, line)
    waits = int(str(left.text_content()))
    page.evaluate(KEPT)
    page.keyboard.press("F5")
    expect(left).to_have_text(str(waits - 1))
    assert page.evaluate("window.kept") is True
    page.keyboard.press("F8")  # several classes: the class key follows
    page.keyboard.press("1")
    expect(left).to_have_text(str(waits - 2))
    expect(page.locator("#saved")).to_contain_text("Saved")
    assert decided()[before:] == [("OK", []), ("NG", [1])]
