"""Features for comparing pictures: the same on every machine, in parts, and with the unreadable ones named."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open

from tests.recipe.conftest import PREPROCESS, Heard, picture
from training.recipe.embed import GREY, PART, embed, projection
from training.recipe.events import Events, Stopped, StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.recipe.conftest import Recipe


@pytest.fixture
def asked(tmp_path: Path, small_base: Path) -> Callable[[dict[str, bytes]], Path]:
    """A folder that asks for the features of these pictures."""

    def make(pictures: dict[str, bytes]) -> Path:
        config = {"base_dir": str(small_base), "preprocess": PREPROCESS, "threads": 1, "dims": 256, "seed": 0}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with (tmp_path / "items.jsonl").open("w") as out:
            for name, data in pictures.items():
                (tmp_path / name).write_bytes(data)
                row = {"id": name, "digest": hashlib.sha256(data).hexdigest(), "path": name}
                out.write(json.dumps(row) + "\n")
        return tmp_path

    return make


def read(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, str]]:
    vectors: dict[str, np.ndarray] = {}
    greys: dict[str, np.ndarray] = {}
    refused: dict[str, str] = {}
    for path in sorted(folder.glob("part-*.safetensors")):
        with safe_open(path, "numpy") as part:
            ids = json.loads(part.metadata()["ids"])
            vectors |= dict(zip(ids, part.get_tensor("vectors"), strict=True))
            greys |= dict(zip(ids, part.get_tensor("greys"), strict=True))
            refused |= dict(json.loads(part.metadata()["refused"]))
    return vectors, greys, refused


def test_the_projection_is_the_same_everywhere() -> None:
    made = projection(1280, 256, 0)
    assert hashlib.sha256(made.tobytes()).hexdigest().startswith("53add84501f417cd")
    assert not np.array_equal(made, projection(1280, 256, 1))
    rng = np.random.default_rng(0)
    first, second = rng.random(1280), rng.random(1280)
    true = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    seen = (first @ made) @ (second @ made) / np.linalg.norm(first @ made) / np.linalg.norm(second @ made)
    assert abs(true - seen) < 0.1


def test_every_picture_gets_a_vector_of_length_one_and_what_cannot_be_read_is_named(
    asked: Callable[[dict[str, bytes]], Path],
) -> None:
    pictures = {f"p{n}": picture(n, cracked=n % 2 == 1) for n in range(PART + 3)}
    cut = picture(90, cracked=False)[:300]
    folder = asked(pictures | {"cut": cut, "text": b"no picture", "last": picture(3, cracked=True)})
    heard = Heard()
    embed(folder, Events(heard), StopRequest())
    vectors, greys, refused = read(folder)
    assert set(vectors) == set(greys) == {*pictures, "last"}
    assert refused == {"cut": "truncated", "text": "not_a_picture"}
    assert all(vector.shape == (256,) and abs(np.linalg.norm(vector) - 1) < 1e-5 for vector in vectors.values())
    assert all(grey.shape == (GREY * GREY,) and grey.dtype == np.uint8 for grey in greys.values())
    assert np.allclose(vectors["last"], vectors["p3"], atol=1e-5)
    assert [said["count"] for said in heard.named("part")] == [PART, 6]


def test_parts_that_are_written_stay_when_it_is_stopped(asked: Callable[[dict[str, bytes]], Path]) -> None:
    folder = asked({f"p{n}": picture(n, cracked=False) for n in range(3 * PART)})
    stop = StopRequest()

    def on(event: dict[str, Any]) -> None:
        if event["event"] == "part":
            stop.asked = True

    with pytest.raises(Stopped):
        embed(folder, Events(Heard(on)), stop)
    assert len(read(folder)[0]) == PART
    assert not list(folder.glob("*.tmp"))


def test_it_runs_from_the_command_line_and_ends_on_sigterm(
    asked: Callable[[dict[str, bytes]], Path], start: Callable[..., Recipe]
) -> None:
    folder = asked({f"p{n}": picture(n, cracked=False) for n in range(4000)})
    recipe = start("embed", str(folder))
    recipe.wait_for("part")
    recipe.process.send_signal(signal.SIGTERM)
    recipe.finish()
    assert recipe.process.returncode == 143
