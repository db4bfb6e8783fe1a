"""Jobs: asking for one, its curve, cancelling it, asking again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import reverse

from training.models import Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.console.world import World

HTMX = {"HX-Request": "true"}


def asked(snapshot: object, **change: object) -> dict[str, object]:
    fields = {"mode": "fresh", "epochs": 12, "lr": 0.002, "batch": 32, "rank": 8, "replay": 0.3, "seed": 0}
    return {"snapshot": snapshot, **fields, **change}


def test_a_job_is_submitted_with_only_what_differs_from_the_defaults(
    world: World, signed_in: Callable[..., Client]
) -> None:
    snapshot = world.snapshot()
    answer = signed_in(world.plant.engineer).post(reverse("job-new"), asked(snapshot.pk, epochs=3))
    job = Job.objects.get()
    assert answer["Location"] == reverse("job-detail", args=[job.pk])
    assert (job.config["train"]["epochs"], job.config["train"]["batch"], job.parent) == (3, 32, None)


def test_a_job_continues_the_champion_unless_asked_otherwise(world: World, signed_in: Callable[..., Client]) -> None:
    release, snapshot = world.release(), world.snapshot()
    client = signed_in(world.plant.engineer)
    page = client.get(reverse("job-new"), {"snapshot": snapshot.pk}).content.decode()
    assert page.index('value="continue"') < page.index('value="fresh"')
    client.post(reverse("job-new"), asked(snapshot.pk, mode="continue"))
    assert Job.objects.get().parent == release.version


def test_without_a_champion_nothing_can_be_continued(world: World, signed_in: Callable[..., Client]) -> None:
    answer = signed_in(world.plant.engineer).post(reverse("job-new"), asked(world.snapshot().pk, mode="continue"))
    assert answer.status_code == 422
    assert not Job.objects.exists()


def test_wrong_figures_come_back_with_what_is_wrong(world: World, signed_in: Callable[..., Client]) -> None:
    answer = signed_in(world.plant.engineer).post(reverse("job-new"), asked(world.snapshot().pk, batch=1))
    assert answer.status_code == 422
    assert 'class="err"' in answer.content.decode()


def test_first_a_snapshot_is_chosen(world: World, signed_in: Callable[..., Client]) -> None:
    snapshot = world.snapshot()
    page = signed_in(world.plant.engineer).get(reverse("job-new")).content.decode()
    assert f"?snapshot={snapshot.pk}" in page


def test_a_viewer_may_not_train_and_reads_why(world: World, signed_in: Callable[..., Client]) -> None:
    client = signed_in(world.viewer)
    snapshot = world.snapshot()
    assert client.get(reverse("job-new"), {"snapshot": snapshot.pk}).status_code == 403
    assert client.post(reverse("job-new"), asked(snapshot.pk)).status_code == 403
    page = client.get(reverse("job-list")).content.decode()
    assert 'aria-disabled="true"' in page
    assert "Your roles on this line do not include this" in page


def test_a_snapshot_of_another_line_is_not_found(world: World, signed_in: Callable[..., Client]) -> None:
    answer = signed_in(world.stranger).post(reverse("job-new"), asked(world.snapshot().pk))
    assert answer.status_code == 404


def test_the_curve_comes_whole_and_then_what_is_new(world: World, signed_in: Callable[..., Client]) -> None:
    job = world.running(epochs=2)
    client = signed_in(world.viewer)
    url = reverse("job-points", args=[job.pk])
    whole = client.get(url, {"after": 0}).json()
    assert len(whole["points"]) == job.points.count() == 22
    assert (whole["steps"], whole["epochs"], whole["limit"]) == (120, 12, 0.1)
    assert whole["points"][10][5:] == [1.2, 5, 20, 7, 40]
    assert [point[0] for point in client.get(url, {"after": 20}).json()["points"]] == [21, 22]
    assert client.get(url, {"after": "nonsense"}).json()["points"] == whole["points"]
    assert signed_in(world.stranger).get(url).status_code == 404


def test_a_waiting_job_is_cancelled_by_a_plain_form(world: World, signed_in: Callable[..., Client]) -> None:
    job = world.job()
    answer = signed_in(world.plant.engineer).post(reverse("job-cancel", args=[job.pk]))
    assert answer["Location"] == reverse("job-detail", args=[job.pk])
    job.refresh_from_db()
    assert (job.state, job.cancel_asked_by) == (Job.State.CANCELLED, world.plant.engineer)


def test_a_running_job_is_cancelling_and_the_part_says_so(world: World, signed_in: Callable[..., Client]) -> None:
    job = world.running()
    answer = signed_in(world.plant.engineer).post(reverse("job-cancel", args=[job.pk]), headers=HTMX)
    part = answer.content.decode()
    assert "<html" not in part
    assert "asked at" in part
    job.refresh_from_db()
    assert job.state == Job.State.CANCELLING


def test_an_ended_job_is_not_cancelled_again(world: World, signed_in: Callable[..., Client]) -> None:
    job = world.job()
    client = signed_in(world.plant.engineer)
    url = reverse("job-cancel", args=[job.pk])
    client.post(url)
    answer = client.post(url)
    assert answer.status_code == 409
    assert f"{job} has ended" in answer.content.decode()
    assert client.post(url, headers=HTMX).status_code == 409


def test_only_some_may_cancel(world: World, signed_in: Callable[..., Client]) -> None:
    url = reverse("job-cancel", args=[world.job().pk])
    assert signed_in(world.viewer).post(url).status_code == 403
    assert signed_in(world.stranger).post(url).status_code == 404
    assert signed_in(world.plant.engineer).get(url).status_code == 405
    assert Job.objects.get().state == Job.State.QUEUED


def test_a_failed_job_says_why_and_can_be_asked_again(world: World, signed_in: Callable[..., Client]) -> None:
    job = world.running()
    sentence = {"text": "There is no space left on the disk of the training machine.", "params": {}}
    Job.objects.filter(pk=job.pk).update(state=Job.State.FAILED, failure=sentence)
    client = signed_in(world.plant.engineer)
    assert sentence["text"] in client.get(reverse("job-detail", args=[job.pk])).content.decode()
    answer = client.post(reverse("job-again", args=[job.pk]))
    again = Job.objects.exclude(pk=job.pk).get()
    assert answer["Location"] == reverse("job-detail", args=[again.pk])
    assert again.config == job.config
    assert client.post(reverse("job-again", args=[again.pk])).status_code == 409


def test_the_log_is_read_as_text_and_its_end_stands_on_the_page(world: World, signed_in: Callable[..., Client]) -> None:
    from training import jobdir

    job, client = world.running(), signed_in(world.viewer)
    assert client.get(reverse("job-log", args=[job.pk])).status_code == 404
    path = jobdir.log_file(job)
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(f"line {n} <b>" for n in range(100)), "utf-8")
    answer = client.get(reverse("job-log", args=[job.pk]))
    assert answer["Content-Type"].startswith("text/plain")
    assert answer.content.decode().startswith("line 0 <b>")
    page = client.get(reverse("job-detail", args=[job.pk])).content.decode()
    assert "line 99 &lt;b&gt;" in page
    assert "line 80 " not in page
