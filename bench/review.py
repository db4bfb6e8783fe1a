"""Review at a million captures: p50, p95 and p99 of its pages, deciding by twenty people at once, key to next picture.

Rows are real (one per capture, with decisions), pictures are shared: 200 real cells. Pages are asked from the running
console over HTTP, one after the other; the peer is the same grid as Django's own paginator would make it (COUNT and
OFFSET on the same rows, in the same database, at the same moment). Twenty people decide twice: each looks a second and
a half at every picture, which is a fast reviewer, and then nobody looks at all, which is what the machine can take.

    python -m bench.review [--captures 1000000] [--requests 60] [--seconds 20]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx

from bench.console import running

REVIEWERS = 20
LOOK_S = 1.5
OPEN_SHARE = 0.1
PASSWORD = "measured-by-bench"
LINE = "bench-1"
PICTURES = 200
DEVICES = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captures", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=60, help="of each page")
    parser.add_argument("--seconds", type=float, default=20.0, help="that twenty people decide side by side")
    asked = parser.parse_args()
    with running() as url:
        began = time.monotonic()
        _fill(asked.captures)
        print(f"{asked.captures:,} captures written in {time.monotonic() - began:.0f} s", flush=True)
        pages = _pages(url, asked.requests)
        for name, times in pages.items():
            print(f"  {name:<28} p50 {_percentile(times, 50):7.1f}  p95 {_percentile(times, 95):7.1f} ms", flush=True)
        peer = _paginator(max(5, asked.requests // 6))
        looking = _side_by_side(url, asked.seconds, look_s=LOOK_S)
        flat_out = _side_by_side(url, asked.seconds, look_s=0.0)
        key = _key_to_next_picture(url)
    result = {
        "captures": asked.captures,
        **{
            f"p{share}_ms": {name: _percentile(times, share) for name, times in pages.items()} for share in (50, 95, 99)
        },
        "django_paginator_p50_ms": {name: _percentile(times, 50) for name, times in peer.items()},
        "reviewers": REVIEWERS,
        "claims_per_s": flat_out["decisions_per_s"],
        "double_claims": looking["double"] + flat_out["double"],
        "decide_ms": {"looking": looking["ms"], "flat_out": flat_out["ms"]},
        "decisions_per_s": {"looking": looking["decisions_per_s"], "flat_out": flat_out["decisions_per_s"]},
        "key_to_next_picture_ms": key,
        "cores": len(os.sched_getaffinity(0)),
    }
    print(json.dumps(result))


def _percentile(times: list[float], share: int) -> float:
    ordered = sorted(times)
    return round(1000 * ordered[min(len(ordered) - 1, len(ordered) * share // 100)], 1)


# ------------------------------------------------------------------------------------------------ rows


def _fill(captures: int) -> None:
    """A line with people, devices and this many captures, a tenth of them open; written set by set in SQL."""
    from django.conf import settings
    from django.db import connection, transaction
    from django.utils import timezone

    from console.models import Membership, User
    from console.sample import cells
    from edge.pictures import inspect
    from registry import blobs, counters, lines
    from registry.models import Device, Site, Station

    site = Site.objects.create(code="bench", name="Bench")
    shifts = [{"code": "A", "from": "06:00", "to": "18:00"}, {"code": "B", "from": "18:00", "to": "06:00"}]
    line = lines.create_line(site, code=LINE, name="Bench 1", shifts=shifts, by="set-up")
    for code in ("crack", "stain", "burr"):
        lines.add_class(line, code=code, name_ko=code, name_en=code, critical=code == "crack", by="set-up")
    stations = [Station.objects.create(line=line, code=f"S{n}", name=f"S{n}") for n in range(8)]
    for n in range(DEVICES):
        Device.objects.create(line=line, station=stations[n % 8], code=f"d-{n:03d}", state=Device.State.ACTIVE)
    for n in range(REVIEWERS):
        person = User.objects.create_user(f"reviewer-{n}", password=PASSWORD)
        Membership.objects.create(user=person, line=line, role="engineer")
    settings.BLOB_ROOT = settings.STATE / "blobs"
    made = [cell.path.read_bytes() for cell in cells.load(day_zero=timezone.now())[:PICTURES]]
    info = inspect(made[0])
    digests = [blobs.put(data) for data in made]
    # Captures and decisions point at each other: the database looks at both at the commit.
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(FILL, {"line": line.pk, "captures": captures, "digests": digests, "devices": DEVICES,
                              "open_from": int(captures * (1 - OPEN_SHARE)), "bytes": len(made[0]),
                              "width": info.width, "height": info.height, "mode": info.mode})  # fmt: skip
        cursor.execute(DECIDE, {"line": line.pk})
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE training_capture, training_decision")
    counters.recount(line)


# Keys rise with time, as the product's own do.
FILL = """
WITH device AS (
    SELECT id, station_id, row_number() OVER (ORDER BY code) - 1 AS n FROM registry_device WHERE line_id = %(line)s
), picture AS (SELECT * FROM unnest(%(digests)s::text[]) WITH ORDINALITY AS p (digest, n))
INSERT INTO training_capture (
    id, created_at, row_version, line_id, station_id, device_id, device_capture_id, state, digest, size_bytes, width,
    height, mode, file_name, lot, serial, part, product, shift, taken_at, received_at, reason, sampling_weight,
    release_number, verdict, score, prediction, predicted_class, doubt, urgent, second_look, reserved, decision_id,
    decided_class)
