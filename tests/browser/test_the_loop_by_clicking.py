"""The whole loop by clicking in a real browser: from the first key in the review to three devices that run it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, WebSocket, expect

from console.sample.plant import LINE
from tests.browser import pages
from tests.browser.plant import Plant, choose, fact, flagged, live, mark, never_reloaded, small_demo

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(1500)]

DECIDE = 36  # pictures, of which a few are skipped: at least 30 decisions
IDLE_S = 66.0
NewPage = Callable[..., Page]
Shot = Callable[[Page, str], Path]


@pytest.fixture(scope="module")
def plant(django_db_blocker: Any, base_bundle: Path) -> Iterator[Plant]:
    """The small demo with a first champion on three devices, and poly cells that it doubts."""
    with small_demo(django_db_blocker, base_bundle) as running:
        running.wait(lambda: flagged() >= DECIDE + 6, within_s=240)
        yield running


@pytest.fixture(scope="module")
def idle(plant: Plant, browser: Browser) -> Iterator[dict[str, Any]]:
    """The list of devices, opened before the loop is played and touched by nobody."""
    context = browser.new_context(locale="en-GB", viewport={"width": 1440, "height": 900})
    page = context.new_page()
    sockets: list[WebSocket] = []  # of the pages on the way here, too
    page.on("websocket", lambda socket: sockets.append(socket))
    plant.sign_in(page, "sujin")
    choose(page, "Devices")
    mark(page)
    yield {"page": page, "sockets": sockets, "opened": len(sockets), "since": time.monotonic()}
    context.close()


def test_flagged_decided_frozen_trained_approved_and_running_on_three_devices(
    plant: Plant, idle: dict[str, Any], new_page: NewPage, shot: Shot
) -> None:
    haneul = plant.sign_in(new_page(locale="en-GB"), "haneul")
    _review_by_keyboard(plant, haneul, shot)
    _freeze(plant, haneul)
    version = _train_and_watch(plant, haneul, shot)
    promotion = _request(plant, haneul, version)
    _own_answer_is_refused(plant, haneul, promotion, shot)
    digest = _approve(plant, new_page(locale="en-GB"), promotion, shot)
    expect(haneul.locator("#acts .pill")).to_have_text("approved", timeout=30_000)
    assert never_reloaded(haneul)
    _roll_out(plant, new_page(locale="en-GB"), digest, shot)


def test_an_untouched_page_keeps_its_one_socket_and_shows_what_changed(plant: Plant, idle: dict[str, Any]) -> None:
    page: Page = idle["page"]
    page.wait_for_timeout(max(0.0, IDLE_S - (time.monotonic() - idle["since"])) * 1000)
    live(page)
    assert len(idle["sockets"]) == idle["opened"] > 0, "it opened another socket"
    assert not idle["sockets"][-1].is_closed()
    assert never_reloaded(page)
    runs = plant.rows(_running_numbers)
    for code, number in runs.items():
        expect(page.locator("tr", has_text=code).locator(".relc")).to_contain_text(f"R-{number:03d}")


# ------------------------------------------------------------------------------------------------ review


def _review_by_keyboard(plant: Plant, page: Page, shot: Shot) -> None:
    """Decide as the labellers did, skip what they argued about, take one back; the page is never loaded again."""
    from console.sample import plant as sample

    truth = plant.rows(sample.truth)
    choose(page, "Review")
    page.keyboard.press("g")  # from the grid to the single view
    page.locator("#work").wait_for()
    live(page)
    mark(page)
    said: dict[str, int] = {}
    for n in range(DECIDE):
        capture, label = _shown(page), truth.get(fact(page, "Serial"))
        _press(page, label)
        if label is not None:
            said[capture] = label
        if n == 2:
            page.keyboard.press("Control+z")
            page.wait_for_function("id => document.getElementById('work').dataset.id === id", arg=capture)
            _press(page, label)
        if n == 10:
            shot(page, "loop-1-review")
    expect(page.locator("#saved")).to_contain_text("Saved")
    assert never_reloaded(page)
    assert len(said) >= 25, "the sample has too many doubtful cells"
    plant.wait(lambda: _decided(said) == said, within_s=30)
    kinds = plant.rows(_kinds_by_haneul)
    assert {"RETRACTED", "UNSKIPPED"} & kinds.keys(), kinds


def _press(page: Page, label: int | None) -> None:
    before = _shown(page)
    page.keyboard.press({0: "o", 1: "1", None: " "}[label])
    page.wait_for_function("id => document.getElementById('work').dataset.id !== id", arg=before)


def _shown(page: Page) -> str:
    return str(page.get_attribute("#work", "data-id"))


def _decided(said: dict[str, int]) -> dict[str, int]:
    from training.models import Capture

    rows = Capture.objects.filter(pk__in=said, state="DECIDED", decision__by__username="haneul")
    return {str(row.pk): int(row.decision.verdict == "NG") for row in rows.select_related("decision")}


def _kinds_by_haneul() -> dict[str, int]:
    from django.db.models import Count

    from training.models import Decision

    rows = Decision.objects.filter(by__username="haneul", capture__device__isnull=False)
    return dict(rows.order_by().values_list("kind").annotate(n=Count("id")))


# ------------------------------------------------------------------------------------------------ freeze, train


def _freeze(plant: Plant, page: Page) -> None:
    choose(page, "Snapshots")
    page.click("text=New snapshot")
    live(page)
    mark(page)
    total = page.locator("#counts .stat .v").first
    both = total.inner_text()
    page.check("[name=products][value=poly]")
    page.wait_for_function("was => document.querySelector('#counts .stat .v').textContent !== was", arg=both)
    page.check("[name=products][value=mono]")
    expect(total).to_have_text(both)
    assert never_reloaded(page)
    page.click("#counts button:has-text('Freeze snapshot')")
    expect(page.locator("h1")).to_contain_text("frozen")
    row = plant.rows(_newest_snapshot)
    assert (row["by"], len(row["digest"])) == ("haneul", 64)
    assert row["poly"] >= 25
    assert str(row["number"]) in page.locator("h1").inner_text()


def _newest_snapshot() -> dict[str, Any]:
    from training.models import Snapshot

    row = Snapshot.objects.filter(line__code=LINE).latest("created_at")
    poly = row.items.filter(capture__product="poly").count()
    return {"by": row.frozen_by.username, "digest": row.digest, "number": row.number, "poly": poly}


def _train_and_watch(plant: Plant, page: Page, shot: Shot) -> str:
    """Continue the champion; the curve grows without a load, and a page opened meanwhile has all of it."""
    page.click("text=Train on it")
    live(page)
    page.check("[name=mode][value=continue]")
    page.click("button:has-text('Start training')")
    page.locator("#curve").wait_for()
    live(page)
    mark(page)
    job = page.url.rstrip("/").rsplit("/", 1)[1]
    grown = _watch_it_grow(page)
    second = page.context.new_page()
    second.goto(page.url)
    second.wait_for_function("n => Number(document.getElementById('curve').dataset.points) >= n", arg=grown)
    shot(second, "loop-2-training")
    page.locator("#acts a.primary", has_text="Version").wait_for(timeout=900_000)
    expect(page.locator("#acts .pill")).to_have_text("succeeded")
    assert never_reloaded(page)
    of = plant.rows(lambda: _job(job))
    assert of["state"] == "SUCCEEDED"
    assert of["parent"] == of["champion"] != ""
    assert of["points"] >= grown > 0
    for each in (page, second):
        each.wait_for_function("n => Number(document.getElementById('curve').dataset.points) === n", arg=of["points"])
    shot(page, "loop-3-trained")
    second.close()
    return str(of["version"])


def _watch_it_grow(page: Page) -> int:
    """The points drawn, once they have risen three times under the reader's eyes."""
    drawn = [0]
    until = time.monotonic() + 900
    while len(drawn) < 4:
        assert time.monotonic() < until, f"the curve did not grow: {drawn}"
        now = int(page.get_attribute("#curve", "data-points") or 0)
        assert now >= drawn[-1]
        if now > drawn[-1]:
            drawn.append(now)
        page.wait_for_timeout(100)
    assert never_reloaded(page)
    return drawn[-1]


