"""Two people and an adjudicator in real browsers, a blind picture by keyboard, and the pages about reviewing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from tests import committed
from tests.browser.pages import troubles, untranslated

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Running

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSWORD = "쉬운-문장-12"
PEOPLE = {
    "rv-haneul": ("김하늘", ("engineer",)),
    "rv-seoyeon": ("이서연", ("engineer",)),
    "rv-jihun": ("박지훈", ("adjudicator", "supervisor")),
}


@pytest.fixture(scope="module")
def line(running_console: Running, django_db_blocker: Any) -> str:
    """A line that asks for two opinions, with opinions, answered checks and audit samples of some weeks."""
    from datetime import timedelta

    from django.utils import timezone

    from console.models import Membership, User
    from registry import counters, lines
    from registry.models import Line, Site
    from tests.console.world import cell
    from training import captures
    from training.models import Capture, Check

    def make() -> None:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "창원 1공장"})
        made = lines.create_line(site, code="op-1", name="OP-1 라인", by="command:test")
        for number, (code, korean) in enumerate((("crack", "균열"), ("stain", "얼룩")), start=1):
            lines.add_class(made, number=number, code=code, name_ko=korean, name_en=code, by="command:test")
        people = []
        for name, (display, roles) in PEOPLE.items():
            people.append(User.objects.create_user(name, password=PASSWORD, display_name=display))
            for role in roles:
                Membership.objects.create(user=people[-1], line=made, role=role)
        haneul, seoyeon, _jihun = people

        def picture(n: int, **columns: Any) -> Capture:
            meta = {"lot": f"L{n // 8}", "serial": f"R{n:03d}"}
            row, _ = captures.import_one(made, cell(300 + n, cracked=bool(n % 2)), meta, by=haneul)
            Capture.objects.filter(pk=row.pk).update(**columns)
            row.refresh_from_db()
            return row

        now = timezone.now()
        for n in range(30):  # before two opinions were asked for: five weeks of audit pictures, one waits
            audit = {"reason": "audit", "verdict": "OK", "score": 0.1, "sampling_weight": 50.0, "blind": True,
                     "taken_at": now - timedelta(days=7 * (n % 5))}  # fmt: skip
            row = picture(100 + n, **audit)
            captures.decide(row, verdict="NG" if n == 7 else "OK", classes=[1] if n == 7 else [], by=haneul)
            if n < 8:
                Check.objects.create(
                    line=made, kind="known" if n % 2 else "repeat", capture=row, by=haneul, beside=row.pk,
                    verdict="NG" if n < 5 else "OK", classes=[1] if n < 5 else [], answered_at=now,
                    answered_verdict="OK" if n == 3 else "NG", answered_classes=[] if n == 3 else [1],
                )  # fmt: skip
        Line.objects.filter(pk=made.pk).update(opinions=2)
        for n in range(24):
            row = picture(200 + n)
            row.line.refresh_from_db()
            for who, label in ((haneul, n % 2), (seoyeon, n % 2 if n else 1)):
                captures.decide(row, verdict="NG" if label else "OK", classes=[1] if label else [], by=who)
        Capture.objects.filter(line=made, disagreed=True).update(reserved=True)  # out of the way of the test below
        counters.recount(made)
        said = {"verdict": "OK", "score": 0.08, "prediction": {"thresholds": {"ok_below": 0.3, "ng_from": 0.7}}}
        picture(0, **said, reason="audit", blind=True)
        picture(1, **{**said, "score": 0.5, "verdict": "REVIEW"}, reason="band")

    committed.on(running_console, django_db_blocker, make)
    return "op-1"


def sign_in(running: Running, page: Page, name: str, path: str) -> Page:
    page.goto(running.base_url + "/sign-in/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    expect(page.locator(".who summary")).to_be_visible()
    page.goto(running.base_url + path)
    return page


def test_two_people_differ_blind_and_an_adjudicator_settles(
    running_console: Running, new_page: Any, line: str, shot: Callable[[Page, str], Path]
) -> None:
    first = sign_in(running_console, new_page(locale="ko-KR"), "rv-haneul", "/captures/review/?line=op-1")
    expect(first.locator("#left")).to_have_text("2")
    expect(first.locator(".says-box")).to_contain_text("판정 후에 표시")
    assert first.locator(".score").count() == 0
    shot(first, "review-blind-ko")
    first.keyboard.press("1")
    expect(first.locator("#left")).to_have_text("1")
    expect(first.locator(".score")).to_be_visible()  # the next one is not blind
    first.keyboard.press("Control+z")
    expect(first.locator("#left")).to_have_text("2")
    expect(first.locator(".says-box")).to_contain_text("판정 후에 표시")
    first.keyboard.press("1")
    expect(first.locator("#left")).to_have_text("1")
    second = sign_in(running_console, new_page(locale="en-GB"), "rv-seoyeon", "/captures/review/?line=op-1")
    assert "김하늘" not in second.locator(".judge").inner_text()
    second.keyboard.press("o")
    expect(second.locator(".rev-empty")).to_be_visible()  # the other picture is held by the first
    judge = sign_in(running_console, new_page(locale="en-GB"), "rv-jihun", "/captures/review/?line=op-1&disagreed=1")
    expect(judge.locator(".opin li")).to_have_count(2)
    shot(judge, "review-adjudicate-en")
    judge.evaluate("document.documentElement.dataset.theme = 'dark'")
    shot(judge, "review-adjudicate-dark")
    judge.keyboard.press("1")
    expect(judge.locator(".rev-empty")).to_be_visible()
    judge.goto(running_console.base_url + "/captures/?show=decided&line=op-1&serial=R000")
    judge.click(".tile a:not(.like)")
    expect(judge.locator(".opinions")).to_contain_text("1 of 2 agree with the decision")
    shot(judge, "detail-opinions-en")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["ko-KR", "en-GB"])
def test_the_pages_about_reviewing_look_right(
    running_console: Running, new_page: Any, line: str, shot: Callable[[Page, str], Path], locale: str, theme: str
) -> None:
    page = sign_in(running_console, new_page(locale=locale), "rv-jihun", "/reviewers/?line=op-1")
    for name, path in (("reviewers", "/reviewers/"), ("escapes", "/reviewers/escapes/"), ("policy", "")):
        if path:
            page.goto(running_console.base_url + path)
        else:
            page.goto(running_console.base_url + "/reviewers/")
            page.click("a[href*='/reviewers/policy/']")
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        shot(page, f"{name}-{locale[:2]}-{theme}")
        assert troubles(page) == []
        page.set_viewport_size({"width": 1024, "height": 768})
        assert troubles(page) == []
        page.set_viewport_size({"width": 1440, "height": 900})
        if locale == "ko-KR":
            assert [text for text in untranslated(page) if "rv-" not in text and "ISO" not in text] == []
