"""The one decoder against real awkward files, and against every way in which a picture can be turned or damaged."""

from __future__ import annotations

import csv
import io
import random
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from edge.pictures import CODES, PictureRefused, decode, inspect, preview, to_pixels
from tests.edge.plant import PREPROCESS, picture

REFUSED = {
    "truncated_jpeg.jpg": "truncated",
    "truncated_image.png": "truncated",
    "cut-at-60-percent.jpg": "truncated",
    "broken.png": "truncated",
    "decompression_bomb.gif": "format_not_allowed",
    "reallybig.bmp": "too_many_pixels",
    "pointer-not-image.jpg": "not_a_picture",
    "empty.jpg": "empty",
}
SHOWN = {  # format, mode, (width, height) after turning, frames, bits
    "pil_sample_cmyk.jpg": ("JPEG", "CMYK", (100, 100), 1, 8),
    "ifd_tag_type.tiff": ("TIFF", "I;16", (640, 512), 1, 16),
    "12in16bit.tif": ("TIFF", "I;16", (100, 100), 1, 16),
    "10ct_32bit_128.tiff": ("TIFF", "F", (128, 128), 1, 32),
    "tiff_16bit_RGB.tiff": ("TIFF", "RGB", (100, 40), 1, 16),
    "hopper_orientation_6.jpg": ("JPEG", "RGB", (128, 128), 1, 8),
    "sugarshack.mpo": ("MPO", "RGB", (640, 480), 2, 8),
    "multipage.tiff": ("TIFF", "P", (10, 10), 3, 1),
    "hopper_rle8.bmp": ("BMP", "P", (128, 128), 1, 8),
    "hopper.webp": ("WEBP", "RGB", (128, 128), 1, 8),
    "pil123rgba.png": ("PNG", "RGBA", (162, 150), 1, 8),
    "hopper_bad_exif.jpg": ("JPEG", "L", (500, 500), 1, 8),
    "icc_profile_big.jpg": ("JPEG", "RGB", (425, 250), 1, 8),
    "00041003_test.jpg": ("JPEG", "RGB", (640, 640), 1, 8),
    "jpeg-named-as.png": ("JPEG", "RGB", (640, 640), 1, 8),
    "検査 ロット#12 (2).jpg": ("JPEG", "RGB", (640, 640), 1, 8),
}


def saved(image: Image.Image, kind: str, **how: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **how)  # type: ignore[arg-type]
    return out.getvalue()


def code_of(data: bytes) -> str:
    with pytest.raises(PictureRefused) as caught:
        inspect(data)
    with pytest.raises(PictureRefused) as again:
        decode(data)
    assert caught.value.code == again.value.code
    assert caught.value.code in CODES
    return caught.value.code


@pytest.fixture
def odd(shared_data: Path) -> Path:
    return shared_data / "odd-files"


def test_every_odd_file_is_shown_right_or_refused_with_its_code(odd: Path) -> None:
    with open(odd / "manifest.csv", newline="", encoding="utf-8") as handle:
        names = [row["file"] for row in csv.DictReader(handle)]
    assert sorted(names) == sorted([*REFUSED, *SHOWN])
    for name in names:
        data = (odd / name).read_bytes()
        if name in REFUSED:
            assert code_of(data) == REFUSED[name], name
            continue
        info = inspect(data)
        shown = (info.format, info.mode, (info.width, info.height), info.frames, info.bits)
        assert shown == SHOWN[name], name
        pixels = decode(data)
        assert (pixels.dtype, pixels.shape) == (np.uint8, (info.height, info.width, 3)), name
        assert np.array_equal(pixels, decode(data)), name
        small = Image.open(io.BytesIO(preview(data, 64)))
        assert (small.format, max(small.size)) == ("JPEG", min(64, max(info.width, info.height))), name
        assert not small.getexif(), name
        ready = to_pixels(data, PREPROCESS)
        assert (ready.dtype, ready.shape, np.isfinite(ready).all()) == (np.float32, (3, 32, 32), True), name


@pytest.mark.parametrize("name", ["ifd_tag_type.tiff", "12in16bit.tif", "10ct_32bit_128.tiff"])
def test_deep_pictures_are_visible(odd: Path, name: str) -> None:
    pixels = decode((odd / name).read_bytes())
    assert pixels.min() == 0
    assert pixels.max() == 255
    assert pixels.std() > 30


