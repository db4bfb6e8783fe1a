"""Every page of the console with real ids, and what must hold on each of them whatever it shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from console.sample.plant import LINE

# name -> (path, who opens it). Braces are filled from the database.
PAGES = {
    "overview": ("/", "haneul"),
    "captures": ("/captures/", "haneul"),
    "captures-decided": ("/captures/?show=decided", "haneul"),
    "capture": ("/captures/{capture}/", "haneul"),
    "review": (f"/captures/review/?line={LINE}", "seoyeon"),
    "snapshots": ("/snapshots/", "haneul"),
    "snapshot-new": ("/snapshots/new", "haneul"),
    "snapshot": ("/snapshots/{snapshot}/", "haneul"),
    "jobs": ("/jobs/", "haneul"),
    "job-choose": ("/jobs/new", "haneul"),
    "job-new": ("/jobs/new?snapshot={snapshot}", "haneul"),
    "job": ("/jobs/{job}/", "haneul"),
    "versions": ("/versions/", "haneul"),
    "version": ("/versions/{version}/", "haneul"),
    "promotions": ("/promotions/", "jihun"),
    "promotion": ("/promotions/{promotion}/", "jihun"),
    "rollouts": ("/rollouts/", "minsu"),
    "rollout-new": ("/rollouts/new?release={release}", "minsu"),
    "rollout": ("/rollouts/{rollout}/", "minsu"),
    "devices": ("/devices/", "sujin"),
    "device-new": ("/devices/new", "sujin"),
    "device": ("/devices/{device}/", "sujin"),
    "lines": ("/lines/", "sujin"),
    "line": ("/lines/{line}/", "haneul"),
    "class": ("/lines/classes/{class}/", "haneul"),
    "keys": ("/preferences/keys", "haneul"),
    "audit": ("/audit/", "sujin"),
    "not-found": ("/captures/00000000-0000-0000-0000-000000000000/", "yuna"),
    "sign-in": ("/sign-in/", ""),
}
MAIN = ("overview", "review", "captures", "snapshot", "job", "version", "promotion", "rollout", "devices", "audit")

# Latin words that stay in Korean pages: letters of verdicts, names, units, digests, what machines say.
LATIN = re.compile(
    r"\b(OK|NG|RV|sha256|SHA-256|MLflow|AUROC|Loopline|EN|EL|S\d|px|mono|poly|era\d|min|MB|kB|B|s|h|d|v\d+|[A-Z]-\d+"
    r"|Ctrl|Enter|Space|Esc|Asia/Seoul|LoRA|el-1(-s\d)?|batch|seed|epoch|lr|onnx|Python|JPEG|PNG|L|Train|ppm"
    r"|Tab|solar cells)\b",
    re.ASCII,  # a particle may follow at once: Enter나
)
ENGLISH = re.compile(r"[A-Za-z]{3,}")
FITS = (Path(__file__).parent / "fits.js").read_text()
WORDS = (Path(__file__).parent / "words.js").read_text()


def ids() -> dict[str, str]:
    """The newest row of every noun that has a page."""
    from registry.models import DefectClass, Device, Line, Promotion, Release, Rollout, Version
    from training.models import Capture, Job, Snapshot

    newest: dict[str, Any] = {
        "capture": Capture.objects.filter(device__isnull=False, state="DECIDED").order_by("-created_at").first()
        or Capture.objects.latest("created_at"),
        "snapshot": Snapshot.objects.latest("created_at"),
        "job": Job.objects.latest("created_at"),
        "version": Version.objects.latest("created_at"),
        "promotion": Promotion.objects.latest("created_at"),
        "release": Release.objects.filter(state="PUBLISHED").latest("created_at"),
        "rollout": Rollout.objects.latest("created_at"),
        "device": Device.objects.order_by("code").first(),
        "line": Line.objects.get(code=LINE),
        "class": DefectClass.objects.filter(line__code=LINE).first(),
    }
    return {noun: str(row.pk) for noun, row in newest.items()}


def settled(page: Page) -> None:
    """Wait until the pictures that are in sight have arrived."""
    page.wait_for_function(
        "() => Array.from(document.images).every((e) => e.complete || e.getBoundingClientRect().top > innerHeight)"
    )


def troubles(page: Page) -> list[str]:
    """What does not fit on this page: sideways scrolling, text that leaves its box or its sheet, broken pictures."""
    return [str(each) for each in page.evaluate(FITS)]


def untranslated(page: Page) -> list[str]:
    """Headings, buttons and names of fields that still speak English on a Korean page."""
    return sorted({text for text in page.evaluate(WORDS) if ENGLISH.search(LATIN.sub("", text))})
