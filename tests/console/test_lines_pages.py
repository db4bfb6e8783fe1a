"""Lines and their defect books: pages, settings, classes, merges and examples; for the right people only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from console.facts import classes as facts
from console.models import Membership, User
from registry import classes, lines
from registry.models import AuditEvent, DefectClass, Version
from tests.registry import plant as records
from training import captures, drafts, examples, merges
from training.models import Capture, ClassExample, ClassMerge, Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

NOBODY = "00000000-0000-7000-8000-000000000000"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def crack(world: World) -> DefectClass:
    return DefectClass.objects.get(line=world.line)


@pytest.fixture
def stain(world: World) -> DefectClass:
    return lines.add_class(world.line, code="stain", name_ko="얼룩", name_en="stain", hotkey="t", by=records.SET_UP)


@pytest.fixture
def supervisor(world: World) -> User:
    return records.person("supervisor", world.line, "supervisor")


def url(verb: str, row: Any) -> str:
    return reverse(f"line-{verb}", args=[row.pk])


def merged(world: World, source: DefectClass, target: DefectClass) -> ClassMerge:
    return merges.merge(source, target, reason="one defect", by=world.plant.engineer)


# ------------------------------------------------------------------------------------------------ who may

ACTS = ("class-change", "class-retire", "class-restore", "class-merge")


def test_pages_of_a_foreign_line_do_not_exist(
    world: World, crack: DefectClass, stain: DefectClass, signed_in: Callable[..., Client]
) -> None:
    client, merge = signed_in(world.stranger), merged(world, stain, crack)
    for verb, row in (("detail", world.line), ("settings", world.line), ("class-new", world.line), ("class", crack)):
        assert client.get(url(verb, row)).status_code == 404, verb
    for verb in ACTS:
        assert client.post(url(verb, crack), {"reason": "mine", "into": "2"}).status_code == 404, verb
    assert client.post(url("merge-undo", merge), {"reason": "mine"}).status_code == 404
    assert world.line.name not in client.get(reverse("line-list")).content.decode()
    assert AuditEvent.objects.filter(by=world.stranger).count() == 0


def test_pages_of_nothing_are_not_found(world: World, signed_in: Callable[..., Client]) -> None:
    client = signed_in(world.plant.engineer)
    for verb in ("detail", "class-new", "class"):
        assert client.get(reverse(f"line-{verb}", args=[NOBODY])).status_code == 404, verb
    for verb in (*ACTS, "merge-undo"):
        assert client.post(reverse(f"line-{verb}", args=[NOBODY]), {"reason": "x"}).status_code == 404, verb


def test_a_viewer_reads_everything_and_changes_nothing(
    world: World, crack: DefectClass, stain: DefectClass, signed_in: Callable[..., Client]
) -> None:
    client, merge = signed_in(world.viewer), merged(world, stain, crack)
    capture = world.decided(900, 1, lot="L")
    for verb, row in (("detail", world.line), ("class", crack)):
        for language in ("en", "ko"):
            assert client.get(url(verb, row), headers={"Accept-Language": language}).status_code == 200
    for verb, row in (("settings", world.line), ("class-new", world.line), ("class-merge", crack)):
        assert client.get(url(verb, row)).status_code == 403, verb
    before = AuditEvent.objects.count()
    for verb in ACTS:
        assert client.post(url(verb, crack), {"reason": "mine", "into": "2"}).status_code == 403, verb
    assert client.post(url("merge-undo", merge), {"reason": "mine"}).status_code == 403
    assert client.post(reverse("capture-example", args=[capture.pk]), {"class": "1"}).status_code == 403
    assert AuditEvent.objects.count() == before


# ------------------------------------------------------------------------------------------------ the line


def test_settings_are_shown_to_all_and_changed_with_a_reason(
    world: World, supervisor: User, signed_in: Callable[..., Client]
) -> None:
    client = signed_in(supervisor)
    page = client.get(url("settings", world.line)).content.decode()
    assert 'value="8"' in page
    sent = {
        "due_h": "2", "audit_percent": "5", "limit_percent": "10", "window_low": "100", "window_high": "4000",
        "shifts": "A 06:00-14:00\nB 14:00–22:00\n\nC 22:00~6:00", "reason": "three shifts",
    }  # fmt: skip
    answer = client.post(url("settings", world.line), sent)
    assert answer["Location"] == url("detail", world.line)
    world.line.refresh_from_db()
    assert (world.line.review_due_s, world.line.audit_rate, world.line.window_low) == (7200, 0.05, 100.0)
    assert world.line.shifts[2] == {"code": "C", "from": "22:00", "to": "06:00"}
    event = AuditEvent.objects.get(action="line.settings")
    assert (event.reason, event.old["review_due_s"]) == ("three shifts", 28800)
    assert "escape_limit" not in event.new
    page = signed_in(world.viewer).get(url("detail", world.line)).content.decode()
    for words in ("2 h 0 min", "5 %", "100 – 4,000", "22:00–06:00", "three shifts"):
        assert words in page
    assert signed_in(world.plant.engineer).post(url("settings", world.line), sent).status_code == 403


def test_settings_that_cannot_be_are_marked_or_refused(
    world: World, supervisor: User, signed_in: Callable[..., Client]
) -> None:
    client = signed_in(supervisor)
    sent = {"due_h": "2", "audit_percent": "5", "limit_percent": "10", "shifts": "", "reason": "why"}
    for wrong, status, words in (
        ({"audit_percent": "101"}, 422, "less than or equal to 100"),
        ({"shifts": "early"}, 422, "early is no shift"),
        ({"reason": ""}, 422, "required"),
        ({"shifts": "A 06:00-26:00"}, 409, "two different times"),
        ({"window_low": "5"}, 409, "black and a white"),
    ):
        answer = client.post(url("settings", world.line), sent | wrong)
        assert (answer.status_code, words in answer.content.decode()) == (status, True), wrong
    world.line.refresh_from_db()
    assert world.line.review_due_s == 28800


def test_the_book_is_counted_when_its_part_is_read(
    world: World, crack: DefectClass, signed_in: Callable[..., Client]
) -> None:
    world.pictures(2)
    drafted, _ = captures.import_one(world.line, records_picture(), {}, by=world.plant.engineer)
    box = {"number": 1, "kind": "box", "points": [[1, 1], [9, 9]]}
    drafts.save(drafted, drawn=[box], by=world.plant.engineer)
    client = signed_in(world.viewer)
    page = client.get(url("detail", world.line)).content.decode()
    assert 'hx-trigger="load, loopline:changed"' in page
    assert "decided=1" not in page
    part = client.get(url("detail", world.line) + "?part=book", headers=HTMX).content.decode()
    assert f'show=decided&amp;decided=1">{2}</a>' in part
    assert '<td class="num">1</td></tr>' in part
    assert "load," not in part
    used = client.get(url("class", crack), headers=HTMX).content.decode()
    assert 'decided=1">2</a>' in used
    assert "<html" not in used


def records_picture() -> bytes:
    from tests.console.world import cell

    return cell(901, cracked=True)


# ------------------------------------------------------------------------------------------------ classes


def test_a_class_is_added_with_the_next_number(world: World, signed_in: Callable[..., Client]) -> None:
    client = signed_in(world.plant.engineer)
    sent = {"code": "stain", "name_ko": "얼룩", "name_en": "stain", "hotkey": "t", "critical": "on"}
    answer = client.post(url("class-new", world.line), sent)
    made = DefectClass.objects.get(code="stain")
    assert answer["Location"] == url("class", made)
    assert (made.number, made.hotkey, made.critical, made.name_ko) == (2, "t", True, "얼룩")
    assert client.post(url("class-new", world.line), sent).status_code == 409
    assert client.post(url("class-new", world.line), {"code": "x"}).status_code == 422
    refused = client.post(url("class-new", world.line), sent | {"code": "y", "hotkey": "t"}, headers=HTMX)
    assert (refused.status_code, "Class stain has the key T" in refused.content.decode()) == (409, True)
    assert DefectClass.objects.filter(line=world.line).count() == 2


def test_a_class_is_renamed_and_gets_another_key(
    world: World, crack: DefectClass, stain: DefectClass, signed_in: Callable[..., Client]
) -> None:
    client = signed_in(world.plant.engineer)
    sent = {"name_ko": "깨짐", "name_en": "fracture", "hotkey": "f", "critical": "on"}
    assert client.post(url("class-change", crack), sent)["Location"] == url("class", crack)
    crack.refresh_from_db()
    assert (crack.code, crack.name_en, crack.hotkey, crack.critical) == ("crack", "fracture", "f", True)
    for wrong, status in (({"hotkey": "t"}, 409), ({"name_en": ""}, 422)):
        assert client.post(url("class-change", crack), sent | wrong).status_code == status
    crack.refresh_from_db()
    assert crack.hotkey == "f"


def test_the_reviews_buttons_honour_the_keys_of_the_book(
    world: World, crack: DefectClass, stain: DefectClass, signed_in: Callable[..., Client]
) -> None:
    captures.import_one(world.line, records_picture(), {}, by=world.plant.engineer)
    plain = lines.add_class(world.line, code="pit", name_ko="핀홀", name_en="pit", by=records.SET_UP)
    DefectClass.objects.filter(pk=crack.pk).update(hotkey="")
    DefectClass.objects.filter(pk=plain.pk).update(hotkey="1")  # the digit of somebody else's place
    assert facts.keys(facts.book(world.line)) == {1: "2", 2: "t", 3: "1"}
    for page in (reverse("capture-review"), reverse("capture-list")):
        answer = signed_in(world.plant.engineer).get(page, {"line": world.line.code}).content.decode()
        for number, key in ((1, "2"), (2, "t"), (3, "1")):
            assert f'value="NG:{number}" data-key="{key}"' in answer


def test_a_retired_class_is_no_button_and_its_pictures_are_found(
    world: World, crack: DefectClass, stain: DefectClass, signed_in: Callable[..., Client]
) -> None:
    rows = [world.decided(900 + n, 1, lot="L") for n in range(7)]
    waiting, _ = captures.import_one(world.line, records_picture(), {}, by=world.plant.engineer)
    client = signed_in(world.plant.engineer)
    assert client.post(url("class-retire", crack), {"reason": ""}).status_code == 409
    assert client.post(url("class-retire", crack), {"reason": "too vague"}).status_code == 302
    crack.refresh_from_db()
    assert crack.retired_at is not None
    assert 'value="NG:1"' not in client.get(reverse("capture-review")).content.decode()
    answer = client.post(
        reverse("capture-decide", args=[waiting.pk]), {"choice": "NG:1"}, headers={"Accept": "application/json"}
    )
    assert (answer.status_code, "Class crack is retired" in answer.json()["sentence"]) == (409, True)
    found = client.get(reverse("capture-list"), {"line": world.line.code, "show": "decided", "decided": "1"})
    page = found.content.decode()
    assert page.count('class="tile"') == len(rows)
    assert '<option value="1" selected>crack, retired</option>' in page
    assert client.post(url("class-restore", crack), {"reason": "needed"}).status_code == 302
    crack.refresh_from_db()
    assert crack.retired_at is None
    assert client.post(url("class-restore", crack), {"reason": "needed"}).status_code == 409


# ------------------------------------------------------------------------------------------------ merging


def test_a_merge_is_looked_at_done_and_undone(
    world: World, crack: DefectClass, stain: DefectClass, signed_in: Callable[..., Client]
) -> None:
    rows = [world.decided(900 + n, 2, lot="L") for n in range(3)]
    classes.change(stain, name_ko="얼룩", name_en="stain", hotkey="t", critical=True, by=world.plant.engineer)
    client = signed_in(world.plant.engineer)
    page = client.get(url("class-merge", stain), {"into": "1"}).content.decode()
    assert "3 standing decisions get successors" in page
    assert "stain is critical and crack is not" in page
    assert Decision.objects.filter(batch__isnull=False).count() == 0
    answer = client.post(url("class-merge", stain), {"into": "1", "reason": "the same"}, follow=True)
    assert "3 decisions moved." in answer.content.decode()
    assert set(Capture.objects.filter(pk__in=[row.pk for row in rows]).values_list("decided_class", flat=True)) == {1}
    detail = client.get(reverse("capture-detail", args=[rows[0].pk])).content.decode()
    assert "class merged, crack" in detail
    filters = client.get(reverse("capture-list"), {"line": world.line.code, "show": "decided"}).content.decode()
    assert "stain, merged into crack" in filters
    assert client.post(url("class-merge", stain), {"into": "1", "reason": "again"}).status_code == 409
    merge = ClassMerge.objects.get()
    assert f'data-dialog="undo-{merge.pk}"' in client.get(url("class", crack)).content.decode()
    row = Capture.objects.get(pk=rows[0].pk)
    captures.retract(row, reason="no", by=world.plant.engineer)
    answer = client.post(url("merge-undo", merge), {"reason": "not the same"}, follow=True).content.decode()
    assert "2 decisions are as before." in answer
    assert "1 was changed since" in answer
    assert "2 as before, 1 left" in answer
    assert Capture.objects.filter(decided_class=2).count() == 2
    assert client.post(url("merge-undo", merge), {"reason": "again"}).status_code == 409


def test_merging_into_nothing_is_not_found_and_into_itself_refused(
    world: World, crack: DefectClass, signed_in: Callable[..., Client]
) -> None:
    client = signed_in(world.plant.engineer)
    for into in ("", "9", "x"):
        assert client.get(url("class-merge", crack), {"into": into}).status_code == 404
        assert client.post(url("class-merge", crack), {"into": into, "reason": "x"}).status_code == 404
    assert client.get(url("class-merge", crack), {"into": "1"}).status_code == 409
    assert not ClassMerge.objects.exists()


def test_what_the_model_says_of_a_merged_class_is_accepted_as_the_other_one(
    world: World, crack: DefectClass, stain: DefectClass
) -> None:
    capture, _ = captures.import_one(world.line, records_picture(), {}, by=world.plant.engineer)
    reading = facts_of(capture, world.plant.engineer)
    reading._said = [({"number": 2, "name_ko": "얼룩", "name_en": "stain"}, 0.6), ({"number": 1}, 0.3)]
    assert (reading.accept, reading.accept_words) == ("NG:2", "stain")
    merged(world, stain, crack)
    reading = facts_of(capture, world.plant.engineer)
    reading._said = [({"number": 2, "name_ko": "얼룩", "name_en": "stain"}, 0.6), ({"number": 1}, 0.3)]
    assert (reading.accept, reading.accept_words, reading.top_name) == ("NG:1", "crack", "stain")
    assert [round(button.share or 0, 2) for button in reading.classes] == [0.9]


def facts_of(capture: Capture, person: User) -> Any:
    from console.facts.captures import Reading

    return Reading(capture, person)


# ------------------------------------------------------------------------------------------------ names then and now


def test_versions_and_snapshots_show_the_name_of_their_time_and_the_present_one(
    world: World, crack: DefectClass, signed_in: Callable[..., Client]
) -> None:
    version, snapshot = world.version(), world.snapshot()
    table = [{"number": 0, "code": "OK", "name_ko": "양품", "name_en": "OK", "index": 0}]
    table.append({"number": 1, "code": "crack", "name_ko": "균열", "name_en": "crack", "index": 1})
    Version.objects.filter(pk=version.pk).update(manifest=version.manifest | {"classes": table})
    pages = [reverse("version-detail", args=[version.pk]), reverse("snapshot-detail", args=[snapshot.pk])]
    client = signed_in(world.plant.engineer)
    for page in pages:
        assert "now-named" not in client.get(page).content.decode()
    classes.change(crack, name_ko="깨짐", name_en="fracture", hotkey="1", critical=False, by=world.plant.engineer)
    for page in pages:
        shown = client.get(page).content.decode()
        assert "crack" in shown
        assert "now fracture" in shown


# ------------------------------------------------------------------------------------------------ examples


def test_a_decided_picture_becomes_an_example_and_is_shown_in_book_and_review(
    world: World, crack: DefectClass, signed_in: Callable[..., Client]
) -> None:
    capture, client = world.decided(900, 1, lot="L"), signed_in(world.plant.engineer)
    captures.import_one(world.line, records_picture(), {}, by=world.plant.engineer)
    address, picture = reverse("capture-example", args=[capture.pk]), reverse("capture-picture", args=[capture.pk])
    detail = reverse("capture-detail", args=[capture.pk])
    assert "Example of crack" in client.get(detail).content.decode()
    assert client.post(address, {"class": "1"})["Location"] == detail
    assert ClassExample.objects.get().capture == capture
    assert "No longer an example of crack" in client.get(detail).content.decode()
    for page in (url("detail", world.line), url("class", crack), reverse("capture-review")):
        assert picture in client.get(page).content.decode(), page
    for wrong in ("2", "x", ""):
        assert client.post(address, {"class": wrong}).status_code == 409
    assert client.post(address, {"class": "1", "remove": "1"}).status_code == 302
    assert not ClassExample.objects.exists()
    assert client.post(reverse("capture-example", args=[NOBODY]), {"class": "1"}).status_code == 404


def test_an_example_is_kept_by_people_of_its_line(
    world: World, crack: DefectClass, signed_in: Callable[..., Client]
) -> None:
    capture = world.decided(900, 1, lot="L")
    examples.add(Capture.objects.get(pk=capture.pk), number=1, by=world.plant.engineer)
    Membership.objects.create(user=world.stranger, line=world.other_line, role="supervisor")
    address = reverse("capture-example", args=[capture.pk])
    assert signed_in(world.stranger).post(address, {"class": "1", "remove": "1"}).status_code == 404
    assert ClassExample.objects.count() == 1
