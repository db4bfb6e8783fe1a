"""The first page that anyone sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.running import Running

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_stranger_is_asked_to_sign_in_and_the_strict_policy_blocks_nothing_of_ours(
    running_console: Running, page: Page, shot: Callable[[Page, str], Path]
) -> None:
    answer = page.goto(running_console.base_url + "/")
    assert answer is not None
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    expect(page.locator("input[type=password]")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).fontFamily") != ""
    shot(page, "sign-in")
