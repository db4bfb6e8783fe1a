"""The addresses: one list per noun, names are `<noun>-<verb>`. Every view declares its action (console.http)."""

from __future__ import annotations

from typing import Any

from django.urls import include, path

from console import device_api
from console.http import public
from console.views import (
    audit,
    captures,
    devices,
    golden,
    jobs,
    lines,
    live,
    overview,
    promotions,
    reviewers,
    rollouts,
    session,
    similar,
    snapshots,
    transfers,
    versions,
)

overview_urls: list[Any] = [
    path("", overview.show, name="overview"),
    path("overview/stops", overview.stops, name="overview-stops"),
]
session_urls: list[Any] = [
    path("sign-in/", session.sign_in, name="session-sign-in"),
    path("sign-out/", session.sign_out, name="session-sign-out"),
    path("preferences/", session.preferences, name="session-preferences"),
    path("preferences/keys", session.own_keys, name="session-keys"),
]
live_urls: list[Any] = [path("versions", live.versions, name="live-versions")]
capture_urls: list[Any] = [
    path("", captures.index, name="capture-list"),
    path("review/", captures.review, name="capture-review"),
    path("undo", captures.undo, name="capture-undo"),
    path("together", captures.decide_together, name="capture-decide-together"),
    path("together/undo", captures.undo_in_grid, name="capture-undo-together"),
    path("views", captures.keep_view, name="capture-views"),
    path("<uuid:pk>/", captures.detail, name="capture-detail"),
    path("<uuid:pk>/work", captures.work, name="capture-work"),
    path("<uuid:pk>/decide", captures.decide, name="capture-decide"),
    path("<uuid:pk>/draft", captures.draft, name="capture-draft"),
    path("<uuid:pk>/skip", captures.skip, name="capture-skip"),
    path("<uuid:pk>/second-look", captures.second_look, name="capture-second-look"),
    path("<uuid:pk>/alike", similar.alike, name="capture-alike"),
    path("<uuid:pk>/free", captures.free, name="capture-free"),
    path("<uuid:pk>/ask", captures.ask, name="capture-ask"),
    path("<uuid:pk>/retract", captures.retract, name="capture-retract"),
    path("<uuid:pk>/example", captures.example, name="capture-example"),
    path("<uuid:pk>/picture", captures.picture, name="capture-picture"),
    path("<uuid:pk>/tile/<int:level>/<int:column>/<int:row>", captures.tile, name="capture-tile"),
    path("<uuid:pk>/levels", captures.levels, name="capture-levels"),
    path("<uuid:pk>/original", captures.original, name="capture-original"),
]
reviewer_urls: list[Any] = [
    path("", reviewers.index, name="reviewer-list"),
    path("escapes/", reviewers.escapes, name="reviewer-escapes"),
    path("policy/<uuid:pk>/", reviewers.policy, name="reviewer-policy"),
]
snapshot_urls: list[Any] = [
    path("", snapshots.index, name="snapshot-list"),
    path("new", snapshots.new, name="snapshot-new"),
    path("<uuid:pk>/", snapshots.detail, name="snapshot-detail"),
    path("<uuid:pk>/changed", snapshots.changed, name="snapshot-changed"),
    path("diff", snapshots.compare, name="snapshot-compare"),
    path("<uuid:pk>/diff/<uuid:other>", snapshots.diff, name="snapshot-diff"),
]
golden_urls: list[Any] = [
    path("", golden.index, name="golden-list"),
    path("new", golden.new, name="golden-new"),
    path("<uuid:pk>/", golden.detail, name="golden-detail"),
    path("<uuid:pk>/edition", golden.edition, name="golden-edition"),
    path("<uuid:pk>/retire", golden.retire, name="golden-retire"),
    path("<uuid:pk>/extend", golden.extend, name="golden-extend"),
    path("<uuid:pk>/owner", golden.hand_over, name="golden-owner"),
]
transfer_urls: list[Any] = [
    path("", transfers.index, name="transfer-list"),
    path("new", transfers.new, name="transfer-new"),
    path("upload", transfers.upload, name="transfer-upload"),
    path("<uuid:pk>/", transfers.detail, name="transfer-detail"),
    path("<uuid:pk>/confirm", transfers.confirm, name="transfer-confirm"),
    path("<uuid:pk>/format", transfers.look_as, name="transfer-format"),
    path("<uuid:pk>/cancel", transfers.cancel, name="transfer-cancel"),
    path("<uuid:pk>/download", transfers.download, name="transfer-download"),
]
job_urls: list[Any] = [
    path("", jobs.index, name="job-list"),
    path("new", jobs.new, name="job-new"),
    path("<uuid:pk>/", jobs.detail, name="job-detail"),
    path("<uuid:pk>/points", jobs.points, name="job-points"),
    path("<uuid:pk>/log", jobs.log, name="job-log"),
    path("<uuid:pk>/cancel", jobs.cancel, name="job-cancel"),
    path("<uuid:pk>/again", jobs.again, name="job-again"),
]
version_urls: list[Any] = [
    path("", versions.index, name="version-list"),
    path("<uuid:pk>/", versions.detail, name="version-detail"),
    path("<uuid:pk>/changed", versions.changed, name="version-changed"),
    path("<uuid:pk>/promote", versions.promote, name="version-promote"),
]
promotion_urls: list[Any] = [
    path("", promotions.index, name="promotion-list"),
    path("<uuid:pk>/", promotions.detail, name="promotion-detail"),
    path("<uuid:pk>/answer", promotions.answer, name="promotion-answer"),
    path("<uuid:pk>/withdraw", promotions.withdraw, name="promotion-withdraw"),
]
rollout_urls: list[Any] = [
    path("", rollouts.index, name="rollout-list"),
    path("new", rollouts.new, name="rollout-new"),
    path("<uuid:pk>/", rollouts.detail, name="rollout-detail"),
    path("<uuid:pk>/pause", rollouts.pause, name="rollout-pause"),
    path("<uuid:pk>/resume", rollouts.resume, name="rollout-resume"),
    path("<uuid:pk>/stop", rollouts.stop, name="rollout-stop"),
]
device_urls: list[Any] = [
    path("", devices.index, name="device-list"),
    path("new", devices.new, name="device-new"),
    path("<uuid:pk>/", devices.detail, name="device-detail"),
    path("<uuid:pk>/token", devices.token, name="device-token"),
    path("<uuid:pk>/quarantine", devices.quarantine, name="device-quarantine"),
    path("<uuid:pk>/activate", devices.activate, name="device-activate"),
    path("<uuid:pk>/retire", devices.retire, name="device-retire"),
    path("<uuid:pk>/flag", devices.flag, name="device-flag"),
]
line_urls: list[Any] = [
    path("", lines.index, name="line-list"),
    path("<uuid:pk>/", lines.detail, name="line-detail"),
    path("<uuid:pk>/settings", lines.settings, name="line-settings"),
    path("<uuid:pk>/classes/new", lines.new_class, name="line-class-new"),
    path("classes/<uuid:pk>/", lines.show_class, name="line-class"),
    path("classes/<uuid:pk>/change", lines.change_class, name="line-class-change"),
    path("classes/<uuid:pk>/retire", lines.retire_class, name="line-class-retire"),
    path("classes/<uuid:pk>/restore", lines.restore_class, name="line-class-restore"),
    path("classes/<uuid:pk>/merge", lines.merge_class, name="line-class-merge"),
    path("merges/<uuid:pk>/undo", lines.undo_merge, name="line-merge-undo"),
]
audit_urls: list[Any] = [path("", audit.index, name="audit-list")]

for pattern in device_api.urlpatterns:
    public("devices sign each request")(pattern.callback)

urlpatterns: list[Any] = [
    path("api/device/v1/", include(device_api.urlpatterns)),
    *overview_urls,
    *session_urls,
    path("live/", include(live_urls)),
    path("captures/", include(capture_urls)),
    path("reviewers/", include(reviewer_urls)),
    path("snapshots/golden/", include(golden_urls)),
    path("snapshots/", include(snapshot_urls)),
    path("transfers/", include(transfer_urls)),
    path("jobs/", include(job_urls)),
    path("versions/", include(version_urls)),
    path("promotions/", include(promotion_urls)),
    path("rollouts/", include(rollout_urls)),
    path("devices/", include(device_urls)),
    path("lines/", include(line_urls)),
    path("audit/", include(audit_urls)),
]

handler403 = session.forbidden
handler404 = session.not_found
handler500 = session.crashed
