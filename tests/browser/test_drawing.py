"""Drawing in a real browser: exact pixels at every zoom, drafts that outlive cuts, reloads and second pages."""

from __future__ import annotations

import io
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from tests import committed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Running

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSWORD = "그리는-문장-12"
LINE = "dw-1"
WIDTH, HEIGHT = 400, 300
CUT_S = 12  # of a real cut; the promise is 60 s, and nothing in the page counts attempts
CUT = ("Failed to load resource", "ERR_INTERNET_DISCONNECTED", "htmx:")  # what a cut or a 409 leaves on the console


def plain(seed: int) -> bytes:
    image = Image.new("L", (WIDTH, HEIGHT), 90 + seed)
    image.paste(200, (60, 60, 120, 100))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def turned(seed: int) -> bytes:
    """Stored 3200 x 2400, shown 2400 x 3200: orientation 6, and larger than what the stage is given."""
    image = Image.new("RGB", (3200, 2400), (70, 70, 70 + seed))
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    image.save(out, "JPEG", exif=exif)
    return out.getvalue()


def deep() -> bytes:
    """12 bits in 16: one blob that is 30 counts brighter than what is around it."""
    values = np.full((120, 160), 1000, np.uint16)
    values[:20, :20], values[40:80, 60:100] = 4000, 1030
    out = io.BytesIO()
    Image.fromarray(values).save(out, "TIFF")
    return out.getvalue()


COVERS = """() => { const [a, b] = ['.pan', '.pan img'].map(e => document.querySelector(e).getBoundingClientRect());
    return Math.abs(a.left - b.left) + Math.abs(a.top - b.top) + Math.abs(a.right - b.right) < 1; }"""


class Drawn:
    """The line of these tests, its pictures, and what the database knows of them."""

    def __init__(self, running: Running, blocker: Any) -> None:
        self.running, self.blocker, self.made = running, blocker, 0

    def rows(self, ask: Callable[[], Any]) -> Any:
        return committed.on(self.running, self.blocker, ask)

    def capture(self, data: bytes | None = None) -> str:
        from console.models import User
        from registry.models import Line
        from training import captures

        self.made += 1
        bytes_ = data or plain(self.made)

        def make() -> str:
            line, person = Line.objects.get(code=LINE), User.objects.get(username="drawer")
            return str(captures.import_one(line, bytes_, {"serial": f"D{self.made}"}, by=person)[0].pk)

        return str(self.rows(make))

    def decision(self, capture: str) -> dict[str, Any] | None:
        from training.models import Decision

        return self.rows(
            lambda: Decision.objects.filter(capture=capture).order_by("-created_at")
            .values("kind", "verdict", "classes", "regions", "comment").first()
        )  # fmt: skip

    def draft(self, capture: str) -> dict[str, Any] | None:
        from training.models import Draft

        return self.rows(lambda: Draft.objects.filter(capture=capture).values_list("data", flat=True).first())

    def wait(self, ask: Callable[[], Any], within_s: float = 30) -> Any:
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            if found := ask():
                return found
            time.sleep(0.3)
        raise AssertionError("it never happened")

    def open(self, page: Page, capture: str) -> Page:
        if page.url == "about:blank":
            page.goto(self.running.base_url + "/sign-in/")
            page.fill("[name=username]", "drawer")
            page.fill("[name=password]", PASSWORD)
            page.click("main button")
        page.goto(f"{self.running.base_url}/captures/review/?line={LINE}&at={capture}")
        expect(page.locator("#work")).to_have_attribute("data-id", capture)
        return page


@pytest.fixture(scope="module")
def drawn(running_console: Running, django_db_blocker: Any) -> Drawn:
    from console.models import Membership, User
    from registry import lines
    from registry.models import Site

    def make() -> None:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "창원 1공장"})
        line = lines.create_line(site, code=LINE, name="DW-1 라인", by="command:test")
        for number, (code, korean) in enumerate((("crack", "균열"), ("stain", "얼룩")), start=1):
            lines.add_class(
                line, number=number, code=code, name_ko=korean, name_en=code, critical=number == 1, by="command:test"
            )
        person = User.objects.create_user("drawer", password=PASSWORD, display_name="박서연")
        Membership.objects.create(user=person, line=line, role="engineer")

    committed.on(running_console, django_db_blocker, make)
    return Drawn(running_console, django_db_blocker)


