"""What every page shares: deny by default, signing in and out, line, language, theme, error pages, headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from console import throttle
from console.http import SIGNED_IN
from console.models import SignInTries, User
from console.roles import ACTIONS
from registry.models import AuditEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.console.world import World

PASSWORD = "쉬운-문장-12"
PUBLIC = {"session-sign-in", "session-preferences"}


def patterns(resolver: Any) -> Iterator[URLPattern]:
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            yield from patterns(entry)
        else:
            yield entry


@pytest.fixture
def person(world: World) -> User:
    world.viewer.set_password(PASSWORD)
    world.viewer.save()
    return world.viewer


def sign_in(client: Client, name: str, password: str, **more: str) -> Any:
    return client.post(reverse("session-sign-in"), {"username": name, "password": password, **more})


# ------------------------------------------------------------------------------------------------ deny by default


def test_every_address_says_which_action_it_needs() -> None:
    seen = list(patterns(get_resolver()))
    assert len(seen) > 40
    for entry in seen:
        action = getattr(entry.callback, "action", "nothing")
        if action is None:
            assert entry.name in PUBLIC or entry.name.startswith("device-api-"), entry.name
        else:
            assert action in ACTIONS or action == SIGNED_IN, entry.name


def test_a_view_that_forgot_to_say_it_answers_nobody(
    world: World, signed_in: Callable[..., Client], settings: Any
) -> None:
    settings.ROOT_URLCONF = "tests.console.forgetful_urls"
    assert signed_in(world.plant.engineer).get("/forgot").status_code == 403


# ------------------------------------------------------------------------------------------------ signing in and out


def test_signing_in_leads_back_to_where_one_wanted_to_go(person: User) -> None:
    client = Client()
    asked = client.get(reverse("capture-list"))
    page = client.get(asked["Location"])
    assert f'name="next" value="{reverse("capture-list")}"' in page.content.decode()
    answer = sign_in(client, person.username, PASSWORD, next=reverse("capture-list"))
    assert answer["Location"] == reverse("capture-list")
    assert AuditEvent.objects.filter(action="person.signed_in", by=person).count() == 1


@pytest.mark.parametrize("target", ["https://elsewhere.example/", "//elsewhere.example", "javascript:alert(1)"])
def test_signing_in_never_leads_elsewhere(target: str, person: User) -> None:
    assert sign_in(Client(), person.username, PASSWORD, next=target)["Location"] == "/"


def test_a_wrong_password_says_the_same_as_a_wrong_name(person: User) -> None:
    wrong = sign_in(Client(), person.username, "wrong")
    nobody = sign_in(Client(), "nobody", "wrong")
    for answer in (wrong, nobody):
        assert answer.status_code == 422
        assert "do not belong together" in answer.content.decode()


def test_after_five_wrong_passwords_even_the_right_one_waits(person: User) -> None:
    for _n in range(throttle.TRIES_PER_NAME_AND_ADDRESS):
        sign_in(Client(), person.username, "wrong")
    answer = sign_in(Client(), person.username, PASSWORD)
    assert answer.status_code == 429
    assert "15 minutes" in answer.content.decode()
    other = Client(REMOTE_ADDR="10.0.0.9")
    assert sign_in(other, person.username, PASSWORD).status_code == 302
    SignInTries.objects.update(until=timezone.now())
    assert sign_in(Client(), person.username, PASSWORD).status_code == 302


def test_a_further_wrong_password_counts_but_does_not_prolong_the_wait(db: None) -> None:
    throttle.failed("haneul", "10.0.0.1")
    first = dict(SignInTries.objects.values_list("key", "until"))
    throttle.failed(" Haneul", "10.0.0.1")
    throttle.failed("haneul", "10.0.0.2")
    assert sorted(SignInTries.objects.values_list("count", flat=True)) == [1, 1, 2, 2, 3]
    assert first.items() <= dict(SignInTries.objects.values_list("key", "until")).items()


def test_signing_out_ends_the_session_and_clears_cached_pictures(
    person: User, signed_in: Callable[..., Client]
) -> None:
    client = signed_in(person)
    assert client.get(reverse("session-sign-out")).status_code == 405
    answer = client.post(reverse("session-sign-out"))
    assert answer["Clear-Site-Data"] == '"cache"'
    assert client.get(reverse("overview")).status_code == 302


def test_somebody_who_is_deactivated_is_out_at_once(person: User, signed_in: Callable[..., Client]) -> None:
    client = signed_in(person)
    User.objects.filter(pk=person.pk).update(is_active=False)
    assert client.get(reverse("overview")).status_code == 302


# ------------------------------------------------------------------------------------------------ line, language, theme


def test_a_chosen_line_stays_chosen_and_a_foreign_one_does_not_exist(
    world: World, signed_in: Callable[..., Client]
) -> None:
    client = signed_in(world.viewer)
    client.get(reverse("overview"), {"line": world.line.code})
    assert client.session["line"] == world.line.code
    assert client.get(reverse("overview"), {"line": world.other_line.code}).status_code == 404
    assert client.session["line"] == world.line.code
    client.get(reverse("overview"), {"line": "*"})
    assert client.session["line"] == "*"


def test_language_and_theme_follow_the_person(person: User, signed_in: Callable[..., Client]) -> None:
    client = signed_in(person)
    client.post(reverse("session-preferences"), {"language": "ko"})
    client.post(reverse("session-preferences"), {"theme": "dark"})
    page = signed_in(person).get(reverse("overview")).content.decode()  # another browser
    assert '<html lang="ko" data-theme="dark">' in page


def test_language_and_theme_work_before_signing_in_and_refuse_nonsense(world: World) -> None:
    client = Client()
    client.post(reverse("session-preferences"), {"theme": "line", "language": "ko"})
    client.post(reverse("session-preferences"), {"theme": "url(x)", "language": "xx"})
    assert '<html lang="ko" data-theme="line">' in client.get(reverse("session-sign-in")).content.decode()


# ------------------------------------------------------------------------------------------------ headers and errors


def test_pages_are_kept_by_nobody_and_run_no_inline_code(world: World, signed_in: Callable[..., Client]) -> None:
    answer = signed_in(world.viewer).get(reverse("overview"))
    assert answer["Cache-Control"] == "no-store"
    policy = answer["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert answer["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("language", ["en", "ko"])
def test_error_pages_are_pages_of_ours_and_notices_for_partials(
    language: str, world: World, signed_in: Callable[..., Client]
) -> None:
    client = signed_in(world.viewer)
    client.post(reverse("session-preferences"), {"language": language})
    for address, status in (("/nowhere", 404), (reverse("capture-review"), 403)):
        page = client.get(address)
        part = client.get(address, headers={"HX-Request": "true"})
        assert (page.status_code, part.status_code) == (status, status)
        assert 'class="bar"' in page.content.decode()
        assert 'class="bar"' not in part.content.decode()
        assert part["HX-Retarget"] == "#notices"


def test_a_crash_shows_a_page_of_ours_and_no_trace(
    world: World, signed_in: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.facts import captures

    def broken(*_args: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(captures, "grid", broken)
    client = signed_in(world.viewer)
    client.raise_request_exception = False
    answer = client.get(reverse("capture-list"))
    assert answer.status_code == 500
    assert "secret detail" not in answer.content.decode()
    assert "written in the server" in answer.content.decode()


def test_a_session_that_ended_sends_a_partial_to_the_sign_in_page(world: World) -> None:
    answer = Client().get(
        reverse("overview"), headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/jobs/"}
    )
    assert answer.status_code == 401
    assert answer["HX-Redirect"].startswith(reverse("session-sign-in"))
