"""A small plant for tests: one line, people with roles, devices with real keys, versions from real files."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.utils import timezone

from console.models import Membership, User
from edge import protocol
from registry import bases, devices, lines, promotions, versions
from registry.models import Line, Site
from tests.registry import out_files

if TYPE_CHECKING:
    from pathlib import Path

    from registry.models import BaseModel, Device, Release, Version

SET_UP = "command:test"


def person(name: str, line: Line, *roles: str) -> User:
    user = User.objects.create_user(name, password=None)
    for role in roles:
        Membership.objects.create(user=user, line=line, role=role)
    return user


@dataclass
class Agent:
    """A device's side of the signed requests: its key, its nonce, its counter."""

    device: Device
    key: Ed25519PrivateKey
    nonce: str
    counter: int = 0

    def signed(self, **change: Any) -> dict[str, Any]:
        """Arguments of `devices.authenticate` for the next request; `change` forges some of them after signing."""
        self.counter += 1
        method, path, digest = "POST", protocol.CHECK_IN, protocol.EMPTY_DIGEST
        text = protocol.signing_text(method, path, str(self.device.pk), self.nonce, self.counter, digest)
        return {
            "nonce": self.nonce,
            "counter": self.counter,
            "digest": digest,
            "signature": base64.b64encode(self.key.sign(text)).decode(),
            "method": method,
            "path": path,
        } | change


@dataclass
class Plant:
    """Everything a test of the record needs; `folder` takes the files that it makes."""

    folder: Path
    line: Line
    base: BaseModel
    engineer: User
    trainer: User
    approver: User
    second_approver: User
    operator: User
    administrator: User
    made: list[Version] = field(default_factory=list)

    @property
    def base_folder(self) -> Path:
        return self.folder / "base"

    def agent(self, code: str) -> Agent:
        """A device, created and enrolled with a real key."""
        station = lines.add_station(self.line, code="s1", name="Station 1", by=SET_UP)
        device, token = devices.create(self.line, station, code=code, by=self.administrator)
        key = Ed25519PrivateKey.generate()
        public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
        device, nonce = devices.enrol(
            token=token, public_key=public, hardware={"cores": 4}, agent_version="0.1.0", now=timezone.now()
        )
        return Agent(device, key, nonce)

    def version(self, seed: int = 1, *, verified: float | None = 1e-5, **more: Any) -> Version:
        """A version registered from files that were really made."""
        job = uuid.uuid4()
        out = self.folder / f"out-{job}"
        champion = versions.champion(self.line)
        out_files.write_out(out, self.base_folder, line=self.line.code, job=str(job), seed=seed, **more)
        version = versions.register(
            line=self.line,
            job_id=job,
            job_number=len(self.made) + 1,
            snapshot_id=uuid.uuid4(),
            snapshot_number=7,
            snapshot_digest="5" * 64,
            base=self.base,
            parent=champion,
            champion=champion,
            out_dir=out,
            submitted_by=self.trainer,
            worker="worker:test",
            config={"seed": 0, "lora": {"rank": 4}},
            files=versions.store_files(out),
            verified=None if verified is None else {"max_abs": verified},
        )
        self.made.append(version)
        return version

    def release(self, seed: int = 1, **more: Any) -> Release:
        """A version, asked for and approved by two people."""
        promotion = promotions.request(self.version(seed, **more), reason="better on poly", by=self.engineer)
        return promotions.approve(
            promotion, reason="dossier read", by=self.approver, seen_digest=promotion.manifest_digest
        )


def check_in_message(**running: Any) -> dict[str, Any]:
    """A protocol.CheckIn as an idle device sends it."""
    return {
        "running": {"release_digest": None, "release_number": None, "base_digest": None} | running,
        "counts": {"inspected": 10, "ok": 8, "ng": 1, "review": 1, "flagged": 1},
        "outbox": {"waiting": 0, "bytes": 0},
        "free_bytes": 10**9,
        "agent_version": "0.1.0",
        "taken_at": timezone.now().isoformat(),
    }


def report_message(deployment: str, sequence: int, state: str, **more: Any) -> dict[str, Any]:
    """A protocol.Report."""
    return {
        "deployment": deployment,
        "sequence": sequence,
        "state": state,
        "code": "",
        "params": {},
        "loaded_digest": None,
        "delivered_bytes": 0,
        "base_bytes": 0,
        "max_abs": None,
    } | more


def make(folder: Path) -> Plant:
    site = Site.objects.create(code="site", name="Site")
    line = lines.create_line(site, code="el-1", name="EL 1", escape_limit=0.1, by=SET_UP)
    lines.add_class(line, code="crack", name_ko="균열", name_en="crack", by=SET_UP)
    out_files.write_base(folder / "base")
    return Plant(
        folder=folder,
        line=line,
        base=bases.import_bundle(folder / "base", by=SET_UP),
        engineer=person("engineer", line, "engineer"),
        trainer=person("trainer", line, "engineer", "approver"),
        approver=person("approver", line, "approver"),
        second_approver=person("approver-2", line, "approver"),
        operator=person("operator", line, "operator"),
        administrator=person("administrator", line, "administrator"),
    )
