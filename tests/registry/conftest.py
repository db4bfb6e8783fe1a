"""Fixtures of the record's tests: a plant in a transaction, blobs in a folder of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
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