# ------------------------------------------------------------------------------------------------ the hand


def zoom(page: Page, to: float, at: tuple[float, float]) -> None:
    """Turn the wheel over a place of the picture until it has this size on the screen."""
    page.mouse.move(*screen(page, at))
    page.mouse.wheel(0, -math.log(to / page.evaluate("loopline.scale()")) / 0.0016)
    page.wait_for_function("to => Math.abs(loopline.scale() - to) < 0.01 * to", arg=to)
    assert page.evaluate(COVERS), "the picture does not lie where its pixels are counted"


def screen(page: Page, point: tuple[float, float]) -> tuple[float, float]:
    box = page.evaluate("(r => [r.left, r.top])(document.querySelector('.pan').getBoundingClientRect())")
    scale = page.evaluate("loopline.scale()")
    return (box[0] + point[0] * scale, box[1] + point[1] * scale)


def drag(page: Page, a: tuple[float, float], b: tuple[float, float], button: Any = "left") -> None:
    from_, to = screen(page, a), screen(page, b)
    page.mouse.move(*from_)
    page.mouse.down(button=button)
    page.mouse.move((from_[0] + to[0]) / 2, (from_[1] + to[1]) / 2)
    page.mouse.move(*to)
    page.mouse.up(button=button)


def box(page: Page, a: tuple[float, float], b: tuple[float, float]) -> None:
    page.keyboard.press("b")
    drag(page, a, b)


def shapes(page: Page) -> list[Any]:
    return list(page.evaluate("JSON.parse(document.getElementById('regions').value || '[]')"))


def near(found: list[list[float]], wanted: list[tuple[float, float]], within: float = 1.0) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(abs(p[0] - q[0]) <= within and abs(p[1] - q[1]) <= within for p, q in pairs)


# ------------------------------------------------------------------------------------------------ drawing


@pytest.mark.parametrize("scale", [1, 3])
def test_a_box_and_a_polygon_reach_the_database_to_the_pixel(drawn: Drawn, page: Page, scale: int) -> None:
    capture = drawn.capture()
    drawn.open(page, capture)
    zoom(page, scale, (100, 80))
    box(page, (60, 60), (120, 100))
    page.keyboard.press("p")
    corners = [(130.0, 60.0), (160.0, 70.0), (150.0, 100.0), (128.0, 90.0)]
    for corner in corners:
        page.mouse.click(*screen(page, corner))
        page.wait_for_timeout(450)  # two quick clicks on one place would close it
    page.mouse.click(*screen(page, corners[0]))
    assert [shape["kind"] for shape in shapes(page)] == ["box", "polygon"]
    page.keyboard.press("2")  # the polygon is selected: its class
    assert [shape["number"] for shape in shapes(page)] == [1, 2]
    page.keyboard.press("n")  # NG with what is drawn
    said = drawn.wait(lambda: drawn.decision(capture))
    assert (said["verdict"], said["classes"]) == ("NG", [1, 2])
    assert near(said["regions"][0]["points"], [(60, 60), (120, 100)])
    assert near(said["regions"][1]["points"], corners)
    assert drawn.draft(capture) is None
    page.wait_for_function("() => document.getElementById('saved')?.dataset.state !== 'saving'")


def test_a_picture_with_orientation_6_keeps_shapes_where_they_are_seen(drawn: Drawn, page: Page) -> None:
    capture = drawn.capture(turned(1))
    drawn.open(page, capture)
    image = page.evaluate("(i => [i.naturalWidth, i.naturalHeight])(document.querySelector('.pan img'))")
    assert image == [1200, 1600]  # the stage is given half of its 2400 x 3200 pixels
    fitted = 1 / page.evaluate("loopline.scale()")  # capture pixels that one pixel of the screen covers
    box(page, (300, 200), (900, 1000))
    zoom(page, 3, (1200, 1600))
    page.keyboard.press("Escape")
    drag(page, (1180, 1590), (1220, 1620))
    page.keyboard.press("v")
    drag(page, (1210, 1570), (1100, 1520), button="middle")  # pans, draws nothing
    page.keyboard.press("n")
    regions = drawn.wait(lambda: drawn.decision(capture))["regions"]
    assert near(regions[0]["points"], [(300, 200), (900, 1000)], within=fitted)
    assert near(regions[1]["points"], [(1180, 1590), (1220, 1620)])
    assert len(regions) == 2


