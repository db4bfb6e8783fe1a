"""A decision is taken back and its reach is seen; a golden set is made and renewed; two snapshots are compared."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from tests import committed
from tests.browser import pages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Running

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSWORD = "쉬운-문장-12"


@pytest.fixture(scope="module")
def paths(running_console: Running, django_db_blocker: Any) -> dict[str, str]:
    """A line with two snapshots, a version that learned the first, a device that runs it, and pictures no model saw."""
    from console.models import Membership, User
    from registry import lines
    from registry.models import BaseModel, Device, Site, Version
    from tests.console.world import RULE, cell
    from tests.registry.out_files import figures
    from training import captures, snapshots

    def make() -> dict[str, str]:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "창원 1공장"})
        line = lines.create_line(site, code="st-1", name="ST-1 라인", by="command:test")
        lines.add_class(line, code="crack", name_ko="균열", name_en="crack", by="command:test")
        station = lines.add_station(line, code="S1", name="S1", by="command:test")
        person = User.objects.create_user("sets-engineer", password=PASSWORD, display_name="김하늘")
        Membership.objects.create(user=person, line=line, role="engineer")

        def lot(name: str, first: int) -> list[Any]:
            made = []
            for n in range(6):
                meta = {"lot": name, "serial": f"{name}-{n}", "product": "mono"}
                capture, _ = captures.import_one(line, cell(first + n, cracked=n > 3), meta, by=person)
                captures.decide(capture, verdict="NG" if n > 3 else "OK", classes=[1] if n > 3 else [], by=person)
                made.append(capture)
            return made

        rows = [row for n in range(5) for row in lot(f"L{n:02d}", 900 + 10 * n)]
        old = snapshots.freeze(line, RULE, by=person)
        rows += lot("L90", 990)
        captures.retract(rows[0], reason="looked again", by=person)
        captures.decide(rows[0], verdict="NG", classes=[1], by=person)
        new = snapshots.freeze(line, RULE, by=person)
        lot("G01", 1050)
        base, _ = BaseModel.objects.get_or_create(
            digest="b" * 64,
            defaults={"name": "tiny", "licence": "x", "parameters": 1, "bundle": {}, "map_digest": "m" * 64},
        )
        version = Version.objects.create(
            line=line, number=1, state="VALIDATED", base=base, job_id=uuid.uuid4(), snapshot_id=old.pk,
            trained_by=person, manifest_digest="c" * 64, manifest={"classes": []}, files={}, dossier_digest="d" * 64,
            evidence={"leading": "val", "sets": {"val": {"candidate": figures(1, 20, 2, 40)}}},
        )  # fmt: skip
        Device.objects.create(line=line, station=station, code="ST-1-01", state="ACTIVE", running_digest="c" * 64)
        return {
            "frozen": f"/captures/{rows[7].pk}/", "changed": f"/snapshots/{old.pk}/changed",
            "diff": f"/snapshots/{old.pk}/diff/{new.pk}", "train": f"/jobs/new?snapshot={old.pk}",
            "version": f"/versions/{version.pk}/changed",
        }  # fmt: skip

    return committed.on(running_console, django_db_blocker, make)


def open_as_engineer(running: Running, page: Page) -> Page:
    page.goto(running.base_url + "/sign-in/")
    page.fill("[name=username]", "sets-engineer")
    page.fill("[name=password]", PASSWORD)
    page.click("main button")
    expect(page.locator(".who summary")).to_be_visible()
    return page


def test_what_a_decision_reached_is_said_before_and_after_it_is_taken_back(
    running_console: Running, page: Page, paths: dict[str, str], shot: Callable[[Page, str], Path]
) -> None:
    open_as_engineer(running_console, page)
    page.goto(running_console.base_url + paths["frozen"])
    page.click("[data-dialog=retract]")
    expect(page.locator("#retract")).to_contain_text("It reached 2 snapshots, 1 version, 1 device.")
    shot(page, "sets-retract")
    page.fill("#retract-reason", "긁힘으로 확인")
    page.click("#retract .danger.solid")
    expect(page.locator(".judge")).to_contain_text("What does not stand any more reached 2 snapshots, 1 version")
    shot(page, "sets-capture")
    page.goto(running_console.base_url + "/snapshots/")
    expect(page.locator("a.pill.rv")).to_have_count(2)
    shot(page, "sets-list")
    page.locator("a.pill.rv").first.click()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_golden_set_is_made_from_the_grid_and_renewed(
    running_console: Running, page: Page, paths: dict[str, str], shot: Callable[[Page, str], Path]
) -> None:
    open_as_engineer(running_console, page)
    page.goto(running_console.base_url + "/captures/?show=decided&lot=G01")
    page.get_by_text("Golden set of these").click()
    expect(page.locator(".pick")).to_have_count(6)
    page.locator(".pick").first.uncheck()
    page.click("button[value=look]")  # the browser asks for what is missing first
    page.fill("#id_code", "master")
    page.fill("#id_name_ko", "기준")
    page.fill("#id_name_en", "Master")
    page.fill("#id_expires_on", "2027-03-31")
    page.click("button[value=look]")
    expect(page.locator(".pick:checked")).to_have_count(5)
    shot(page, "sets-golden-new")
    page.click("button[value=make]")
    expect(page.locator("h1")).to_contain_text("Master")
    expect(page.locator(".tile")).to_have_count(5)
    page.get_by_text("Next edition").click()
    page.locator(".pick").nth(1).uncheck()
    page.click("button[value=look]")
    expect(page.locator(".dl").first).to_contain_text("Removed")
    shot(page, "sets-golden-edition")
    page.click("button[value=make]")
    expect(page.locator(".tile")).to_have_count(4)
    shot(page, "sets-golden")


LOOKS = (("ko-KR", "light"), ("en-GB", "dark"))


@pytest.mark.parametrize(("locale", "theme"), LOOKS, ids=("korean", "dark"))
def test_the_pages_fit_and_speak_the_readers_language(
    locale: str, theme: str, running_console: Running, new_page: Any, paths: dict[str, str], shot: Any
) -> None:
    page = open_as_engineer(running_console, new_page(locale=locale))
    shown = {
        **paths,
        "golden": "/snapshots/golden/",
        "builder": "/snapshots/new",
        "choose": "/snapshots/golden/new?show=decided",
    }
    wrong: list[str] = []
    for name, path in shown.items():
        page.goto(running_console.base_url + path)
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        pages.settled(page)
        shot(page, f"sets-{theme}-{name}")
        wrong += [f"{name}: {trouble}" for trouble in pages.troubles(page)]
        if locale == "ko-KR":
            wrong += [f"{name}: {text}" for text in pages.untranslated(page)]
    assert not wrong, "\n".join(wrong)
