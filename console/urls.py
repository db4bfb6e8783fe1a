"""The addresses: one list per noun, names are `<noun>-<verb>`. Every view declares its action (console.http)."""

from __future__ import annotations

from typing import Any

from django.urls import include, path

from console import device_api
from console.http import public
from console.views import live, overview, session

overview_urls: list[Any] = [
    path("", overview.show, name="overview"),
    path("overview/stops", overview.stops, name="overview-stops"),
]
session_urls: list[Any] = [
    path("sign-in/", session.sign_in, name="session-sign-in"),
    path("sign-out/", session.sign_out, name="session-sign-out"),
    path("preferences/", session.preferences, name="session-preferences"),
]
live_urls: list[Any] = [path("versions", live.versions, name="live-versions")]
capture_urls: list[Any] = []
snapshot_urls: list[Any] = []
job_urls: list[Any] = []
version_urls: list[Any] = []
promotion_urls: list[Any] = []
rollout_urls: list[Any] = []
device_urls: list[Any] = []
audit_urls: list[Any] = []

for pattern in device_api.urlpatterns:
    public("devices sign each request")(pattern.callback)

urlpatterns: list[Any] = [
    path("api/device/v1/", include(device_api.urlpatterns)),
    *overview_urls,
    *session_urls,
    path("live/", include(live_urls)),
    path("captures/", include(capture_urls)),
    path("snapshots/", include(snapshot_urls)),
    path("jobs/", include(job_urls)),
    path("versions/", include(version_urls)),
    path("promotions/", include(promotion_urls)),
    path("rollouts/", include(rollout_urls)),
    path("devices/", include(device_urls)),
    path("audit/", include(audit_urls)),
]

handler403 = session.forbidden
handler404 = session.not_found
handler500 = session.crashed
