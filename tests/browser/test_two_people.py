"""A shift's work in a real browser: two people decide two hundred pictures by keyboard alone, at the same time, through
a cut network, with undo, the rest in one go, and an export of what came of it."""

from __future__ import annotations

import io
import json
import statistics
import zipfile
from collections import Counter
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
PICTURES, BY_KEYS = 220, 200
CODE = "shift-1"
SAID = {"o": ("OK", []), "1": ("NG", [1]), "2": ("NG", [2])}
CUT = ("ERR_INTERNET_DISCONNECTED", "WebSocket", "htmx:")


@pytest.fixture(scope="module")
def line(running_console: Running, django_db_blocker: Any) -> str:
    """A line with two defect classes, two reviewers and a shift's worth of pictures."""
    from console.models import Membership, User
    from registry import lines
    from registry.models import Site
    from tests.console.world import cell
    from training import captures

    def make() -> None:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "창원 1공장"})
        made = lines.create_line(site, code=CODE, name="야간 라인", by="command:test")
        for number, (code, korean) in enumerate((("crack", "균열"), ("stain", "얼룩")), start=1):
            lines.add_class(made, number=number, code=code, name_ko=korean, name_en=code, by="command:test")
        for name, language in (("night-ko", "ko"), ("night-en", "en")):
            person = User.objects.create_user(name, password=PASSWORD, display_name=name, language=language)
            Membership.objects.create(user=person, line=made, role="engineer")
        for n in range(PICTURES):
            meta = {"lot": f"L{n // 20}", "serial": f"S{n:03d}"}
            captures.import_one(made, cell(3000 + n, cracked=n % 3 == 0), meta, by=person)

    committed.on(running_console, django_db_blocker, make)
    return CODE


class Reviewer:
    """Somebody at a keyboard who remembers which picture was on the screen at each key."""

    def __init__(self, page: Page, running: Running, name: str) -> None:
        self.page, self.said = page, {}
        page.goto(running.base_url + "/sign-in/")
        page.fill("[name=username]", name)
        page.fill("[name=password]", PASSWORD)
        page.click("main button")
        page.goto(f"{running.base_url}/captures/review/?line={CODE}")
        expect(page.locator("#work")).to_be_visible()

    said: dict[str, tuple[str, list[int]]]

    def current(self) -> str:
        return str(self.page.evaluate("document.getElementById('work').dataset.id"))

    def ready(self) -> None:
        self.page.wait_for_function("() => document.getElementById('ready').textContent !== ''")

    def press(self, key: str) -> None:
        """A key that decides; the next picture is on the screen when this returns."""
        at = self.current()
        self.said[at] = SAID[key]
        self.page.keyboard.press(key)
        self.page.wait_for_function("id => document.getElementById('work').dataset.id !== id", arg=at)

    def saved(self) -> None:
        expect(self.page.locator("#saved")).to_have_attribute("data-state", "saved", timeout=30_000)

    def undo(self) -> None:
        before = self.current()
        self.page.keyboard.press("Control+z")
        self.page.wait_for_function("id => document.getElementById('work').dataset.id !== id", arg=before)
        del self.said[self.current()]

    def times_ms(self) -> list[float]:
        return list(self.page.evaluate("performance.getEntriesByName('next-picture').map(entry => entry.duration)"))


def test_two_people_decide_two_hundred_pictures_by_keyboard_cut_undo_bulk_and_export(
    running_console: Running,
    django_db_blocker: Any,
    new_page: Callable[..., Page],
    line: str,
    shot: Callable[[Page, str], Path],
    record_property: Callable[[str, object], None],
) -> None:
    from training.models import Decision

    def standing() -> dict[str, tuple[str, list[int]]]:
        rows = Decision.objects.filter(capture__line__code=CODE, capture__decision__isnull=False)
        return {str(row.capture_id): (row.verdict, row.classes) for row in rows.filter(kind="DECIDED")
                if row.pk == row.capture.decision_id}  # fmt: skip

    people = [
        Reviewer(new_page(locale="ko-KR", allow=CUT), running_console, "night-ko"),
        Reviewer(new_page(locale="en-GB", allow=CUT), running_console, "night-en"),
    ]
    keys = "o1o2oo1"
    for n in range(BY_KEYS - 20):
        people[n % 2].ready()
        people[n % 2].press(keys[n % len(keys)])

    first, second = people
    first.ready()
    first.page.wait_for_timeout(1500)  # what lies ahead in the rail is loaded
    first.page.context.set_offline(True)
    for key in "o12o":
        first.press(key)
    expect(first.page.locator("#saved")).to_have_attribute("data-state", "failed")
    shot(first.page, "review-cut-ko")
    for _n in range(6):  # the other one goes on
        second.ready()
        second.press("o")
    first.page.context.set_offline(False)
    first.saved()
    second.saved()

    for _n in range(3):  # across pictures, newest first
        first.undo()
    first.saved()
    for _n in range(13):
        first.ready()
        first.press("1")
    first.saved()
    shot(second.page, "review-shift-en")

    times = first.times_ms()
    said = {**first.said, **second.said}
    assert len(said) == BY_KEYS == len(first.said) + len(second.said)  # nobody was given the other's picture
    assert committed.on(running_console, django_db_blocker, standing) == said

    page = second.page
    page.goto(f"{running_console.base_url}/captures/?line={CODE}")
    # The first one still holds what lies ahead in the rail; a choice that somebody holds is left alone and said so.
    first.page.goto(f"{running_console.base_url}/captures/?line={CODE}")
    expect(page.locator(".pick")).to_have_count(PICTURES - BY_KEYS)
    page.keyboard.press("Control+a")
    expect(page.locator("#chosen")).to_have_text(str(PICTURES - BY_KEYS))
    page.keyboard.press("2")
    expect(page.locator("#notices")).to_contain_text("pictures decided")
    after = committed.on(running_console, django_db_blocker, standing)
    together = {capture: what for capture, what in after.items() if capture not in said}
    assert together
    assert set(map(str, together.values())) == {str(SAID["2"])}
    shot(page, "grid-shift-left-alone")

    page.goto(f"{running_console.base_url}/transfers/new?kind=export&show=decided&line={CODE}")
    page.locator("input[value=coco]").check()
    page.click("form .acts button")
    expect(page.locator(".pill.ok")).to_be_visible()
    with page.expect_download() as expected:
        page.locator("#acts a.btn").click()
    with zipfile.ZipFile(io.BytesIO(expected.value.path().read_bytes())) as archive:
        names = Counter(name for name in archive.namelist() if name.startswith("images/"))
        told = json.loads(archive.read(next(name for name in archive.namelist() if name.endswith(".json"))))
    assert len(told["images"]) == len(after)
    assert max(names.values()) == 1
    assert len(names) == len(after)

    record_property(
        "key_to_next_picture_ms", {"n": len(times), "median": statistics.median(times), "worst": max(times)}
    )
    assert statistics.median(times) < 100, sorted(times)
