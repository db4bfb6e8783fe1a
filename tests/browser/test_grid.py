"""The grid in a real browser: choose by mouse, range and keys, decide and take back together, filter, keep a view."""

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
PICTURES = 24


@pytest.fixture(scope="module")
def line(running_console: Running, django_db_blocker: Any) -> str:
    """A line with two defect classes, two stations, three shifts, and pictures that wait."""
    from console.models import Membership, User
    from registry import lines
    from registry.models import Site
    from tests.console.world import cell
    from training import captures
    from training.models import Capture

    def make() -> None:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "창원 1공장"})
        shifts = [{"code": "A", "from": "06:00", "to": "18:00"}, {"code": "B", "from": "18:00", "to": "06:00"}]
        made = lines.create_line(site, code="gr-1", name="GR-1 라인", shifts=shifts, by="command:test")
        for number, (code, korean) in enumerate((("crack", "균열"), ("stain", "얼룩")), start=1):
            lines.add_class(made, number=number, code=code, name_ko=korean, name_en=code, by="command:test")
        stations = [lines.add_station(made, code=code, name=code, by="command:test") for code in ("S1", "S2")]
        person = User.objects.create_user("grid-reviewer", password=PASSWORD, display_name="김하늘")
        Membership.objects.create(user=person, line=made, role="engineer")
        for n in range(PICTURES):
            meta = {
                "lot": f"L{n // 8}",
                "serial": f"S{n:03d}",
                "station": stations[n % 2],
                "taken_at": f"2026-11-0{1 + n // 8}T07:00",
            }
            capture, _ = captures.import_one(made, cell(800 + n, cracked=bool(n % 2)), meta, by=person)
            Capture.objects.filter(pk=capture.pk).update(doubt=n / PICTURES, score=n / PICTURES, verdict="REVIEW")

    committed.on(running_console, django_db_blocker, make)
    return "gr-1"


@pytest.fixture
def states(running_console: Running, django_db_blocker: Any) -> Callable[[], dict[str, str]]:
    """Serial -> what was decided, of the pictures that are decided now."""
    from training.models import Capture

    def read() -> dict[str, str]:
        rows = Capture.objects.filter(line__code="gr-1", state="DECIDED").select_related("decision")
        return {row.serial: row.decision.verdict + "".join(map(str, row.decision.classes)) for row in rows}

    return lambda: committed.on(running_console, django_db_blocker, read)


def open_grid(running: Running, page: Page, query: str = "") -> None:
    page.goto(running.base_url + "/sign-in/")
    page.fill("[name=username]", "grid-reviewer")
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    page.goto(f"{running.base_url}/captures/{query}")


def test_a_range_is_decided_together_and_taken_back_together(
    running_console: Running, page: Page, line: str, states: Any, shot: Callable[[Page, str], Path]
) -> None:
    open_grid(running_console, page)
    picks = page.locator(".pick")
    expect(picks).to_have_count(PICTURES)
    picks.nth(2).click()
    picks.nth(6).click(modifiers=["Shift"])
    expect(page.locator("#chosen")).to_have_text("5")
    shot(page, "grid-chosen")
    page.keyboard.press("2")
    expect(page.locator("#notices")).to_contain_text("5 pictures decided.")
    assert states() == {f"S{n:03d}": "NG2" for n in range(2, 7)}
    expect(picks).to_have_count(PICTURES - 5)
    page.keyboard.press("Control+a")
    expect(page.locator("#chosen")).to_have_text(str(PICTURES - 5))
    page.keyboard.press("Escape")
    picks.nth(0).check()
    page.keyboard.press("o")
    expect(page.locator("#notices")).to_contain_text("1 picture decided.")
    assert states()["S000"] == "OK"
    page.keyboard.press("Control+z")
    expect(page.locator("#notices")).to_contain_text("Taken back.")
    assert "S000" not in states()
    page.keyboard.press("Control+z")
    expect(picks).to_have_count(PICTURES)
    assert states() == {}


def test_filters_and_order_travel_to_the_single_view_and_back_and_can_be_kept(
    running_console: Running, new_page: Any, line: str, shot: Callable[[Page, str], Path]
) -> None:
    page = new_page(locale="en-GB")
    open_grid(running_console, page)
    page.locator("summary", has_text="Filter and order").click()
    shot(page, "grid-filters")
    page.select_option("#f-order", "doubt")
    page.select_option("#f-station", "S2")
    page.fill("#f-from", "2026-11-02T00:00")
    page.click(".filters button.primary")
    expect(page.locator(".pick")).to_have_count(8)
    page.keyboard.press("g")
    expect(page.locator("#work")).to_be_visible()
    assert "S023" in page.locator(".judge").inner_text()  # the most uncertain of station 2
    page.click("#to-grid")
    expect(page.locator(".pick")).to_have_count(8)
    page.locator("summary", has_text="Keep this view").click()
    page.fill("#view-name", "역 2 의심")
    page.click(".keepv button:has-text('Keep')")
    expect(page.locator(".chip.on")).to_contain_text("역 2 의심")
    page.locator(".chip.by", has_text="station").click()
    expect(page.locator(".pick")).to_have_count(16)


def test_the_grid_looks_right_in_korean_on_a_tablet(
    running_console: Running, new_page: Any, line: str, shot: Callable[[Page, str], Path]
) -> None:
    page = new_page(locale="ko-KR", viewport={"width": 1024, "height": 768})
    open_grid(running_console, page)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.locator("details.more summary").first.click()
    shot(page, "grid-filters-ko")
    page.locator("details.more summary").first.click()
    page.locator(".pick").nth(1).check()
    page.evaluate("document.documentElement.dataset.theme = 'line'")
    shot(page, "grid-ko-line")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