def test_a_window_maps_stored_values_and_not_the_pictures_own_range(odd: Path) -> None:
    data = (odd / "ifd_tag_type.tiff").read_bytes()
    stored = np.asarray(Image.open(io.BytesIO(data))).astype(float)
    expected = np.clip(np.rint((stored - 7000) * 255 / 2000), 0, 255)
    assert np.array_equal(decode(data, (7000, 9000))[:, :, 0], expected)
    assert not decode(data, (0, 100)).min() < 255


def test_cmyk_shows_its_colours(odd: Path) -> None:
    pixels = decode((odd / "pil_sample_cmyk.jpg").read_bytes())
    red = pixels[1:3, 2:10].mean(axis=(0, 1))
    assert red[0] > 200
    assert red[1] < 80


def test_alpha_lies_on_black_in_every_form() -> None:
    clear = Image.new("RGBA", (4, 4), (200, 100, 50, 0))
    clear.putpixel((0, 0), (200, 100, 50, 255))
    clear.putpixel((1, 0), (200, 100, 50, 128))
    for data in (saved(clear, "PNG"), saved(clear, "WEBP", lossless=True, exact=True), saved(clear, "TIFF")):
        pixels = decode(data)
        assert pixels[0, 0].tolist() == [200, 100, 50]
        assert np.allclose(pixels[0, 1], [100, 50, 25], atol=1)
        assert pixels[1:].max() == 0
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, 255, 255, 255])
    assert decode(saved(palette, "PNG", transparency=1)).max() == 0
    assert decode(saved(palette, "PNG", transparency=bytes([255, 0]))).max() == 0
    assert decode(saved(Image.new("L", (4, 4), 9), "PNG", transparency=9)).max() == 0
    assert decode(saved(Image.new("LA", (4, 4), (255, 0)), "PNG")).max() == 0


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_turned_once(kind: str, orientation: int) -> None:
    upright = np.zeros((32, 48, 3), np.uint8)
    upright[:16, :24] = (250, 0, 0)
    upright[:16, 24:] = (0, 250, 0)
    upright[16:, :24] = (0, 0, 250)
    back = {
        1: [], 2: [Image.Transpose.FLIP_LEFT_RIGHT], 3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM], 5: [Image.Transpose.TRANSPOSE], 6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE], 8: [Image.Transpose.ROTATE_270],
    }[orientation]  # fmt: skip
    stored = Image.fromarray(upright)
    for step in back:
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    how = {"lossless": True} if kind == "WEBP" else {"quality": 95} if kind == "JPEG" else {}
    data = saved(stored, kind, exif=exif, **how)
    info = inspect(data)
    assert (info.width, info.height) == (48, 32)
    assert np.abs(decode(data).astype(int) - upright).mean() < 5


def test_a_sixteen_bit_picture_is_turned_too() -> None:
    stored = np.zeros((20, 10), np.uint16)
    stored[:10] = 4000
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = decode(saved(Image.fromarray(stored), "PNG", exif=exif))
    assert pixels.shape == (10, 20, 3)
    assert pixels[:, 10:].min() == 255
    assert pixels[:, :10].max() == 0


