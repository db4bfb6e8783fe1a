"""Asking the champion about one picture: the answer a device that runs it would give, computed by a worker."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.models import F
from django.utils.translation import gettext_noop

from registry import bases, blobs, events, versions, wakeups
from registry.clock import DatabaseNow
from registry.lifecycle import Refused
from training import blind, failures, jobdir, policies, processes
from training.models import Explanation

if TYPE_CHECKING:
    from uuid import UUID

    from training.models import Capture
    from training.policies import Person

log = logging.getLogger(__name__)

TASK = "training.tasks.explain"
MOST_TRIES = 3
SECONDS = 120.0
NO_CHAMPION = gettext_noop("Line %(line)s has no champion yet that could be asked.")
DECIDE_FIRST = gettext_noop("Decide first: this picture is judged without the machine's answer.")
NOT_COMPUTED = gettext_noop("The worker could not compute it. What it wrote is in its log.")


def ask(capture: Capture, *, by: Person) -> Explanation:
    """Ask the line's champion about this picture; asked before, its answer stands. Raises Refused without one."""
    policies.check_can_review(capture.line, by=by)
    if blind.hidden(capture, by=by):
        raise Refused(DECIDE_FIRST)
    champion = versions.champion(capture.line)
    if champion is None:
        raise Refused(NO_CHAMPION, line=capture.line.name)
    row, made = Explanation.objects.get_or_create(capture=capture, version=champion, defaults={"by": by})
    if not made and row.failure:
        Explanation.objects.filter(pk=row.pk).update(failure={}, done_at=None, tries=0)
    wakeups.wake(TASK, explanation_id=str(row.pk))
    return row


def newest(capture: Capture) -> Explanation | None:
    """What was asked last about this picture."""
    rows = Explanation.objects.filter(capture=capture).select_related("version")
    return rows.order_by("-created_at").first()


def recover() -> None:
    """Wake what was forgotten. Many may run at once."""
    wakeups.wake_forgotten(Explanation.objects.filter(done_at=None), _wake)


def _wake(row: Explanation) -> None:
    wakeups.wake(TASK, explanation_id=str(row.pk))


def compute(explanation_id: UUID | str) -> None:
    """Compute the answer if it is still wanted, in a process of the recipe, and write it down."""
    waiting = Explanation.objects.filter(pk=explanation_id, done_at=None)
    if not waiting.filter(tries__lt=MOST_TRIES).update(tries=F("tries") + 1, woken_at=DatabaseNow()):
        waiting.update(done_at=DatabaseNow(), failure={"text": NOT_COMPUTED, "params": {}})
        return
    row = waiting.select_related("capture__line", "version__base").get()
    folder = Path(tempfile.mkdtemp(prefix="explain-", dir=_root()))
    try:
        fields: dict[str, Any] = {"answer": _answer(row, folder), "failure": {}}
    except (blobs.Missing, blobs.Damaged, _Failed) as error:
        log.warning("explanation %s: %s", row.pk, error)
        told = error.failure if isinstance(error, _Failed) else {"text": NOT_COMPUTED, "params": {}}
        fields = {"failure": told}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    waiting.update(done_at=DatabaseNow(), **fields)
    events.announce(*row.capture.topics())


class _Failed(Exception):
    """The recipe said no; `failure` is the sentence."""

    def __init__(self, failure: dict[str, Any]) -> None:
        super().__init__(failure["text"])
        self.failure = failure


def _root() -> Path:
    root = Path(settings.JOBS_ROOT)
    root.mkdir(parents=True, exist_ok=True)
    return root


def _answer(row: Explanation, folder: Path) -> dict[str, Any]:
    bases.unpack(row.version.base, folder / "base")
    versions.unpack(row.version, folder / "version")
    bases.copy_out(row.capture.digest, folder / "picture")
    config = {"picture": str(folder / "picture"), "id": str(row.capture.pk), "threads": jobdir.threads()}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    env = processes.environment(f"explain-{row.pk}", jobdir.threads())
    log_file = folder / "log.txt"
    argv = [*settings.RECIPE_COMMAND, "explain", str(folder)]
    process, group = processes.start(argv, cwd=settings.BASE_DIR, log=log_file, env=env)
    deadline = threading.Timer(SECONDS, processes.end, [group])
    deadline.start()
    try:
        assert process.stdout is not None
        said = [json.loads(line) for line in process.stdout.read().splitlines()]
        status = process.wait()
    finally:
        deadline.cancel()
        processes.end(group, process=process)
        processes.close(process)
    if status != 0:
        log.warning("explanation %s ended with %s: %s", row.pk, status, log_file.read_text(errors="replace")[-2000:])
        fails = [failures.sentence(event["code"], event["params"]) for event in said if event["event"] == "fail"]
        raise _Failed(fails[0] if fails else {"text": NOT_COMPUTED, "params": {}})
    return dict(json.loads((folder / "explained.json").read_text("utf-8")))
