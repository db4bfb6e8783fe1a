"""Second opinions, blind pictures, checks and the pages about reviewing, as people meet them in the browser."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse
from django.utils import timezone

from console.models import Membership, User
from registry.models import AuditEvent, Line
from tests.console.world import cell
from tests.registry.plant import person
from training import captures, golden
from training.models import Capture, Check, Decision, Opinion

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

JSON = {"Accept": "application/json"}
SAID = {
    "verdict": "OK", "score": 0.0437, "reason": "audit", "predicted_class": 0, "release_number": 987, "blind": True,
    "prediction": {"probabilities": [0.9563, 0.0437], "thresholds": {"ok_below": 0.2718, "ng_from": 0.8314},
                   "map": {"w": 2, "h": 2, "values": [201, 202, 203, 204]}},
}  # fmt: skip
BETRAYS = (
    "0.04",
    "0.27",
    "0.83",
    "0.96",
    "201,202",
    "R-987",
    "audit sample",
    ">audit<",
    "heatmap",
    'data-key="Enter"',
    "says ok",
    'class="sc"',
)


def waiting(world: World, count: int = 1, **columns: Any) -> list[Capture]:
    made = []
    for n in range(count):
        meta = {"lot": "L900", "serial": f"S{n}"}
        row, _ = captures.import_one(world.line, cell(700 + n, cracked=False), meta, by=world.plant.engineer)
        Capture.objects.filter(pk=row.pk).update(**columns)
        row.refresh_from_db()
        made.append(row)
    return made


def policy(world: World, **columns: Any) -> None:
    Line.objects.filter(pk=world.line.pk).update(**columns)
    world.line.refresh_from_db()


def second(world: World, role: str = "engineer") -> User:
    return person(f"second-{role}", world.line, role)


def url(verb: str, capture: Capture) -> str:
    return reverse(f"capture-{verb}", args=[capture.pk])


def text(answer: Any) -> str:
    found: str = answer.content.decode()
    return found


# ------------------------------------------------------------------------------------------------ opinions


def test_nobody_reads_anothers_opinion_before_giving_their_own(world: World, signed_in: Callable[..., Client]) -> None:
    policy(world, opinions=2)
    [capture] = waiting(world)
    first, other = signed_in(world.plant.engineer), signed_in(second(world))
    regions = json.dumps([{"number": 1, "kind": "box", "points": [[31.5, 2], [41.5, 9]]}])
    first.post(url("decide", capture), {"choice": "NG:1", "comment": "hair crack left", "regions": regions})
    assert Opinion.objects.count() == 1
    for address in (url("detail", capture), url("work", capture), reverse("capture-review"), reverse("capture-list")):
        page = text(other.get(address))
        for secret in ("hair crack left", "31.5", "one opinion of several", "1 of 2", f"{world.plant.engineer}: "):
            assert secret not in page, (address, secret)
    page = text(first.get(url("detail", capture)))
    assert "1 of 2 given, yours among them" in page
    assert "hair crack left" in page
    assert "you have judged it" in text(first.get(reverse("capture-list")))
    assert f'data-id="{capture.pk}"' not in text(first.get(reverse("capture-review")))
    told = json.loads(other.post(url("decide", capture), {"choice": "NG:1"}, headers=JSON).content)
    assert told["left"] == 0
    page = text(other.get(url("detail", capture)))
    assert "2 of 2 agree with the decision" in page
    assert "hair crack left" in page


def test_who_settles_a_dispute_sees_all_opinions_and_others_see_none(
    world: World, signed_in: Callable[..., Client]
) -> None:
    policy(world, opinions=2)
    [capture] = waiting(world)
    judge = signed_in(second(world, "adjudicator"))
    first, other = signed_in(world.plant.engineer), signed_in(second(world))
    first.post(url("decide", capture), {"choice": "NG:1", "comment": "hair crack left"})
    other.post(url("decide", capture), {"choice": "OK", "comment": "a scratch only"})
    for client, sentence in ((first, "a scratch only"), (other, "hair crack left")):
        page = text(client.get(url("detail", capture)))
        assert "shown once an adjudicator has decided" in page
        assert sentence not in page
        assert client.post(url("decide", capture), {"choice": "OK"}, headers=JSON).status_code == 409
    assert "Settle 1 picture, EL 1" in text(judge.get(reverse("overview"), {"who": "mine"}))
    page = text(judge.get(reverse("capture-review"), {"disagreed": "1"}))
    assert "hair crack left" in page
    assert "a scratch only" in page
    assert f'data-id="{capture.pk}"' in page
    judge.post(url("decide", capture), {"choice": "NG:1"})
    capture.refresh_from_db()
    assert (capture.state, capture.decided_class) == ("DECIDED", 1)
    page = text(other.get(url("detail", capture)))
    assert "1 of 2 agree with the decision" in page
    assert "hair crack left" in page


def test_opinions_given_together_are_called_so(world: World, signed_in: Callable[..., Client]) -> None:
    policy(world, opinions=2)
    rows = waiting(world, 3)
    sent = {"line": world.line.code, "choice": "OK", "id": [str(row.pk) for row in rows]}
    page = text(signed_in(world.plant.engineer).post(reverse("capture-decide-together"), sent, follow=True))
    assert "Your opinions of 3 pictures are recorded." in page
    assert not Capture.objects.filter(state="DECIDED").exists()


# ------------------------------------------------------------------------------------------------ blind


def test_a_blind_picture_betrays_nothing_before_it_is_judged(world: World, signed_in: Callable[..., Client]) -> None:
    [capture] = waiting(world, **SAID)
    client = signed_in(world.plant.engineer)
    pages = {
        "review": text(client.get(reverse("capture-review"))),
        "work": text(client.get(url("work", capture))),
        "detail": text(client.get(url("detail", capture))),
    }
    grid = text(client.get(reverse("capture-list")))
    pages["grid"] = grid[grid.index('class="tiles"') : grid.index('class="actbar"')]
    for name, page in pages.items():
        for secret in BETRAYS:
            assert secret not in page, (name, secret)
    for name in ("review", "work", "detail"):
        assert "shown after your decision" in pages[name]
    assert "Audit sample" not in grid
    told = text(client.post(url("skip", capture), {}, headers=JSON))
    told += text(client.post(reverse("capture-undo"), {"line": world.line.code}, headers=JSON))
    assert str(capture.pk) in told
    assert not any(secret in told for secret in BETRAYS)
    client.post(url("decide", capture), {"choice": "OK"})
    page = text(client.get(url("detail", capture)))
    for shown in ("audit sample", "R-987", "0.04", "heatmap"):
        assert shown in page


def test_an_audit_picture_and_a_decoy_look_alike(world: World, signed_in: Callable[..., Client]) -> None:
    audit, decoy = waiting(world, 2, **SAID)
    band = {"reason": "band", "verdict": "REVIEW", "score": 0.5, "predicted_class": 1}
    Capture.objects.filter(pk=decoy.pk).update(**band)
    client = signed_in(world.plant.engineer)

    def bare(capture: Capture) -> str:
        row = Capture.objects.get(pk=capture.pk)
        page = text(client.get(url("work", capture)))
        for own in (str(row.pk), row.digest, row.serial, f"{row.size_bytes:,} B"):
            page = page.replace(own, "*")
        return re.sub(r"\b\w{64}\b|\d\d:\d\d(:\d\d)?(\.\d+)?", "", page)

    assert bare(audit) == bare(decoy)


def test_a_supervisor_sees_the_reasons_in_lists(world: World, signed_in: Callable[..., Client]) -> None:
    [capture] = waiting(world, **SAID)
    client = signed_in(second(world, "supervisor"))
    grid = text(client.get(reverse("capture-list"), {"why": "audit"}))
    assert str(capture.pk) in grid
    assert "Audit sample" in grid
    assert "audit sample" in text(client.get(url("detail", capture)))
    assert "R-987" not in text(client.get(url("work", capture)))  # about to judge it: blind like anybody
    assert str(capture.pk) not in text(signed_in(world.viewer).get(reverse("capture-list"), {"why": "audit"}))


# ------------------------------------------------------------------------------------------------ checks


def checked(world: World) -> tuple[Capture, Capture]:
    """(what waits, what is checked beside it): both imported and blind."""
    row, _ = captures.import_one(world.line, cell(801, cracked=True), {"lot": "L900"}, by=world.plant.engineer)
    golden.create(
        world.line, code="golden", name_ko="g", name_en="g", captures=[(row, 1)], owner=world.plant.engineer,
        expires_at=timezone.now() + timedelta(days=9), leads=True, by=world.plant.engineer,
    )  # fmt: skip
    policy(world, known_rate=1.0, blind_share=1.0)
    [plain] = waiting(world)
    return plain, row


def test_a_check_is_served_as_an_ordinary_blind_picture(world: World, signed_in: Callable[..., Client]) -> None:
    plain, row = checked(world)
    client = signed_in(world.plant.engineer)
    review = text(client.get(reverse("capture-review")))
    assert Check.objects.count() == 1
    assert review.count('class="th"') == 2

    def bare(capture: Capture, verb: str) -> str:
        found = Capture.objects.get(pk=capture.pk)
        page = re.sub(r"\b\w{64}\b", "", text(client.get(url(verb, capture))))  # tokens first: they are random
        for own in (str(found.pk), found.digest, str(found), f"{found.size_bytes:,} B"):
            page = page.replace(own, "*")
        return re.sub(r'\d\d:\d\d(:\d\d)?(\.\d+)?|<dd class="id">[^<]*</dd>', "", page)

    for verb in ("work", "detail"):
        assert bare(row, verb) == bare(plain, verb)
    for word in ("golden", "master", "known"):
        assert word not in bare(row, "detail").replace("golden=1", "").lower()
    told = json.loads(client.post(url("decide", row), {"choice": "OK"}, headers=JSON).content)
    assert set(told) == {"at", "left", "saved", "rail"}
    assert told["left"] == 1
    assert [entry["id"] for entry in told["rail"]] == [str(plain.pk)]
    assert Decision.objects.filter(capture=row).count() == 1
    assert 'class="vb ok on"' in text(client.get(url("work", row)))
    told = json.loads(client.post(reverse("capture-undo"), {"line": world.line.code}, headers=JSON).content)
    assert (told["at"], told["left"]) == (str(row.pk), 2)
    assert Check.objects.get().answered_at is None


def test_a_draft_on_a_check_is_saved_as_on_any_picture(world: World, signed_in: Callable[..., Client]) -> None:
    _plain, row = checked(world)
    client = signed_in(world.plant.engineer)
    client.get(reverse("capture-review"))
    sent = {"regions": "[]", "comment": "left", "version": "0", "tab": "a"}
    assert json.loads(client.post(url("draft", row), sent, headers=JSON).content)["comment"] == "left"
    assert "left" in text(client.get(url("work", row)))


def test_a_check_is_no_different_when_all_like_it_are_decided(world: World, signed_in: Callable[..., Client]) -> None:
    plain, row = checked(world)
    client = signed_in(world.plant.engineer)
    client.get(reverse("capture-review"))
    address = reverse("capture-alike", args=[row.pk])
    assert "not decided: it is decided along with the others" in text(client.get(address))
    client.post(address, {"choice": "OK", "id": [str(plain.pk)]})
    plain.refresh_from_db()
    row.refresh_from_db()
    assert (plain.decided_class, row.decided_class) == (0, 1)
    assert Check.objects.get().answered_verdict == "OK"


# ------------------------------------------------------------------------------------------------ the policy


def sent(**change: Any) -> dict[str, Any]:
    return {"opinions": "2", "known_rate": "5", "repeat_rate": "2.5", "blind_share": "10", **change}


def test_a_supervisor_sets_the_policy_and_reads_what_it_costs(world: World, signed_in: Callable[..., Client]) -> None:
    boss = signed_in(second(world, "supervisor"))
    address = reverse("reviewer-policy", args=[world.line.pk])
    page = text(boss.get(address))
    assert "twice the work" in page
    assert "Nobody on this line has that role yet" in page
    answer = boss.post(address, sent(), follow=True)
    assert "Saved." in text(answer)
    world.line.refresh_from_db()
    assert (world.line.opinions, world.line.known_rate, world.line.repeat_rate) == (2, 0.05, 0.025)
    assert AuditEvent.objects.get(action="line.review_policy").old["opinions"] == 1
    [capture] = waiting(world)
    captures.decide(capture, verdict="OK", by=world.plant.engineer)
    assert "1 waiting picture has enough opinions" in text(boss.post(address, sent(opinions="1"), follow=True))


@pytest.mark.parametrize("change", [{"opinions": "9"}, {"opinions": "5"}, {"known_rate": "50"}, {"blind_share": ""}])
def test_a_policy_that_cannot_work_is_sent_back(
    world: World, signed_in: Callable[..., Client], change: dict[str, str]
) -> None:
    answer = signed_in(second(world, "supervisor")).post(
        reverse("reviewer-policy", args=[world.line.pk]), sent(**change)
    )
    assert answer.status_code == 422
    assert 'class="err"' in text(answer)
    world.line.refresh_from_db()
    assert world.line.opinions == 1


def test_nobody_else_sets_the_policy(world: World, signed_in: Callable[..., Client]) -> None:
    address = reverse("reviewer-policy", args=[world.line.pk])
    for who, status in ((world.plant.engineer, 403), (world.viewer, 403), (world.stranger, 404)):
        for answer in (signed_in(who).get(address), signed_in(who).post(address, sent())):
            assert answer.status_code == status
    assert signed_in(world.plant.administrator).get(address).status_code == 200
    assert address in text(signed_in(world.plant.administrator).get(reverse("reviewer-escapes")))
    assert address not in text(signed_in(world.plant.engineer).get(reverse("reviewer-escapes")))
    world.line.refresh_from_db()
    assert world.line.opinions == 1
    assert signed_in(world.plant.administrator).put(address).status_code == 405


# ------------------------------------------------------------------------------------------------ reliability, escapes


def test_everybody_sees_themself_and_a_supervisor_sees_all(world: World, signed_in: Callable[..., Client]) -> None:
    other = second(world)
    policy(world, opinions=2)
    for capture in waiting(world, 3):
        for who in (world.plant.engineer, other):
            captures.decide(capture, verdict="OK", by=who)
    address = reverse("reviewer-list")
    page = text(signed_in(other).get(address))
    assert "you see your own figures only" in page
    assert "3 / 3" in page
    assert "too few to say, 3 of at least 20" in page
    assert f'scope="row">{world.plant.engineer}' not in page
    page = text(signed_in(second(world, "supervisor")).get(address))
    for who in (other, world.plant.engineer):
        assert f'scope="row">{who}' in page
    assert signed_in(world.viewer).get(address).status_code == 403
    assert "EL 1" not in text(signed_in(world.stranger).get(address))


def test_kappa_is_shown_per_class_once_there_are_enough(world: World, signed_in: Callable[..., Client]) -> None:
    other = second(world)
    policy(world, opinions=2)
    for n, capture in enumerate(waiting(world, 22)):
        for who in (world.plant.engineer, other):
            captures.decide(capture, verdict="NG" if n % 2 else "OK", classes=[1] if n % 2 else [], by=who)
    page = text(signed_in(other).get(reverse("reviewer-list")))
    assert "22 / 22" in page
    assert "kappa" in page
    assert "1.00" in page


def test_the_escape_page_counts_what_is_decided_and_says_what_waits(
    world: World, signed_in: Callable[..., Client]
) -> None:
    address = reverse("reviewer-escapes")
    assert "No audit picture in the last twelve weeks" in text(signed_in(world.viewer).get(address))
    at = timezone.now() - timedelta(days=7)
    rows = waiting(world, 6, **{**SAID, "sampling_weight": 50.0, "taken_at": at})
    for row in rows[:5]:
        captures.decide(row, verdict="OK", by=world.plant.engineer)
    page = text(signed_in(world.viewer).get(address))
    assert "0 / 5" in page
    assert "none found" in page
    assert "0.000–43.448 %" in page
    assert "0 / 300" in page
    assert "few" in page


@pytest.mark.parametrize("name", ["reviewer-list", "reviewer-escapes"])
def test_the_pages_open_in_both_languages(world: World, signed_in: Callable[..., Client], name: str) -> None:
    client = signed_in(world.plant.engineer)
    korean = text(client.get(reverse(name), headers={"Accept-Language": "ko"}))
    english = text(client.get(reverse(name), headers={"Accept-Language": "en"}))
    assert 'lang="ko"' in korean
    assert 'lang="en"' in english
    assert not re.search(r"\sstyle=", korean)


def test_the_pages_need_somebody_signed_in(world: World, client: Client) -> None:
    for name in ("reviewer-list", "reviewer-escapes"):
        assert reverse("session-sign-in") in client.get(reverse(name))["Location"]
    assert not Membership.objects.filter(role="adjudicator").exists()
