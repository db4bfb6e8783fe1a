"""The sample plant's story: `first_champion` before people take over, and the whole loop, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings

from console.sample import cells as sample_cells
from console.sample import plant, turns
from console.sample.report import SETS, Report
from registry import devices as registry_devices
from registry.models import Deployment, Device, Release, Version
from training.models import Capture

if TYPE_CHECKING:
    from console.sample.cells import Size
    from console.supervisor import Supervisor

AGENT_ENV = {"EDGE_DIE_WITH_PARENT": "1"}
FAST_RATE = 12.0  # pictures per second and camera in `loop`
DEMO_RATE = 0.4  # in `demo`: a new picture every few seconds, as people can follow
FIRST_IN_DEMO = 24  # pictures that the operator asks of each device when the new product comes
FIRST_IN_LOOP = 140


def first_champion(report: Report) -> Release:
    """The plant's present product: decided pictures of mono cells become the first champion on every device.

    Goes on where a former run was stopped: each step is played only when its result is not there yet.
    """
    line = plant.line()
    engineer, trainer = plant.person("haneul"), plant.person("yuna")
    approver, operator = plant.person("jihun"), plant.person("minsu")
    release = Release.objects.filter(line=line).order_by("number").first()
    version = release.version if release else Version.objects.filter(line=line).order_by("number").first()
    if version is None:
        with report.step("freeze mono"):
            snapshot = line.snapshots.order_by("created_at").first() or turns.freeze(
                line, products=["mono"], by=engineer
            )
        with report.step("train champion"):
            version = turns.train(snapshot, mode="fresh", by=trainer, say=report.say)
    if release is None:
        with report.step("promote champion"):
            reason = "First model of the line, trained on mono cells"
            release = turns.promote(version, reason=reason, requested_by=trainer, approved_by=approver)
    if not Deployment.objects.filter(rollout__release__line=line, state=Deployment.State.COMMITTED).exists():
        with report.step("roll out champion"):
            turns.roll_out(release, by=operator)
    return release


def demo(supervisor: Supervisor, report: Report, size: Size, base: Path | None = None) -> None:
    """The sample plant as `demo` shows it: a champion on every device, and a new product coming down the line."""
    say = supervisor.say
    plant.begin()
    turns.import_base(say, base)
    line = plant.make(say, size)
    devices = turns.enrol_devices(line, server=supervisor.url, by=plant.person("sujin"), say=say)
    for device in devices:
        supervisor.add(f"agent-{device.code}", turns.agent_command(device, supervisor.url), env=AGENT_ENV)
    first_champion(report)
    _ask_for_first_pictures(devices, FIRST_IN_DEMO)
    feeds = plant.feeds(size)
    whole = size is sample_cells.WHOLE
    rate = DEMO_RATE if whole else FAST_RATE  # a slice arrives at once, and ends
    for device in devices:
        sample_cells.write_feed(feeds[device.station.code], feed_file(device))
        command = turns.camera_command(device, feed_file(device), rate, loop=whole)
        supervisor.add(f"camera-{device.code}", command, once=not whole)


def whole_loop(supervisor: Supervisor, report: Report, size: Size, base: Path | None = None) -> None:
    """Every step of the loop, twice where it takes two. Raises StepFailed at the first that did not happen."""
    say = supervisor.say
    with report.step("import base model"):
        turns.import_base(say, base)
    with report.step("import earlier production"):
        line = plant.make(say, size)
    with report.step("enrol devices"):
        devices = turns.enrol_devices(line, server=supervisor.url, by=plant.person("sujin"), say=say)
        for device in devices:
            supervisor.add(f"agent-{device.code}", turns.agent_command(device, supervisor.url), env=AGENT_ENV)
    first = first_champion(report)
    with report.step("poly cells arrive"):
        _arrive(supervisor, devices, plant.feeds(size))
    reviewers = [plant.person("haneul"), plant.person("seoyeon")]
    with report.step("decide what was flagged"):
        flagged = turns.open_captures(line)
        decided, skipped = turns.decide_open(line, by=reviewers, truth=plant.truth())
    report.figures |= {"flagged": flagged, "decided": decided, "skipped": skipped}
    with report.step("freeze mono and poly"):
        snapshot = turns.freeze(line, products=["mono", "poly"], by=reviewers[0])
    with report.step("train candidate"):
        candidate = turns.train(snapshot, mode="continue", by=reviewers[0], say=say)
    with report.step("promote candidate"):
        reason = "Poly cells arrived: the champion doubts them and overkills"
        release = turns.promote(candidate, reason=reason, requested_by=reviewers[1], approved_by=plant.person("jihun"))
    with report.step("roll out candidate"):
        turns.roll_out(release, by=plant.person("minsu"))
    _measure(report, candidate, release, devices)
    if first.manifest_digest == release.manifest_digest:
        raise turns.StepFailed("the second release has the bytes of the first")


def _arrive(supervisor: Supervisor, devices: list[Device], feeds: dict[str, list[sample_cells.Cell]]) -> None:
    """Cameras show the new product to the devices, until all is judged and everything flagged is here."""
    _ask_for_first_pictures(devices, FIRST_IN_LOOP)
    before = {device.pk: device.counts.get("inspected", 0) for device in Device.objects.all()}
    for device in devices:
        manifest = feed_file(device)
        sample_cells.write_feed(feeds[device.station.code], manifest)
        supervisor.add(f"camera-{device.code}", turns.camera_command(device, manifest, FAST_RATE), once=True)

    def all_judged() -> bool:
        rows = Device.objects.filter(pk__in=[device.pk for device in devices])
        return all(
            row.counts.get("inspected", 0) - before[row.pk] >= len(feeds[row.station.code]) and not row.outbox_waiting
            for row in rows.select_related("station")
        )

    turns.wait_for(all_judged, what="devices judge the new product", within_s=300)
    if not Capture.objects.filter(device__in=devices).exists():
        raise turns.StepFailed("the devices flagged nothing")


def _ask_for_first_pictures(devices: list[Device], count: int) -> None:
    """A new product: the operator asks every device for its first pictures, whatever the model thinks of them.

    A champion that has never seen poly cells may reject all of them without a doubt, and then flags none.
    """
    if Capture.objects.filter(device__in=devices).exists():
        return
    for device in devices:
        device.refresh_from_db()
        registry_devices.ask_for_pictures(device, count=count, by=plant.person("minsu"))

    def told() -> bool:
        return not Device.objects.filter(pk__in=[device.pk for device in devices], flag_next__gt=0).exists()

    turns.wait_for(told, what="devices hear that their first pictures are wanted", within_s=120)


def feed_file(device: Device) -> Path:
    return Path(settings.STATE) / "feeds" / f"{device.code}.csv"


def _measure(report: Report, candidate: Version, release: Release, devices: list[Device]) -> None:
    """The figures of the report: from the candidate's evidence and from what the devices themselves reported."""
    result: dict[str, Any] = candidate.evidence
    deployments = turns.loaded(release)
    report.figures |= {
        "pictures_per_s": round(result["pictures_per_s"], 1),
        "trainable_share": round(result["trainable_share"], 4),
        "full_bytes": candidate.manifest["full_bytes"],
        "delivered_bytes": max(deployment.delivered_bytes for deployment in deployments.values()),
        **{name: _both(result["sets"][name], matched=name == "era2") for name in SETS},
        "devices": [
            {
                "id": device.code,
                "state": deployments[device.code].state,
                "digest": Device.objects.get(pk=device.pk).running_digest,
            }
            for device in devices
        ],
        "release_digest": release.manifest_digest,
    }
    for row in report.figures["devices"]:
        if row["state"] != "COMMITTED" or row["digest"] != release.manifest_digest:
            raise turns.StepFailed(f"device {row['id']} is {row['state']} and reports {row['digest'][:16]} as loaded")


def _both(rates: dict[str, Any], *, matched: bool) -> dict[str, Any]:
    """Champion and candidate on one set, each at its live cut. `matched`: the champion at the highest cut that lets no
    more escape than the candidate does; its live cut, chosen on another product, is shown beside it."""
    rows = {"champion": rates["champion_matched" if matched else "champion"], "candidate": rates["candidate"]}
    if matched:
        rows["champion_live"] = rates["champion"]
    return {who: {noun: row[noun] for noun in ("escapes", "overkills")} for who, row in rows.items()}