def test_nonsense_orientation_and_broken_exif_leave_the_picture_as_it_is() -> None:
    exif = Image.Exif()
    exif[0x0112] = 99
    assert inspect(saved(Image.new("RGB", (48, 32)), "JPEG", exif=exif)).width == 48
    broken = saved(Image.new("RGB", (48, 32)), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert inspect(broken).width == 48


def test_constant_and_non_finite_float_pictures() -> None:
    assert decode(saved(Image.fromarray(np.full((4, 4), 700, np.uint16)), "TIFF")).max() == 0
    speck = np.full((100, 100), 700, np.uint16)
    speck[5, 5] = 900
    assert decode(saved(Image.fromarray(speck), "TIFF"))[5, 5].tolist() == [255, 255, 255]
    values = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    values[0, 0], values[7, 7] = np.nan, np.inf
    pixels = decode(saved(Image.fromarray(values), "TIFF"))
    assert pixels[0, 0].max() == 0
    assert pixels[7, 7].min() == 255
    nothing = saved(Image.fromarray(np.full((4, 4), np.nan, np.float32)), "TIFF")
    with pytest.raises(PictureRefused) as caught:
        decode(nothing)
    assert caught.value.code == "unsupported"


def bombs() -> dict[str, bytes]:
    """Small files whose headers claim more than a hundred million pixels, in each allowed format."""
    png = bytearray(picture(1))
    png[16:24] = struct.pack(">II", 30_000, 30_000)
    png[29:33] = struct.pack(">I", zlib.crc32(png[12:29]))
    jpeg = bytearray(saved(Image.new("L", (16, 16)), "JPEG"))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = struct.pack(">HH", 60_000, 60_000)
    bmp = bytearray(saved(Image.new("RGB", (16, 16)), "BMP"))
    bmp[18:26] = struct.pack("<ii", 20_000, 20_000)
    webp = bytearray(saved(Image.new("RGBA", (16, 16)), "WEBP", lossless=True, exif=b"Exif\x00\x00MM\x00*"))
    assert webp[12:16] == b"VP8X"
    webp[24:30] = (16_000).to_bytes(3, "little") + (16_000).to_bytes(3, "little")
    plain = bytearray(saved(Image.new("RGB", (16, 16)), "WEBP"))
    plain[26:30] = struct.pack("<HH", 16_000, 16_000)
    return {"PNG": bytes(png), "JPEG": bytes(jpeg), "BMP": bytes(bmp), "WEBP": bytes(webp), "WEBP lossy": bytes(plain),
            "TIFF": tiff_header(30_000, 30_000)}  # fmt: skip


def tiff_header(width: int, height: int) -> bytes:
    tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (277, 3, 1),
            (278, 4, height), (279, 4, 64)]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\x00" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + entries + b"\0" * 80


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "WEBP", "WEBP lossy", "TIFF"])
def test_a_bomb_is_refused_by_its_header_without_memory_for_its_pixels(kind: str) -> None:
    data = bombs()[kind]
    tracemalloc.start()
    try:
        assert code_of(data) == "too_many_pixels"
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_formats_outside_the_list_are_named() -> None:
    assert code_of(saved(Image.new("P", (4, 4)), "GIF")) == "format_not_allowed"
    assert code_of(b"%PDF-1.7 ...") == "format_not_allowed"
    assert code_of(b"\x00\x00\x00\x18ftypheic" + b"\0" * 40) == "format_not_allowed"
    assert code_of(b"<svg xmlns='http://www.w3.org/2000/svg'/>") == "not_a_picture"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF", "WEBP"])
def test_every_cut_of_a_picture_is_refused(kind: str) -> None:
    data = picture(3, kind=kind)
    whole = decode(data)
    for share in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9):
        cut = data[: int(len(data) * share)]
        with pytest.raises(PictureRefused):
            decode(cut)
    assert np.array_equal(decode(data), whole)
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF", "WEBP"])
def test_damaged_bytes_decode_or_are_refused_and_raise_nothing_else(kind: str) -> None:
    data = picture(3, kind=kind)
    rng = random.Random(5)
    codes: set[str] = set()
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged) if rng.random() < 0.5 else 64)] = rng.randrange(256)
        try:
            info = inspect(bytes(damaged), max_pixels=1_000_000)
            pixels = decode(bytes(damaged), max_pixels=1_000_000)
        except PictureRefused as refused:
            codes.add(refused.code)
        else:
            assert pixels.shape == (info.height, info.width, 3)
    assert codes <= set(CODES)


def test_squash_fills_and_fit_keeps_the_shape() -> None:
    data = saved(Image.new("RGB", (100, 50), (255, 255, 255)), "PNG")
    squashed = to_pixels(data, {**PREPROCESS, "resize": "squash"})
    assert squashed.min() == pytest.approx(2.0)
    fitted = to_pixels(data, {**PREPROCESS, "resize": "fit"})
    assert (fitted[:, :8] == 0).all()
    assert (fitted[:, 8:24] == 2).all()
    assert (fitted[:, 24:] == 0).all()
    thin = saved(Image.new("RGB", (1000, 1), (255, 255, 255)), "PNG")
    assert to_pixels(thin, {**PREPROCESS, "resize": "fit"}).shape == (3, 32, 32)
    with pytest.raises(ValueError, match="unknown resize"):
        to_pixels(data, {**PREPROCESS, "resize": "crop"})


def test_pixels_are_the_same_bits_every_time() -> None:
    data = picture(8, size=(301, 207), kind="JPEG")
    first = to_pixels(data, PREPROCESS)
    assert first.tobytes() == to_pixels(bytes(bytearray(data)), dict(PREPROCESS)).tobytes()
    assert first.flags["C_CONTIGUOUS"]