SELECT
    (lpad(to_hex(1760000000000 + g::bigint * 20), 12, '0') || '7' || substr(md5(g::text), 1, 3) || '8'
        || substr(md5(g::text), 4, 15))::uuid,
    now() - (%(captures)s - g) * interval '20 ms', 0, %(line)s, d.station_id, d.id, 'c' || g,
    CASE WHEN g > %(open_from)s THEN 'NEW' ELSE 'DECIDED' END, p.digest, %(bytes)s, %(width)s, %(height)s, %(mode)s, '',
    'L' || (g / 200), 'SN' || g, '', 'cell-' || (g %% 3), CASE WHEN (g / 5000) %% 2 = 0 THEN 'A' ELSE 'B' END,
    now() - (%(captures)s - g) * interval '20 ms', now() - (%(captures)s - g) * interval '20 ms',
    CASE WHEN g %% 20 = 0 THEN 'audit' ELSE 'band' END, 1.0, 1,
    CASE WHEN g %% 3 = 0 THEN 'NG' ELSE 'REVIEW' END, (g::bigint * 7919 %% 1000) / 1000.0,
    '{"probabilities": [0.6, 0.2, 0.1, 0.1], "thresholds": {"ok_below": 0.3, "ng_from": 0.7}}'::jsonb,
    g %% 4, 1 - abs((g::bigint * 7919 %% 1000) / 1000.0 - 0.5) * 2, g %% 4 = 1, g %% 500 = 0, false,
    CASE WHEN g <= %(open_from)s THEN md5('decision ' || g)::uuid END, CASE WHEN g <= %(open_from)s THEN g %% 4 END
FROM generate_series(1, %(captures)s) AS g
JOIN picture AS p ON p.n = 1 + g %% cardinality(%(digests)s::text[])
JOIN device AS d ON d.n = g %% %(devices)s
"""
DECIDE = """
INSERT INTO training_decision (id, created_at, capture_id, kind, by_id, verdict, classes, regions, comment, predicted)
SELECT c.decision_id, c.received_at + interval '1 hour', c.id, 'DECIDED',
    (SELECT id FROM console_user WHERE username = 'reviewer-0'),
    CASE WHEN c.predicted_class = 0 THEN 'OK' ELSE 'NG' END,
    CASE WHEN c.predicted_class = 0 THEN '{}'::int[] ELSE ARRAY[c.predicted_class] END, '[]'::jsonb, '', '{}'::jsonb
