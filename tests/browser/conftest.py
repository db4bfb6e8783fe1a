"""A real Chromium for the browser tests. A page that logs an error or asks another host fails its test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

SHOTS = Path(settings.BASE_DIR) / "test-output" / "screenshots"
FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium of this machine (`make test` installs it).

    Per module: Playwright keeps an event loop on the main thread while it runs, on which Django refuses to ask the
    database; the tests of the next module may want to.
    """
    found = os.environ.get("LOOPLINE_CHROMIUM") or shutil.which("chromium")
    if not found:
        pytest.fail("Chromium is not installed: run `make test`, or name it by LOOPLINE_CHROMIUM.")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses to run as root
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=[*FLAGS, *sandbox])
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Make a page of its own session: `new_page(locale="ko-KR", color_scheme="dark")`. Errors on it fail the test.

    `allow`: words of an error, or of several, that this session is meant to meet.
    """
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def make(allow: str | tuple[str, ...] = (), **options: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})  # type: ignore[arg-type]
        context.set_default_timeout(15_000)
        contexts.append(context)
        watch(context, wrong, allow)
        return context.new_page()

    yield make
    for context in contexts:
        context.close()
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    """One page, English."""
    return new_page(locale="en-GB")


@pytest.fixture
def shot(request: pytest.FixtureRequest) -> Callable[[Page, str], Path]:
    """Keep a picture of a page as test output: `shot(page, "review")`."""

    def take(page: Page, name: str) -> Path:
        file = SHOTS / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=file)
        return file

    return take


def watch(context: BrowserContext, wrong: list[str], allow: str | tuple[str, ...] = ()) -> None:
    """Note every error of every page of a session: of its scripts, of the content policy, of asking another host."""

    allowed = (allow,) if isinstance(allow, str) else allow

    def said(message: ConsoleMessage) -> None:
        if message.type == "error" and not any(words in message.text for words in allowed):
            wrong.append(f"console: {message.text}")

    context.on("console", said)
    context.on("weberror", lambda error: wrong.append(f"script: {error.error}"))
    context.on("request", lambda request: _stays_here(request.url, wrong))


def _stays_here(url: str, wrong: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme in {"http", "https", "ws", "wss"} and parts.hostname != "127.0.0.1":
        wrong.append(f"asked another host: {url}")
