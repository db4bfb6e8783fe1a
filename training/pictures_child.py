"""The child that decodes pictures nobody has looked at yet, with little memory and little time: `python -m
training.pictures_child`. One JSON list [path, max_pixels, folder] per line in, one JSON answer per line out. With a
folder, the picture's levels are written there (training.pyramid)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import resource
import sys
from pathlib import Path

from edge import pictures
from training import pyramid

MEMORY_BYTES = 2 << 30
SECONDS_PER_PICTURE = 15


def main() -> None:
    """Answer until stdin ends, which is when the parent is gone."""
    with contextlib.suppress(ValueError):  # a smaller limit is set already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        path, max_pixels, folder = json.loads(line)
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + SECONDS_PER_PICTURE
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        sys.stdout.write(json.dumps(answer(Path(path), max_pixels, folder and Path(folder))) + "\n")
        sys.stdout.flush()


def answer(path: Path, max_pixels: int, folder: Path | None) -> dict[str, object]:
    """`{"info": {...}}`, `{"levels": folder}`, or `{"code": ..., "params": {...}}` for a refused picture."""
    try:
        if folder:
            pyramid.build(path.read_bytes(), folder, max_pixels)
            return {"levels": str(folder)}
        return {"info": dataclasses.asdict(pictures.inspect(path.read_bytes(), max_pixels))}
    except pictures.PictureRefused as refused:
        return {"code": refused.code, "params": {key: str(value) for key, value in refused.params.items()}}
    except MemoryError:
        return {"code": "too_much_memory", "params": {}}


if __name__ == "__main__":
    main()
