"""The small demo as the browser tests use it: its people, its rows, and the questions a test asks its pages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from console.sample.plant import LINE, PASSWORD
from tests import committed
from tests.conftest import CHECKOUT, ROOT
from tests.running import Running, wait_for

T = TypeVar("T")
expect.set_options(timeout=60_000)  # other tests may hold both cores
READY_S = 900  # the first champion is trained before people take over; minutes when other tests hold the cores


@dataclass(frozen=True)
class Plant:
    """A running small demo. `blocker` is pytest-django's, which questions to the demo's database must pass."""

    running: Running
    blocker: Any

    def rows(self, ask: Callable[[], T]) -> T:
        """What the demo's database answers."""
        return committed.on(self.running, self.blocker, ask)

    def wait(self, ask: Callable[[], T | None], *, within_s: float = 120) -> T:
        """Ask the database until the answer is true."""
        return wait_for(lambda: self.rows(ask), within_s=within_s, every_s=0.5)

    def url(self, path: str) -> str:
        return self.running.base_url + path

    def sign_in(self, page: Page, name: str) -> Page:
        page.goto(self.url("/sign-in/"))
        page.fill("[name=username]", name)
        page.fill("[name=password]", PASSWORD)
        page.click("main button")
        expect(page.locator(".who summary")).to_be_visible()
        live(page)
        return page


@contextmanager
def small_demo(blocker: Any, base: Path) -> Iterator[Plant]:
    """`manage.py demo --small` with services of its own, from the moment when a person can take over."""
    state = ROOT / f"demo-{uuid.uuid4().hex[:8]}"
    command = ("demo", "--small", "--base", str(base), "--port", "0")
    running = Running(checkout=CHECKOUT, state=state, env={}, command=command)
    with running:
        wait_for(lambda: "What to do next" in running.log.read_text(), within_s=READY_S, every_s=0.5)
        assert "is not complete" not in running.log.read_text(), running.log.read_text()[-3000:]
        yield Plant(running, blocker)


def flagged() -> int:
    """How many poly cells wait for a person."""
    from training.models import Capture

    return Capture.objects.filter(line__code=LINE, device__isnull=False, state="NEW").count()


# ------------------------------------------------------------------------------------------------ pages


def live(page: Page) -> None:
    """Wait until the strip says that the page is live: buttons that sign or ship wait for that, too."""
    expect(page.locator("#live.live:not(.late):not(.off)")).to_be_visible(timeout=30_000)


def mark(page: Page) -> None:
    """Leave something that a page load would wipe out."""
    page.evaluate("window.neverReloaded = true")


def never_reloaded(page: Page) -> bool:
    return bool(page.evaluate("window.neverReloaded === true"))


def choose(page: Page, stop: str) -> None:
    """Click a stop of the menu, and wait until that page is live."""
    link = page.locator("nav.stops a", has_text=stop)
    target = urlsplit(str(link.get_attribute("href"))).path
    link.click()
    page.wait_for_url(lambda url: urlsplit(url).path == target)
    live(page)


def fact(page: Page, name: str) -> str:
    """The value beside a name in a list of facts."""
    return str(
        page.evaluate(
            "name => Array.from(document.querySelectorAll('dt')).find(dt => dt.textContent === name)"
            ".nextElementSibling.textContent",
            name,
        )
    )
