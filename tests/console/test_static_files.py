"""The door of static files, asked as a browser asks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from console import static_files


@pytest.fixture
async def browser() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=static_files.Door())  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


async def test_a_file_comes_with_its_type_and_is_not_sent_twice(browser: httpx.AsyncClient) -> None:
    first = await browser.get("/static/vendor/uplot/uPlot.iife.min.js")
    assert first.status_code == 200
    assert first.headers["content-type"].startswith("text/javascript")
    assert first.headers["x-content-type-options"] == "nosniff"
    assert int(first.headers["content-length"]) == len(first.content) > 10_000
    again = await browser.get(
        "/static/vendor/uplot/uPlot.iife.min.js", headers={"If-None-Match": first.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")


async def test_a_part_of_a_file_can_be_asked_for(browser: httpx.AsyncClient) -> None:
    whole = await browser.get("/static/vendor/uplot/uPlot.iife.min.js")
    part = await browser.get("/static/vendor/uplot/uPlot.iife.min.js", headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole.content[10:20])


async def test_nothing_else_is_given_out(browser: httpx.AsyncClient) -> None:
    for path in ("/static/", "/static/nothing.js", "/static/../manage.py", "/static/%2e%2e/manage.py", "/static/css"):
        assert (await browser.get(path)).status_code == 404, path
    assert (await browser.post("/static/vendor/uplot/uPlot.iife.min.js")).status_code == 405
    assert (await browser.head("/static/vendor/uplot/uPlot.iife.min.js")).content == b""
