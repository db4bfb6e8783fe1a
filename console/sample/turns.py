"""One turn of the loop, step by step, with real people of the sample plant: what `demo` plays once to get a first
champion, and `loop` plays twice and measures."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings

from console.models import User
from console.sample import plant
from registry import bases, devices, promotions, rollouts
from registry.models import BaseModel, Deployment, Device, Line, Promotion, Release, Rollout, Station, Version
from training import captures, jobs, queue, snapshots
from training.models import Capture, Job, Snapshot

Say = Callable[[str], None]
POLL_S = 0.25
TELL_EVERY_S = 15.0


class StepFailed(RuntimeError):
    """A step of the loop did not happen; the message says which and why."""


def wait_for(done: Callable[[], bool], *, what: str, within_s: float) -> None:
    """Wait until `done()`; raises StepFailed when it takes too long."""
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            raise StepFailed(f"{what}: nothing after {within_s:.0f} s")
        time.sleep(POLL_S)


def import_base(say: Say, bundle: Path | None = None) -> BaseModel:
    """The base model, from the weights in the pip package or from a bundle that was exported before; imported once."""
    found = BaseModel.objects.first()
    if found:
        return found
    if bundle is not None:
        return bases.import_bundle(bundle, by="set-up")
    say("exporting the base model")
    with tempfile.TemporaryDirectory(prefix="loopline-base-") as folder:
        command = [sys.executable, "-m", "training.recipe", "import-base", folder, "--no-watch"]
        done = subprocess.run(command, cwd=settings.BASE_DIR, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StepFailed(f"import of the base model: {done.stdout[-500:]} {done.stderr[-1500:]}")
        return bases.import_bundle(Path(folder), by="set-up")


def freeze(line: Line, *, products: Sequence[str], by: User) -> Snapshot:
    return snapshots.freeze(line, {"products": list(products), "val_share": 0.25, "test_share": 0.0, "seed": 0}, by=by)


def train(snapshot: Snapshot, *, mode: str, by: User, say: Say, within_s: float = 900) -> Version:
    """Ask for a training, or take the one that was stopped, and wait for the worker, saying how far it is.

    Raises StepFailed with the job's own sentence.
    """
    asked = Job.objects.filter(snapshot=snapshot).exclude(state__in=Job.ENDED).first()
    job = asked or jobs.submit(snapshot, mode=mode, config_overrides={}, by=by)

    said = time.monotonic()

    def ended() -> bool:
        nonlocal said
        job.refresh_from_db()
        if time.monotonic() - said > TELL_EVERY_S:
            said = time.monotonic()
            say(f"    {job}: {how_far(job.progress)}")
        return job.state in Job.ENDED

    wait_for(ended, what=f"job {job}", within_s=within_s)
    if job.state != Job.State.SUCCEEDED or job.version is None:
        raise StepFailed(f"job {job} is {job.state}: {job.failure}")
    return job.version


def how_far(progress: dict[str, Any]) -> str:
    """One line of a job's progress: its phase and how much of it is done."""
    return f"{progress.get('phase') or 'waits for a worker'} {progress.get('done', 0)} of {progress.get('of', 0)}"


def promote(version: Version, *, reason: str, requested_by: User, approved_by: User) -> Release:
    asked = Promotion.objects.filter(version=version, state=Promotion.State.REQUESTED).first()
    promotion = asked or promotions.request(version, reason=reason, by=requested_by)
    return promotions.approve(
        promotion, reason="compared on the golden set", by=approved_by, seen_digest=version.manifest_digest
    )


def roll_out(release: Release, *, by: User, within_s: float = 180) -> Rollout:
    """Start a rollout and wait until every device has committed by its own report."""
    running = Rollout.objects.filter(release=release, state=Rollout.State.RUNNING).first()
    rollout = running or rollouts.start(release, by=by, canary=1)

    def ended() -> bool:
        rollout.refresh_from_db()
        return rollout.state not in (Rollout.State.RUNNING, Rollout.State.SCHEDULED)

    wait_for(ended, what=f"rollout {rollout}", within_s=within_s)
    if rollout.state != Rollout.State.COMPLETED:
        trouble = [f"{d.device.code} {d.state} {d.code}" for d in rollout.deployments.select_related("device")]
        raise StepFailed(f"rollout {rollout} is {rollout.state}: {rollout.pause_sentence} {trouble}")
    return rollout


# ------------------------------------------------------------------------------------------------ devices


def device_code(station: Station) -> str:
    return f"{station.line.code}-{station.code}".lower()


def enrol_devices(line: Line, *, server: str, by: User, say: Say) -> list[Device]:
    """One device per station; each enrols itself with a one-time token, as a real one does."""
    made = []
    for station in line.stations.order_by("code"):
        device = Device.objects.filter(code=device_code(station)).first()
        home = Path(plant.state_folder(device_code(station)))
        if device is None or not device.public_key:
            if device is None:
                device, token = devices.create(line, station, code=device_code(station), by=by)
            else:
                token = devices.new_token(device, by=by)
            say(f"enrolling device {device}")
            command = [sys.executable, "-m", "edge", "enrol", "--home", str(home), "--server", server, "--token", token]
            done = subprocess.run(command, cwd=settings.BASE_DIR, capture_output=True, text=True, check=False)
            if done.returncode:
                raise StepFailed(f"enrolment of {device}: {done.stdout[-500:]} {done.stderr[-1000:]}")
            device.refresh_from_db()
        made.append(device)
    return made


def agent_command(device: Device, server: str) -> list[str]:
    return [sys.executable, "-m", "edge", "run", "--home", plant.state_folder(device.code), "--server", server]


def camera_command(device: Device, manifest: Path, rate: float, *, loop: bool = False) -> list[str]:
    """The simulated camera: puts the pictures of a manifest into the device's inbox at `rate` a second.

    `loop`: starts again at the end, as a line does not stop either.
    """
    where = ["--home", plant.state_folder(device.code), "--manifest", str(manifest), "--rate", str(rate)]
    return [sys.executable, "-m", "edge", "simulate", *where, *(["--loop"] if loop else [])]


def loaded(release: Release) -> dict[str, Deployment]:
    """Each device's deployment of a release, by device code."""
    found = Deployment.objects.filter(rollout__release=release).select_related("device")
    return {deployment.device.code: deployment for deployment in found}


# ------------------------------------------------------------------------------------------------ people


def decide_open(line: Line, *, by: Sequence[User], truth: dict[str, int]) -> tuple[int, int]:
    """Reviewers work the queue until nothing is open that they can decide: (decided, skipped).

    They say what the labellers of the data set said; what those argued about is skipped, as a person would.
    """
    decided = skipped = 0
    for turn in range(10_000):
        reviewer = by[turn % len(by)]
        claimed = queue.claim(line, by=reviewer, count=20)
        if not claimed:
            if not any(queue.claim(line, by=other, count=1) for other in by if other != reviewer):
                break
            continue
        for capture in claimed:
            label = truth.get(capture.serial)
            if label is None:
                captures.skip(capture, by=reviewer)
                skipped += 1
            else:
                captures.decide(capture, verdict="NG" if label else "OK", classes=[label] if label else [], by=reviewer)
                decided += 1
    return decided, skipped


def open_captures(line: Line) -> int:
    return Capture.objects.filter(line=line, state__in=Capture.OPEN).count()