FROM training_capture AS c WHERE c.line_id = %(line)s AND c.state = 'DECIDED'
"""


# ------------------------------------------------------------------------------------------------ pages


def sign_in(url: str, name: str) -> httpx.Client:
    client = httpx.Client(base_url=url, timeout=60, follow_redirects=True)
    client.get("/sign-in/")
    form = {"username": name, "password": PASSWORD, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
    client.post("/sign-in/", data=form).raise_for_status()
    return client


PAGES = {
    "grid": "/captures/",
    "grid_by_doubt": "/captures/?order=doubt",
    "grid_critical_first": "/captures/?order=critical",
    "filter_station": "/captures/?station=S3",
    "filter_lot": "/captures/?show=decided&lot=L77",
    "filter_serial": "/captures/?show=all&serial=SN123",
    "filter_shift_class": "/captures/?shift=B&said=2",
    "filter_differs": "/captures/?show=decided&differs=1",
    "filter_decided_class": "/captures/?show=decided&decided=3",
    "grid_decided": "/captures/?show=decided",
    "single": f"/captures/review/?line={LINE}",
    "single_by_doubt": f"/captures/review/?line={LINE}&order=doubt&station=S5",
    "overview": "/",
    "snapshot_builder": f"/snapshots/new?line={LINE}",
}
DEEP = ("grid", "grid_by_doubt")  # walked page by page, too
HEAVY = {"snapshot_builder"}  # plans over every decided picture: measured, a few times


def _pages(url: str, requests: int) -> dict[str, list[float]]:
    import re

    client = sign_in(url, "reviewer-0")
    found: dict[str, list[float]] = {}
    for name, path in PAGES.items():
        if name in HEAVY:
            continue
        client.get(path)  # templates and plans are warm
        found[name] = [_timed(client, path) for _ in range(requests)]
    for name in DEEP:
        path, times = PAGES[name], []
        for _ in range(requests // 2):
            began = time.perf_counter()
            page = client.get(path).text
            times.append(time.perf_counter() - began)
            onwards = re.search(r'href="(\?[^"]*after=[^"]*)"', page)
            if onwards is None:
                break
            path = "/captures/" + onwards.group(1).replace("&amp;", "&")
        found[f"{name}_deep"] = times
    client.close()
    return found


def _timed(client: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    answer = client.get(path)
    took = time.perf_counter() - began
    if answer.status_code != 200:
        raise SystemExit(f"{path} answered {answer.status_code}: {answer.text[:500]}")
    return took


def _paginator(times: int) -> dict[str, list[float]]:
    """The peer: COUNT over the filter, then OFFSET, as list pages commonly do."""
    from django.core.paginator import Paginator

    from training.models import Capture

    rows = Capture.objects.filter(line__code=LINE, state__in=Capture.OPEN, reserved=False)
    rows = rows.select_related("line__site", "decision__by", "claimed_by", "station")

    def page(query: Any, number: int) -> Callable[[], Any]:
        return lambda: list(Paginator(query, 60).get_page(number))

    work = {
        "grid": page(rows.order_by("id"), 1),
        "grid_deep": page(rows.order_by("id"), 1500),
        "grid_by_doubt_deep": page(rows.order_by("-doubt", "id"), 1500),
        "grid_decided": page(Capture.objects.filter(line__code=LINE, state="DECIDED").order_by("-id"), 1),
    }
    return {name: [_clock(ask) for _ in range(times)] for name, ask in work.items()}


def _clock(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# ------------------------------------------------------------------------------------------------ people


def _side_by_side(url: str, seconds: float, *, look_s: float) -> dict[str, Any]:
    """Twenty people decide what they are given; nobody may be given what another one holds or has decided.

    `look_s`: how long each looks at a picture, evenly spread from half to one and a half of it.
    """
    import re

    given: list[str] = []
    waits: list[float] = []
    lock, ready = threading.Lock(), threading.Barrier(REVIEWERS + 1)

    def work(number: int) -> None:
        client = sign_in(url, f"reviewer-{number}")
        ready.wait()
        until = time.monotonic() + seconds
        page = client.get(f"/captures/review/?line={LINE}").text
        queue = re.findall(r'<li id="r-([0-9a-f-]+)"', page)
        headers = {"Accept": "application/json", "X-CSRFToken": client.cookies["csrftoken"]}
        while queue and time.monotonic() < until:
            time.sleep(look_s * (0.5 + random.random()))
            capture = queue.pop(0)
            began = time.perf_counter()
            form = {"choice": "OK", "known": ",".join([capture, *queue])}
            answer = client.post(f"/captures/{capture}/decide", data=form, headers=headers)
            took = time.perf_counter() - began
            answer.raise_for_status()
            with lock:
                given.append(capture)
                waits.append(took)
            queue += [row["id"] for row in answer.json()["rail"]]
        client.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(REVIEWERS)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.monotonic()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    double = sum(count - 1 for count in Counter(given).values())
    return {
        "double": double,
        "decisions_per_s": round(len(given) / took, 1),
        "ms": {f"p{share}": _percentile(waits, share) for share in (50, 95, 99)},
    }


def _key_to_next_picture(url: str, moves: int = 40) -> dict[str, float]:
    """From the key to the next picture on screen, as the page itself measures it in Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("LOOPLINE_CHROMIUM") or shutil.which("chromium")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--disable-gpu", *sandbox])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.goto(f"{url}/sign-in/")
        page.fill("[name=username]", "reviewer-1")
        page.fill("[name=password]", PASSWORD)
        page.click("main button")
        page.goto(f"{url}/captures/review/?line={LINE}")
        for _ in range(moves):
            page.wait_for_function("() => document.getElementById('ready').textContent !== ''")
            page.keyboard.press("o")
            page.wait_for_timeout(400)  # a person looks
        times = page.evaluate("performance.getEntriesByName('next-picture').map(entry => entry.duration / 1000)")
        browser.close()
    return {"moves": len(times), "p50": _percentile(times, 50), "p95": _percentile(times, 95)}


if __name__ == "__main__":
    main()
