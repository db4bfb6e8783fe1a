"""A line-scan picture of 30,000 x 2,000 pixels in a real browser: fit, fill, close up pixel for pixel, and a box drawn
round a defect of three pixels, exact to the pixel."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests import committed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Running

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSWORD = "쉬운-문장-12"
AT = (23_457, 1_234)  # where three by three pixels are bright


def strip() -> bytes:
    across = np.arange(30_000, dtype=np.float32)
    values = np.tile((110 + 40 * np.sin(across / 900)).astype(np.uint8), (2_000, 1))
    values[AT[1] - 1 : AT[1] + 2, AT[0] - 1 : AT[0] + 2] = 255
    out = io.BytesIO()
    Image.fromarray(values).save(out, "PNG", compress_level=1)
    return out.getvalue()


@pytest.fixture(scope="module")
def capture(running_console: Running, django_db_blocker: Any) -> str:
    from console.models import Membership, User
    from registry import lines
    from registry.models import Site
    from tests.console.world import cell
    from training import captures

    def make() -> str:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "창원 1공장"})
        made = lines.create_line(site, code="scan-1", name="SCAN-1", by="command:test")
        lines.add_class(made, number=1, code="pit", name_ko="점식", name_en="pit", by="command:test")
        person = User.objects.create_user("scan-reviewer", password=PASSWORD, display_name="김하늘", theme="dark")
        Membership.objects.create(user=person, line=made, role="engineer")
        found, _ = captures.import_one(made, strip(), {"serial": "STRIP-1"}, by=person)
        captures.import_one(made, cell(7, cracked=True), {"serial": "STRIP-1"}, by=person)
        return str(found.pk)

    return committed.on(running_console, django_db_blocker, make)


def brightest(page: Page) -> Any:
    """The brightest pixel of the tiles that cover the middle of the stage."""
    return page.evaluate(
        """() => Math.max(...Array.from(document.querySelectorAll('.tile-p'), (tile) => {
            if (!tile.complete || !tile.naturalWidth) return 0;
            const c = document.createElement('canvas'); c.width = tile.naturalWidth; c.height = tile.naturalHeight;
            const d = c.getContext('2d'); d.drawImage(tile, 0, 0);
            const values = d.getImageData(0, 0, c.width, c.height).data;
            return values.reduce((most, value, n) => n % 4 ? most : Math.max(most, value));
        }))"""
    )


def places(page: Page, *points: Any) -> Any:
    """Where these pixels of the capture are on the screen."""
    return page.evaluate(
        """points => { const pan = document.querySelector('.pan').getBoundingClientRect();
            return points.map(([x, y]) => [pan.left + pan.width * x / 30000, pan.top + pan.height * y / 2000]); }""",
        [list(point) for point in points],
    )


def test_a_pit_of_three_pixels_in_a_line_scan_is_found_and_drawn_round(
    running_console: Running, page: Page, capture: str, shot: Callable[[Page, str], Path], django_db_blocker: Any
) -> None:
    from training.models import Draft

    page.goto(running_console.base_url + "/sign-in/")
    page.fill("[name=username]", "scan-reviewer")
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    page.goto(f"{running_console.base_url}/captures/review/?line=scan-1&at={capture}")
    expect(page.locator("#zoom")).to_contain_text("%")
    shot(page, "scan-fit")
    assert page.locator(".tile-p").count() == 0  # the stage's own picture is as sharp
    page.keyboard.press("r")  # again: its short side fills the stage
    page.wait_for_function("() => document.querySelector('.tile-p')")
    shot(page, "scan-filled")
    page.keyboard.press("r")
    page.mouse.move(*places(page, AT)[0])
    for _n in range(40):
        page.mouse.wheel(0, -250)
    page.wait_for_function(
        "() => Array.from(document.querySelectorAll('.tile-p')).some((tile) => tile.dataset.at.startsWith('0/'))"
    )
    page.wait_for_timeout(800)
    assert brightest(page) > 240
    shot(page, "scan-close")
    page.keyboard.press("b")
    wanted = [[AT[0] - 1, AT[1] - 1], [AT[0] + 2, AT[1] + 2]]
    start, end = places(page, *wanted)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    page.mouse.up()
    expect(page.locator("#saved")).to_contain_text("Saved")
    drawn = committed.on(
        running_console, django_db_blocker, lambda: Draft.objects.get(capture_id=capture).data["regions"]
    )
    assert np.abs(np.array(drawn[0]["points"]) - np.array(wanted)).max() < 0.5
    shot(page, "scan-drawn")
