"""The validator behind every door: a bad picture is refused with a sentence, and hurts nothing but its child."""

from __future__ import annotations

import os
import signal
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.training.plant import picture
from training import pictures
from training.pictures import PictureRefused

SHOWN = {
    "00041003_test.jpg", "10ct_32bit_128.tiff", "12in16bit.tif", "hopper.webp", "hopper_bad_exif.jpg",
    "hopper_orientation_6.jpg", "hopper_rle8.bmp", "icc_profile_big.jpg", "ifd_tag_type.tiff", "jpeg-named-as.png",
    "multipage.tiff", "pil123rgba.png", "pil_sample_cmyk.jpg", "sugarshack.mpo", "tiff_16bit_RGB.tiff",
    "検査 ロット#12 (2).jpg",
}  # fmt: skip
ANYTHING_ELSE = {"README.md", "LICENSE.Pillow", "manifest.csv"}


def test_every_awkward_file_is_taken_or_refused_with_a_sentence(shared_data: Path) -> None:
    for path in sorted((shared_data / "odd-files").iterdir()):
        if path.name in ANYTHING_ELSE:
            continue
        if path.name in SHOWN:
            assert pictures.check(path).width > 0
            continue
        with pytest.raises(PictureRefused) as caught:
            pictures.check(path)
        said = pictures.sentence(caught.value)
        assert said.endswith(".")
        assert "%(" not in said


def test_a_picture_in_memory_is_checked_the_same_way() -> None:
    info = pictures.check_bytes(picture(1, width=30, height=20))
    assert (info.width, info.height, info.format) == (30, 20, "PNG")
    with pytest.raises(PictureRefused, match="empty"):
        pictures.check_bytes(b"")


def test_a_picture_with_a_huge_claim_is_refused_before_it_is_decoded() -> None:
    header = struct.pack(">IIBBBBB", 200_000, 200_000, 8, 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b""))
    )
    with pytest.raises(PictureRefused, match="too_many_pixels") as caught:
        pictures.check_bytes(png)
    assert "100000000" in pictures.sentence(caught.value)


def test_a_child_that_died_is_replaced_and_the_next_picture_is_judged_rightly() -> None:
    data = picture(2)
    pictures.check_bytes(data)
    for child in pictures._pool.idle:
        os.kill(child._process.pid, signal.SIGKILL)
        child._process.wait()
    assert pictures.check_bytes(data).width == 24


def test_a_child_that_hangs_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "SECONDS", 0.5)
    pictures.check_bytes(picture(3))
    for child in pictures._pool.idle:
        os.kill(child._process.pid, signal.SIGSTOP)
    with pytest.raises(PictureRefused, match="too_slow"):
        pictures.check_bytes(picture(3))
    for child in list(pictures._pool.idle):
        os.kill(child._process.pid, signal.SIGCONT)


def test_many_threads_get_their_own_answers() -> None:
    sizes = range(10, 40)
    start = threading.Barrier(6)

    def look(size: int) -> int:
        if size < 16:
            start.wait()
        return pictures.check_bytes(picture(size, width=size)).width

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(look, sizes)) == list(sizes)