def _job(pk: str) -> dict[str, Any]:
    from training.models import Job

    job = Job.objects.get(pk=pk)
    return {
        "state": job.state, "parent": str(job.parent_id), "champion": str(job.champion_id),
        "points": job.points.count(), "version": job.version_id,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ promote


def _request(plant: Plant, page: Page, version: str) -> str:
    page.click("#acts a.primary")
    page.wait_for_url(f"**/versions/{version}/")
    live(page)
    page.click("button:has-text('Request promotion…')")
    page.fill("dialog[open] textarea", "Poly cells arrived; the champion doubts every second one")
    page.click("dialog[open] button.primary")
    page.wait_for_url("**/promotions/*/")
    mark(page)
    promotion = page.url.rstrip("/").rsplit("/", 1)[1]
    assert plant.rows(lambda: _promotion(promotion)) == ("REQUESTED", "haneul", version)
    return promotion


def _own_answer_is_refused(plant: Plant, page: Page, promotion: str, shot: Shot) -> None:
    """Even with the approver's role: who asked may not answer. The button says so, and so does the door behind it."""
    plant.rows(_make_haneul_an_approver)
    page.reload()
    live(page)
    mark(page)
    button = page.locator(".sign button.primary")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(page.locator("#answer-why")).to_contain_text("You requested this promotion. Somebody else must answer it.")
    shot(page, "loop-4-own-request")
    answer = page.request.post(
        plant.url(f"/promotions/{promotion}/answer"),
        headers={"X-CSRFToken": page.get_attribute("meta[name=csrf]", "content") or ""},
        form={"meaning": "APPROVE", "reason": "mine", "seen_digest": page.input_value("[name=seen_digest]")},
    )
    assert answer.status == 409
    assert "You requested this promotion" in answer.text()
    assert plant.rows(lambda: _promotion(promotion))[0] == "REQUESTED"


def _make_haneul_an_approver() -> None:
    from console.models import Membership, User
    from registry.models import Line

    Membership.objects.get_or_create(
        user=User.objects.get(username="haneul"), line=Line.objects.get(code=LINE), role="approver"
    )


def _approve(plant: Plant, page: Page, promotion: str, shot: Shot) -> str:
    """Returns the digest of the release that the approval published."""
    plant.sign_in(page, "jihun")
    page.locator(f"a[href='/promotions/{promotion}/']").first.click()  # what waits for this person is on the first page
    live(page)
    page.check("[name=meaning][value=APPROVE]")
    page.fill("#answer-reason", "Compared on the golden set, picture by picture")
    shot(page, "loop-5-approve")
    page.click("button:has-text('Sign this answer')")
    expect(page.locator("#acts .pill")).to_have_text("approved")
    assert plant.rows(lambda: _promotion(promotion))[0] == "APPROVED"
    digest, published_by = plant.rows(lambda: _release(promotion))
    assert published_by == "jihun"
    return digest


def _promotion(pk: str) -> tuple[str, str, str]:
    from registry.models import Promotion

    row = Promotion.objects.get(pk=pk)
    return row.state, row.requested_by.username, str(row.version_id)


def _release(promotion: str) -> tuple[str, str]:
    from registry.models import Approval, Release

    release = Release.objects.get(promotion_id=promotion)
    approval = Approval.objects.get(promotion_id=promotion, meaning="APPROVE")
    assert approval.manifest_digest == release.manifest_digest
    return release.manifest_digest, approval.by.username


# ------------------------------------------------------------------------------------------------ roll out


def _roll_out(plant: Plant, page: Page, digest: str, shot: Shot) -> None:
    plant.sign_in(page, "minsu")
    choose(page, "Rollouts")
    page.click("text=Start a rollout")
    live(page)
    if page.locator("a[href^='?release=']").count():
        page.locator("a[href^='?release=']").first.click()
    expect(page.locator("[name=canary]")).to_have_value("1")
    page.click("button:has-text('Start rollout')")
    page.wait_for_url("**/rollouts/*/")
    live(page)
    mark(page)
    expect(page.locator(".cells li")).to_have_count(3)
    shot(page, "loop-6-rollout")
    expect(page.locator(".cells li.ok")).to_have_count(3, timeout=180_000)
    expect(page.locator("#acts .pill")).to_have_text("completed", timeout=30_000)
    assert never_reloaded(page)
    shot(page, "loop-7-committed")
    rollout = page.url.rstrip("/").rsplit("/", 1)[1]
    plant.wait(lambda: set(_running_digests().values()) == {digest}, within_s=60)
    assert len(plant.rows(_running_digests)) == 3
    assert plant.rows(lambda: _canary_came_first(rollout))


def _running_digests() -> dict[str, str]:
    from registry.models import Device

    return {row.code: row.running_digest for row in Device.objects.filter(line__code=LINE)}


def _running_numbers() -> dict[str, int]:
    from registry.models import Device

    return {row.code: row.running_number or 0 for row in Device.objects.filter(line__code=LINE)}


def _canary_came_first(rollout: str) -> bool:
    """True when no device of the second stage took a step before the canary had committed."""
    from registry.models import DeploymentStep

    steps = DeploymentStep.objects.filter(deployment__rollout_id=rollout)
    first = steps.filter(deployment__stage__index=0)
    committed_at = first.get(state="COMMITTED").at
    return (
        first.values("deployment").distinct().count() == 1
        and not steps.exclude(deployment__stage__index=0).filter(at__lt=committed_at).exists()
    )


# ------------------------------------------------------------------------------------------------ every page

# language, width, height, themes: the first one on every page, the others on the main pages, switched as readers do it
LOOKS = (("en", 1440, 900, ("light", "line")), ("ko", 1024, 768, ("dark", "line", "light")))


@pytest.mark.parametrize(("language", "width", "height", "themes"), LOOKS, ids=("english", "korean"))
def test_every_page_fits_speaks_the_language_and_breaks_no_policy(
    plant: Plant, new_page: NewPage, shot: Shot, language: str, width: int, height: int, themes: tuple[str, ...]
) -> None:
    known, sessions, wrong = plant.rows(pages.ids), {}, []
    for name, (path, who) in pages.PAGES.items():
        if who not in sessions:
            sessions[who] = new_page(
                allow="the server responded with a status of 404" if name == "not-found" else "",
                locale="en-GB",
                viewport={"width": width, "height": height},
            )
            _prefer(plant, sessions[who], who, language=language, theme=themes[0])
        page = sessions[who]
        page.goto(plant.url(path.format(**known)))
        if who:
            live(page)
        pages.settled(page)
        if language == "ko":
            wrong += [f"{name}: not translated: {text}" for text in pages.untranslated(page)]
        for theme in themes if name in pages.MAIN else themes[:1]:
            page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            wrong += [f"{name}, {theme}: {trouble}" for trouble in pages.troubles(page)]
            shot(page, f"{language}-{theme}-{width}/{name}")
    assert not wrong, "\n".join(wrong)


def _prefer(plant: Plant, page: Page, who: str, **wanted: str) -> None:
    page.goto(plant.url("/sign-in/"))
    if who:
        plant.sign_in(page, who)
    csrf = {"X-CSRFToken": page.get_attribute("meta[name=csrf]", "content") or ""}
    assert page.request.post(plant.url("/preferences/"), form=wanted, headers=csrf).ok
