"""Similar pictures in a real browser: found by key, all like one decided by ticks and taken back together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from tests import committed
from tests.browser.pages import settled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Running

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSWORD = "쉬운-문장-12"
PICTURES = 18


@pytest.fixture(scope="module")
def line(running_console: Running, django_db_blocker: Any) -> str:
    """A line with pictures two degrees apart on a circle of features, and two that show the same."""
    from console.models import Membership, User
    from registry import lines
    from registry.models import Site
    from tests.console.world import cell
    from tests.training.vectors import place
    from training import captures
    from training.models import Capture, NearDuplicate

    def make() -> None:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "창원 1공장"})
        made = lines.create_line(site, code="like-1", name="LK-1 라인", by="command:test")
        for number, (code, korean) in enumerate((("crack", "균열"), ("stain", "얼룩")), start=1):
            lines.add_class(made, number=number, code=code, name_ko=korean, name_en=code, by="command:test")
        person = User.objects.create_user("like-reviewer", password=PASSWORD, display_name="김하늘")
        Membership.objects.create(user=person, line=made, role="engineer")
        rows = []
        for n in range(PICTURES):
            meta = {"lot": f"L{n // 6}", "serial": f"S{n:03d}"}
            rows.append(captures.import_one(made, cell(860 + n, cracked=bool(n % 2)), meta, by=person)[0])
        Capture.objects.filter(line=made).update(score=0.5, verdict="REVIEW")
        place({row: 2.0 * n for n, row in enumerate(rows)})
        NearDuplicate.objects.create(line=made, a=rows[0], b=rows[1], similarity=0.998)

    committed.on(running_console, django_db_blocker, make)
    return "like-1"


@pytest.fixture
def decided(running_console: Running, django_db_blocker: Any) -> Callable[[], set[str]]:
    from training.models import Capture

    def read() -> set[str]:
        return set(Capture.objects.filter(line__code="like-1", state="DECIDED").values_list("serial", flat=True))

    return lambda: committed.on(running_console, django_db_blocker, read)


def test_all_like_one_are_decided_by_ticks_and_taken_back_together(
    running_console: Running, page: Page, line: str, decided: Callable[[], set[str]], shot: Callable[[Page, str], Path]
) -> None:
    page.goto(running_console.base_url + "/sign-in/")
    page.fill("[name=username]", "like-reviewer")
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    page.goto(f"{running_console.base_url}/captures/review/?line={line}")
    expect(page.locator("#work")).to_be_visible()
    shot(page, "review-with-similar")
    page.keyboard.press("s")
    expect(page.locator(".chip.by", has_text="S000")).to_be_visible()
    expect(page.locator(".tile")).to_have_count(PICTURES)
    page.locator(".tile").nth(4).hover()
    shot(page, "grid-similar")
    page.locator(".tile > a:not(.like)").first.click()
    expect(page.locator(".twins img")).to_be_visible()
    shot(page, "capture-with-twin")
    page.locator(".alike-l a").nth(1).click()
    expect(page.locator(".tiles.large").first).to_be_visible()
    expect(page.locator("#chosen")).to_have_text("5")
    settled(page)
    shot(page, "alike")
    page.locator(".tiles.large .pick").first.check()
    expect(page.locator("#chosen")).to_have_text("6")
    page.keyboard.press("1")
    expect(page.locator("#notices")).to_contain_text("7")
    assert len(decided()) == 7
    expect(page.locator("[data-chosen]")).to_have_count(1)
    shot(page, "alike-decided")
    page.keyboard.press("Control+z")
    expect(page.locator("[data-chosen]")).to_have_count(0)
    assert decided() == set()
    page.locator("[data-themes] button[value=dark]").click()
    page.get_by_text("한국어").click()
    page.locator(".tiles.large .tile").first.wait_for()
    settled(page)
    shot(page, "alike-ko-dark")
    page.keyboard.press("s")
    expect(page.locator(".chip.by", has_text="S000")).to_be_visible()
    settled(page)
    shot(page, "grid-similar-ko-dark")
