"""What one version says of one picture, as a device that runs it would: probabilities, score, and where it looked."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np

from edge.pictures import activation_map

from .data import pixels_of
from .events import Events, Failed
from .export import MANIFEST_FILE
from .graph import open_session
from .lora import load_head, merged_targets, read_adapter
from .model import open_base
from .verify import check_digests

log = logging.getLogger(__name__)
ANSWER_FILE = "explained.json"


def explain(job_dir: Path, events: Events) -> None:
    """Reads JOBDIR/config.json {"picture": path, "id", "threads"}, base/ and version/; writes `ANSWER_FILE`.

    {"probabilities": [K], "score": 1 - p(OK), "map": ActivationMap or null of the likeliest defect class}. Fails with
    `picture_unreadable`, or `adapter_does_not_fit_base`.
    """
    config = json.loads((job_dir / "config.json").read_text("utf-8"))
    version = job_dir / "version"
    manifest = json.loads((version / MANIFEST_FILE).read_text("utf-8"))
    base = open_base(job_dir / "base")
    check_digests(version, manifest, base)
    try:
        weights = merged_targets(base, read_adapter(version))
    except (ValueError, KeyError) as error:
        raise Failed("adapter_does_not_fit_base", where="load", detail=str(error)[:300]) from error
    pixels = pixels_of(Path(config["picture"]).read_bytes(), manifest["preprocess"], id=config["id"])
    session = open_session(base.graph_path, weights, int(config["threads"]))
    features, heat = session.run(["features", "map"], {"pixels": pixels[None]})
    head = load_head(version)
    weight, bias = head.weight.detach().numpy().astype(np.float64), head.bias.detach().numpy()
    logits = weight @ np.asarray(features)[0].astype(np.float64) + bias
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    defect = int(np.argmax(shares[1:])) + 1
    answer = {
        "probabilities": [round(float(share), 6) for share in shares],
        "score": float(1.0 - shares[0]),
        "map": activation_map(np.asarray(heat)[0], weight[defect] - weight[0]),
    }
    (job_dir / ANSWER_FILE).write_text(json.dumps(answer), "utf-8")
    events.phase("explain", 1, 1)
