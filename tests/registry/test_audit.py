"""The audit log takes inserts and nothing else, whoever asks the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from console import embedded
from registry import audit
from registry.models import AuditEvent

if TYPE_CHECKING:
    from tests.registry.plant import Plant


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE registry_auditevent SET reason = 'other'",
        "DELETE FROM registry_auditevent",
        "TRUNCATE registry_auditevent",
        "TRUNCATE registry_auditevent CASCADE",
        "ALTER TABLE registry_auditevent DISABLE TRIGGER audit_append_only",
        "DROP TRIGGER audit_append_only ON registry_auditevent",
    ],
)
def test_the_database_refuses_every_change_but_an_insert(plant: Plant, statement: str) -> None:
    audit.record(plant.engineer, "line.touch", plant.line, reason="here")
    before = list(AuditEvent.objects.values_list("id", "reason"))
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert list(AuditEvent.objects.values_list("id", "reason")) == before


@pytest.mark.parametrize("statement", ["UPDATE %s SET reason = 'other'", "DELETE FROM %s", "TRUNCATE %s"])
def test_even_the_owner_of_the_tables_is_refused(cloned_database: str, statement: str) -> None:
    name = cloned_database.split("?")[0].rsplit("/", 1)[1]
    insert = (
        "INSERT INTO registry_auditevent (at, by_label, action, noun, object_id, name, old, new, reason, refused)"
        " VALUES (now(), 'x', 'a.b', 'a', '1', 'n', '{}', '{}', '', false)"
    )
    with psycopg.connect(embedded.database_url(settings.STATE, embedded.OWNER, name), autocommit=True) as owner:
        owner.execute(insert)
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            owner.execute(statement % "registry_auditevent")


def test_an_event_says_who_did_what_to_which_row_and_why(plant: Plant) -> None:
    audit.record(plant.engineer, "line.touch", plant.line, old={"a": 1}, new={"a": 2}, reason="because")
    event = AuditEvent.objects.first()
    assert event is not None
    assert (event.by, event.by_label, event.action, event.noun) == (plant.engineer, "engineer", "line.touch", "line")
    assert (event.object_id, event.line, event.old, event.new) == (str(plant.line.pk), plant.line, {"a": 1}, {"a": 2})
    assert event.reason == "because"


def test_a_machine_is_no_person(plant: Plant) -> None:
    audit.record("worker:train@host", "line.touch", plant.line)
    event = AuditEvent.objects.first()
    assert event is not None
    assert event.by is None
    assert event.by_label == "worker:train@host"


def test_an_event_of_a_rolled_back_change_is_gone_with_it(plant: Plant) -> None:
    before = AuditEvent.objects.count()
    with transaction.atomic():
        audit.record("system", "line.touch", plant.line)
        transaction.set_rollback(True)
    assert AuditEvent.objects.count() == before