def test_shapes_are_moved_reshaped_removed_and_every_step_is_taken_back(drawn: Drawn, page: Page) -> None:
    capture = drawn.capture()
    drawn.open(page, capture)
    box(page, (50, 50), (100, 90))
    box(page, (200, 150), (260, 220))
    page.keyboard.press("v")
    drag(page, (75, 70), (95, 80))
    assert near(shapes(page)[0]["points"], [(70, 60), (120, 100)])
    drag(page, (120, 100), (140, 130))
    assert near(shapes(page)[0]["points"], [(70, 60), (140, 130)])
    page.keyboard.press("Shift+ArrowRight")
    assert near(shapes(page)[0]["points"], [(71, 60), (141, 130)])
    page.keyboard.press("Delete")
    assert near(shapes(page)[0]["points"], [(200, 150), (260, 220)])
    for wanted in ([(71, 60), (141, 130)], [(70, 60), (140, 130)], [(70, 60), (120, 100)], [(50, 50), (100, 90)]):
        page.keyboard.press("Control+z")
        assert near(shapes(page)[0]["points"], wanted)
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert shapes(page) == []
    assert drawn.decision(capture) is None  # drawing steps only


def test_ok_with_shapes_says_what_to_do_and_undo_of_a_decision_brings_them_back(drawn: Drawn, page: Page) -> None:
    capture, _next = drawn.capture(), drawn.capture()
    drawn.open(page, capture)
    box(page, (50, 50), (100, 90))
    page.keyboard.press("o")
    expect(page.locator("#refusal")).to_contain_text("remove them to say OK")
    page.keyboard.press("Escape")
    page.keyboard.press("2")  # nothing selected: decides
    assert drawn.wait(lambda: drawn.decision(capture))["classes"] == [2, 1]
    page.wait_for_function("id => document.getElementById('work').dataset.id !== id", arg=capture)
    page.keyboard.press("Control+z")
    page.wait_for_function("id => document.getElementById('work').dataset.id === id", arg=capture)
    assert near(shapes(page)[0]["points"], [(50, 50), (100, 90)])
    page.keyboard.press("1")
    drawn.wait(lambda: (drawn.decision(capture) or {}).get("kind") == "DECIDED")
    expect(page.locator("#saved")).to_contain_text("Saved")
    page.goto(f"{drawn.running.base_url}/captures/{capture}/")
    expect(page.locator(".decided .shape-tag")).to_have_text("NG crack")
    expect(page.locator(".hist .drawn").first).to_contain_text("1 shape")
    page.keyboard.press("a")
    expect(page.locator(".decided .shape-tag")).to_be_hidden()


def test_a_finger_draws_and_two_fingers_zoom(drawn: Drawn, new_page: Any) -> None:
    page = new_page(locale="en-GB", has_touch=True)
    drawn.open(page, drawn.capture())
    page.click("[data-draw=box]")
    cdp = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(screen(page, point) for point in points)]
        cdp.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    touch("touchStart", (60, 60))
    touch("touchMove", (90, 80))
    touch("touchMove", (120, 100))
    touch("touchEnd")
    page.wait_for_function("() => document.getElementById('regions').value")
    assert near(shapes(page)[0]["points"], [(60, 60), (120, 100)])
    before = page.evaluate("loopline.scale()")
    first, second = (150.0, 120.0), (200.0, 150.0)
    touch("touchStart", first)
    touch("touchStart", first, second)
    touch("touchMove", (120, 100), (260, 190))
    touch("touchEnd")
    page.wait_for_function("before => loopline.scale() > 1.5 * before", arg=before)
    assert len(shapes(page)) == 1


# ------------------------------------------------------------------------------------------------ drafts


def test_five_boxes_drawn_while_the_network_is_cut_are_there_afterwards(drawn: Drawn, new_page: Any) -> None:
    page = new_page(locale="en-GB", allow=CUT)
    capture = drawn.capture()
    drawn.open(page, capture)
    page.context.set_offline(True)
    began = time.monotonic()
    for n in range(5):
        box(page, (20 + 60 * n, 40), (60 + 60 * n, 90))
        page.wait_for_timeout(900)
    expect(page.locator("#saved")).to_contain_text("trying again")
    page.wait_for_timeout(1000 * max(0, CUT_S - (time.monotonic() - began)))
    assert drawn.draft(capture) is None
    page.context.set_offline(False)
    kept = drawn.wait(lambda: drawn.draft(capture))
    assert len(kept["regions"]) == 5
    expect(page.locator("#saved")).to_contain_text("Saved")


