"""Fixtures of the record's tests: a plant in a transaction, blobs in a folder of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.registry.plant import Plant


@pytest.fixture
def blob_root(tmp_path: Path, settings: Any) -> Path:
    """An empty blob store."""
    settings.BLOB_ROOT = tmp_path / "blobs"
    return tmp_path / "blobs"


@pytest.fixture
def plant(db: None, blob_root: Path, tmp_path: Path) -> Plant:
    """One line with people; rolled back after the test."""
    from tests.registry import plant as plants  # models: only once Django is set up

    return plants.make(tmp_path)


@pytest.fixture
def committed_plant(cloned_database: str, django_db_blocker: Any, blob_root: Path, tmp_path: Path) -> Iterator[Plant]:
    """The same plant in a database of its own with real commits: for threads and processes that meet there."""
    from django.db import connections

    from tests.registry import plant as plants

    shared = connections["default"].settings_dict  # the same dictionary in every thread
    before = shared["NAME"]
    with django_db_blocker.unblock():
        connections["default"].close()
        shared["NAME"] = cloned_database.split("?")[0].rsplit("/", 1)[1]
        try:
            yield plants.make(tmp_path)
        finally:
            connections["default"].close()
            shared["NAME"] = before
