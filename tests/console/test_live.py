"""The socket on the real server: topics of one's own lines, told at once and on change; idle pages live on."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from console.live import SIGNED_OUT
from tests import committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.running import Running

pytestmark = pytest.mark.slow
PASSWORD = "쉬운-문장-12"


@pytest.fixture(scope="module")
def plant(running_console: Running, django_db_blocker: Any) -> dict[str, Any]:
    """Two lines in the running console, an engineer of the first, and pictures that wait there."""
    from console.models import Membership, User
    from registry import lines
    from registry.models import Site
    from tests.console.world import cell
    from training import captures

    def make() -> list[str]:
        site, _ = Site.objects.get_or_create(code="site", defaults={"name": "Site"})
        mine = lines.create_line(site, code="mine", name="Mine", by="command:test")
        lines.create_line(site, code="theirs", name="Theirs", by="command:test")
        person = User.objects.create_user("engineer", password=PASSWORD)
        Membership.objects.create(user=person, line=mine, role="engineer")
        return [str(captures.import_one(mine, cell(n, cracked=False), {}, by=person)[0].pk) for n in range(4)]

    return {"running": running_console, "ids": committed.on(running_console, django_db_blocker, make)}


@pytest.fixture
def sign_in(plant: dict[str, Any]) -> Iterator[Callable[[], httpx.Client]]:
    """Sessions of the engineer, each with cookies of its own; closed after the test."""
    clients: list[httpx.Client] = []

    def make() -> httpx.Client:
        client = httpx.Client(base_url=plant["running"].base_url, timeout=30)
        clients.append(client)
        client.get("/sign-in/")
        form = {"username": "engineer", "password": PASSWORD, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        assert client.post("/sign-in/", data=form).status_code == 302
        return client

    yield make
    for client in clients:
        client.close()


def decide(client: httpx.Client, capture: str) -> None:
    headers = {"Accept": "application/json", "X-CSRFToken": client.cookies["csrftoken"]}
    assert client.post(f"/captures/{capture}/decide", data={"choice": "OK"}, headers=headers).status_code == 200


def socket(client: httpx.Client) -> ClientConnection:
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    base = str(client.base_url).rstrip("/")
    headers = {"Cookie": cookies, "Origin": base}
    return connect(base.replace("http", "ws", 1) + "/live/", additional_headers=headers, ping_interval=None)


def subscribe(ws: ClientConnection, *topics: str) -> None:
    ws.send(json.dumps({"subscribe": list(topics)}))


def told(ws: ClientConnection, within_s: float) -> list[dict[str, Any]]:
    """All topic messages of the next seconds; server pings are answered, as the page does it."""
    found, deadline = [], time.monotonic() + within_s
    while (left := deadline - time.monotonic()) > 0:
        try:
            message = json.loads(ws.recv(timeout=left))
        except TimeoutError:
            break
        if "ping" in message:
            ws.send(json.dumps({"pong": message["ping"]}))
        elif "topic" in message:
            found.append(message)
    return found


def test_ones_own_topics_are_told_at_once_and_on_change_and_foreign_ones_never(
    plant: dict[str, Any], sign_in: Callable[[], httpx.Client]
) -> None:
    client = sign_in()
    with socket(client) as ws:
        subscribe(ws, "mine.captures", "theirs.captures")
        first = told(ws, 2)
        assert [message["topic"] for message in first] == ["mine.captures"]
        decide(client, plant["ids"][0])
        later = told(ws, 3)
        assert later[-1]["version"] > first[0]["version"]
        asked = client.get("/live/versions", params={"topics": "mine.captures theirs.captures"}).json()
        assert asked == {"mine.captures": later[-1]["version"]}


def test_both_sides_may_ping(plant: dict[str, Any], sign_in: Callable[[], httpx.Client]) -> None:
    with socket(sign_in()) as ws:
        ws.send(json.dumps({"ping": 7}))
        assert json.loads(ws.recv(timeout=5)) == {"pong": 7}
        ws.send(json.dumps(["nonsense", {"subscribe": 3}]))
        ws.send(json.dumps({"subscribe": [3, None, "x" * 500]}))
        ws.send(json.dumps({"ping": 8}))
        assert json.loads(ws.recv(timeout=5)) == {"pong": 8}


def test_a_stranger_is_told_that_nobody_is_signed_in(plant: dict[str, Any]) -> None:
    base = plant["running"].base_url
    with connect(base.replace("http", "ws", 1) + "/live/", additional_headers={"Origin": base}) as ws:
        with pytest.raises(ConnectionClosed) as closed:
            ws.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == SIGNED_OUT


def test_another_site_cannot_open_the_socket(plant: dict[str, Any], sign_in: Callable[[], httpx.Client]) -> None:
    from websockets.exceptions import InvalidStatus

    client = sign_in()
    base = str(client.base_url).rstrip("/")
    headers = {
        "Cookie": f"loopline_session={client.cookies['loopline_session']}",
        "Origin": "https://elsewhere.example",
    }
    with pytest.raises(InvalidStatus):
        connect(base.replace("http", "ws", 1) + "/live/", additional_headers=headers)


def test_an_idle_page_lives_for_more_than_a_minute_and_an_ended_session_does_not(
    plant: dict[str, Any], sign_in: Callable[[], httpx.Client]
) -> None:
    staying, leaving = sign_in(), sign_in()
    with socket(staying) as idle, socket(leaving) as ended:
        for ws in (idle, ended):
            subscribe(ws, "mine.captures")
        told(idle, 1)
        leaving.post("/sign-out/", headers={"X-CSRFToken": leaving.cookies["csrftoken"]})
        closed, began = None, time.monotonic()
        while time.monotonic() - began < 66:  # longer than any timeout on the way
            assert told(idle, 2) == []
            try:
                told(ended, 0.5)
            except ConnectionClosed as error:
                closed = closed or error
        decide(staying, plant["ids"][1])
        assert told(idle, 3)
        assert closed is not None
        assert closed.rcvd is not None
        assert closed.rcvd.code == SIGNED_OUT