def test_a_reload_in_the_middle_of_a_cut_restores_what_was_drawn(drawn: Drawn, new_page: Any) -> None:
    page = new_page(locale="en-GB", allow=CUT)
    capture = drawn.capture()
    drawn.open(page, capture)
    page.route("**/draft", lambda route: route.abort())
    box(page, (50, 50), (100, 90))
    page.keyboard.press("c")
    page.keyboard.type("near the edge")
    expect(page.locator("#saved")).to_contain_text("trying again")
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.reload()
    assert asked == ["beforeunload"]
    assert near(shapes(page)[0]["points"], [(50, 50), (100, 90)])
    expect(page.locator("#comment")).to_have_value("near the edge")
    page.unroute("**/draft")
    kept = drawn.wait(lambda: drawn.draft(capture))
    assert (len(kept["regions"]), kept["comment"]) == (1, "near the edge")


def test_two_pages_are_both_shown_and_a_person_chooses(drawn: Drawn, new_page: Any) -> None:
    first = new_page(locale="en-GB", allow=CUT)
    capture = drawn.capture()
    drawn.open(first, capture)
    second = first.context.new_page()
    second.goto(first.url)
    box(first, (50, 50), (100, 90))
    drawn.wait(lambda: drawn.draft(capture))
    for n in range(2):
        box(second, (200, 100 + 60 * n), (260, 140 + 60 * n))
    expect(second.locator("#two")).to_be_visible()
    expect(second.locator("[data-side=mine] .two-n")).to_have_text("2")
    expect(second.locator("[data-side=standing] .two-n")).to_have_text("1")
    second.click("[data-keep=mine]")
    drawn.wait(lambda: len((drawn.draft(capture) or {}).get("regions", [])) == 2)
    box(first, (300, 200), (340, 240))
    expect(first.locator("#two")).to_be_visible()
    first.click("[data-keep=standing]")
    assert len(shapes(first)) == 2
    expect(first.locator("#saved")).to_contain_text("Saved")


def test_drawing_is_saved_soon_and_moving_on_and_back_loses_nothing(drawn: Drawn, page: Page) -> None:
    capture = drawn.capture()
    drawn.open(page, capture)
    box(page, (50, 50), (100, 90))
    began = time.monotonic()
    drawn.wait(lambda: drawn.draft(capture))
    assert time.monotonic() - began < 5
    page.keyboard.press("ArrowRight")
    page.wait_for_function("id => document.getElementById('work').dataset.id !== id", arg=capture)
    assert page.get_attribute("[data-draw=box]", "aria-pressed") == "true"  # the tool stays
    assert shapes(page) == []
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("id => document.getElementById('work').dataset.id === id", arg=capture)
    assert near(shapes(page)[0]["points"], [(50, 50), (100, 90)])


# ------------------------------------------------------------------------------------------------ 16 bits


def test_the_window_of_a_16_bit_picture_changes_only_what_is_seen(drawn: Drawn, page: Page) -> None:
    drawn.open(page, drawn.capture(deep()))
    levels = page.locator("#levels")
    expect(levels).to_be_visible()
    expect(levels).to_contain_text("automatic window")

    def contrast() -> Any:
        return page.evaluate(
            """() => { const i = document.querySelector('.pan img'), c = document.createElement('canvas');
            c.width = i.naturalWidth; c.height = i.naturalHeight; const d = c.getContext('2d'); d.drawImage(i, 0, 0);
            return d.getImageData(80, 60, 1, 1).data[0] - d.getImageData(140, 100, 1, 1).data[0]; }"""
        )

    assert contrast() < 30
    page.locator("[data-lv=width]").fill("100")  # a hundredth of the range
    page.locator("[data-lv=level]").fill("5")
    page.wait_for_function("() => document.querySelector('.pan img').src.includes('low=')")
    page.wait_for_timeout(300)
    assert contrast() > 100
    page.keyboard.press("]")
    page.keyboard.press("w")
    page.wait_for_function("() => !document.querySelector('.pan img').src.includes('low=')")
    expect(levels).to_contain_text("automatic window")
