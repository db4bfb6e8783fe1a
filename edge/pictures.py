"""The one function that turns picture bytes into pixels: for preview, recipe and agent.

Content decides, never the file name. What cannot be decoded whole is refused with a code; nothing is filled in.
The same bytes and the same preprocessing give the same bits everywhere, so a cached activation, a golden vector and a
verdict on the line are about the same pixels.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

MAX_PIXELS = 100_000_000
# GIF, JPEG 2000, PDF, ICO and the rest of Pillow's 40 formats stay out: no inspection camera writes them, and each is
# another parser that reads bytes from the network. (MPO, several JPEGs in one file, comes through the JPEG door.)
ALLOWED_FORMATS = ("JPEG", "MPO", "PNG", "BMP", "TIFF", "WEBP")
CODES = ("empty", "not_a_picture", "truncated", "too_many_pixels", "unsupported", "format_not_allowed")

_MAGIC = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"GIF8", "GIF"),
    (b"\x00\x00\x00\x0cjP  ", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
    (b"%PDF", "PDF"),
    (b"8BPS", "PSD"),
)
_ALPHA_MODES = ("RGBA", "LA", "PA", "La", "RGBa")
_DEEP_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I", "F")
# What Pillow's decoders raise on damaged data, seen over the formats above; anything else is a fault of ours and shows.
_DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, OverflowError, MemoryError, struct.error, zlib.error)
_ORIENTATION_TAG = 0x0112
_FILTERS_LOCK = threading.Lock()
_HEAT_SIDE = 32  # most cells across or down of an activation map


class PictureRefused(Exception):
    """These bytes are not a picture that Loopline takes. `code` is one of `CODES`, `params` fill the sentence."""

    def __init__(self, code: str, **params: Any) -> None:
        super().__init__(f"{code} {params}" if params else code)
        self.code = code
        self.params = params


@dataclass(frozen=True)
class PictureInfo:
    """What a picture is. `width` and `height` in pixels after orientation; `bits` per channel as stored in the file."""

    width: int
    height: int
    mode: str
    format: str
    frames: int
    bits: int


def inspect(data: bytes, max_pixels: int = MAX_PIXELS) -> PictureInfo:
    """Decodes the picture whole and says what it is. Raises PictureRefused."""
    image = _load(data, max_pixels)
    width, height = image.size
    if _orientation(image) >= 5:
        width, height = height, width
    mode, picture_format, bits = image.mode, image.format or "", _bits(image, data)
    return PictureInfo(width, height, mode, picture_format, _frames(image), bits)


def decode(data: bytes, window: tuple[float, float] | None = None, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """uint8 [H, W, 3], RGB, turned as EXIF says, first page of several, alpha on black.

    Single-channel pictures with more than 8 bits are mapped from `window` = (black, white) in stored values to 0..255;
    without a window from their own 0.5 to 99.5 percentile, so that 12 bits in 16 do not show black. Colour pictures
    with 16 bits keep their upper 8 bits. Raises PictureRefused.
    """
    try:
        return np.ascontiguousarray(shown(stored(data, max_pixels), window))
    except ValueError as error:
        raise PictureRefused("unsupported", detail=str(error)) from error


def stored(data: bytes, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """The picture upright and not yet windowed: [H, W] of stored values for one channel, else uint8 [H, W, 3] RGB.

    `shown` makes of it, or of any part of it, what `decode` makes of the bytes. Raises PictureRefused.
    """
    image = _load(data, max_pixels)
    try:
        plain = image.mode in _DEEP_MODES or (image.mode == "L" and "transparency" not in image.info)
        pixels = np.asarray(image) if plain else _to_rgb(image)
        return _turn(pixels, _orientation(image))
    except _DAMAGE as error:
        raise PictureRefused("unsupported", format=image.format, mode=image.mode, detail=str(error)) from error


def shown(values: np.ndarray, window: tuple[float, float] | None = None) -> np.ndarray:
    """uint8 [H, W, 3] of what `stored` gives; `window` matters to single channels with more than 8 bits only.

    Raises ValueError when there is no window and no finite value to choose one from.
    """
    if values.ndim == 3:
        return values
    grey = values if values.dtype == np.uint8 else _windowed(values, window)
    return np.repeat(grey[:, :, None], 3, axis=2)


@dataclass(frozen=True)
class Extent:
    """Stored values of a single-channel picture: least and greatest, and the window that `decode` takes by itself."""

    least: float
    most: float
    low: float
    high: float


def extent(data: bytes, max_pixels: int = MAX_PIXELS) -> Extent:
    """What a window can be chosen from. Raises PictureRefused, also for pictures that need none."""
    values = stored(data, max_pixels)
    if values.ndim == 3 or values.dtype == np.uint8:
        raise PictureRefused("unsupported", bits=8)
    try:
        return extent_of(values)
    except ValueError as error:
        raise PictureRefused("unsupported", detail=str(error)) from error


def extent_of(values: np.ndarray) -> Extent:
    """`extent` of [H, W] stored values. Raises ValueError when none of them is finite."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values.ravel()
    if finite.size == 0:
        raise ValueError("no finite value")
    low, high = _automatic(finite)
    return Extent(float(finite.min()), float(finite.max()), low, high)


def preview(data: bytes, longest: int, window: tuple[float, float] | None = None) -> bytes:
    """A JPEG for browsers, longest side at most `longest` pixels; never enlarged, no metadata of the original."""
    return as_jpeg(decode(data, window), longest)


def as_jpeg(pixels: np.ndarray, longest: int | None = None) -> bytes:
    """uint8 [H, W, 3] as a JPEG, made smaller when its longest side is above `longest`."""
    image = Image.fromarray(pixels)
    scale = longest / max(image.size) if longest else 1.0
    if scale < 1:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=88)
    return out.getvalue()


def to_pixels(data: bytes, preprocess: Mapping[str, Any]) -> np.ndarray:
    """float32 [3, H, W] as a release manifest's `preprocess` says: size [H, W], mean, std, resize, window.

    "squash" ignores the aspect ratio; "fit" keeps it and fills the rest with the mean (0 after normalisation).
    Bit-identical everywhere: Pillow resizes 8-bit pictures in integers, and normalisation is a table of 256 values.
    """
    window = preprocess.get("window")
    pixels = decode(data, (float(window[0]), float(window[1])) if window else None)
    return normalise(resize(pixels, preprocess), preprocess)


def resize(pixels: np.ndarray, preprocess: Mapping[str, Any]) -> np.ndarray:
    """uint8 [H, W, 3] to uint8 [h, w, 3]: exactly `size` for "squash", the largest that fits inside for "fit"."""
    height, width = (int(n) for n in preprocess["size"])
    how = preprocess.get("resize", "squash")
    if how == "fit":
        scale = min(height / pixels.shape[0], width / pixels.shape[1])
        height = min(height, max(1, round(pixels.shape[0] * scale)))
        width = min(width, max(1, round(pixels.shape[1] * scale)))
    elif how != "squash":
        raise ValueError(f"unknown resize {how!r}")
    if pixels.shape[:2] == (height, width):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))


def normalise(pixels: np.ndarray, preprocess: Mapping[str, Any]) -> np.ndarray:
    """uint8 [h, w, 3] to float32 [3, H, W], centred in `size`; what the picture does not cover is 0, the mean."""
    height, width = (int(n) for n in preprocess["size"])
    top, left = (height - pixels.shape[0]) // 2, (width - pixels.shape[1]) // 2
    out = np.zeros((3, height, width), np.float32)
    levels = np.arange(256, dtype=np.float64) / 255.0
    for channel, (mean, std) in enumerate(zip(preprocess["mean"], preprocess["std"], strict=True)):
        table = ((levels - float(mean)) / float(std)).astype(np.float32)
        out[channel, top : top + pixels.shape[0], left : left + pixels.shape[1]] = table[pixels[:, :, channel]]
    return out


def activation_map(heat: np.ndarray, weight: np.ndarray) -> dict[str, Any] | None:
    """[C, h, w] and [C] to {"w", "h", "values" 0..255}: where the evidence that `weight` asks for lies in the picture.

    Coarse on purpose: it is drawn over the picture and travels with every flagged one. None where there is none.
    """
    evidence = np.maximum(np.tensordot(weight, heat, axes=1), 0.0)
    while max(evidence.shape) > _HEAT_SIDE:
        evidence = evidence[::2, ::2]
    peak = float(evidence.max())
    if not np.isfinite(peak) or peak <= 0:
        return None
    values = np.rint(evidence * (255.0 / peak)).astype(np.uint8)
    return {"w": values.shape[1], "h": values.shape[0], "values": values.ravel().tolist()}


def _load(data: bytes, max_pixels: int) -> ImageFile.ImageFile:
    """Opens, checks the claimed size before any pixel is decoded, then decodes the first page whole."""
    if not data:
        raise PictureRefused("empty")
    sniffed = _sniff(data)
    if sniffed is not None and sniffed not in ALLOWED_FORMATS:
        raise PictureRefused("format_not_allowed", format=sniffed)
    if sniffed is None:
        raise PictureRefused("not_a_picture")
    # libwebp allocates its canvas at opening, so the claim is read before.
    _check_size(_webp_size(data) if sniffed == "WEBP" else None, max_pixels)
    try:
        with _quiet():
            image = Image.open(io.BytesIO(data), formats=(sniffed,))
    except Image.DecompressionBombError as error:
        raise PictureRefused("too_many_pixels", limit=max_pixels) from error
    except UnidentifiedImageError as error:
        raise PictureRefused("truncated", format=sniffed) from error
    except _DAMAGE as error:
        raise PictureRefused("truncated", format=sniffed, detail=str(error)) from error
    _check_size(image.size, max_pixels)
    try:
        # A TIFF reads its tags again here and warns of damaged ones; the other formats decode outside the lock.
        with _quiet() if image.format == "TIFF" else nullcontext():
            image.load()
    except Image.DecompressionBombError as error:
        raise PictureRefused("too_many_pixels", limit=max_pixels) from error
    except NotImplementedError as error:
        raise PictureRefused("unsupported", format=image.format, detail=str(error)) from error
    except _DAMAGE as error:
        raise PictureRefused("truncated", format=image.format, detail=str(error)) from error
    return image


@contextmanager
def _quiet() -> Iterator[None]:
    """Damaged tags and large sizes are warnings in Pillow: the first mean nothing here, the second are refused.

    Filters are process-wide, hence the lock.
    """
    with _FILTERS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _check_size(size: tuple[int, int] | None, max_pixels: int) -> None:
    if size is None:
        return
    width, height = size
    if width <= 0 or height <= 0:
        raise PictureRefused("truncated", width=width, height=height)
    if width * height > max_pixels:
        raise PictureRefused("too_many_pixels", width=width, height=height, limit=max_pixels)


def _sniff(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        return "HEIF"
    for magic, name in _MAGIC:
        if data.startswith(magic):
            return name
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    """Canvas size from the first chunk (RFC 9649); None when the header is cut, which opening then refuses."""
    chunk = data[12:16]
    if len(data) < 30:
        return None
    if chunk == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if chunk == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None


def _orientation(image: Image.Image) -> int:
    """1..8. Asked after loading: a TIFF was then turned by Pillow already, a PNG may carry EXIF after its pixels."""
    try:
        with _quiet():
            value = image.getexif().get(_ORIENTATION_TAG, 1)
    except _DAMAGE:
        return 1  # a damaged EXIF block says nothing about the pixels, which decoded whole
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _turn(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turns [H, W, C] so that it shows upright; the eight cases of EXIF tag 0x0112."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _to_rgb(image: Image.Image) -> np.ndarray:
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        rgba = image if image.mode == "RGBA" else image.convert("RGBA")
        black = Image.new("RGB", rgba.size)
        black.paste(rgba.convert("RGB"), mask=rgba.getchannel("A"))
        return np.asarray(black)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _windowed(values: np.ndarray, window: tuple[float, float] | None) -> np.ndarray:
    """[H, W] of any number type to uint8, black at window[0], white at window[1]. Not-a-number shows black."""
    if window is None:
        found = extent_of(values)
        low, high = found.low, found.high
    else:
        low, high = float(window[0]), float(window[1])
    scaled = (values.astype(np.float64) - low) * (255.0 / (high - low if high > low else 1.0))
    scaled = np.nan_to_num(scaled, nan=0.0, posinf=255.0, neginf=0.0)
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


def _automatic(finite: np.ndarray) -> tuple[float, float]:
    """The window of a picture whose line declares none."""
    low, high = (float(v) for v in np.percentile(finite, (0.5, 99.5)))
    if high <= low:  # nearly constant: show what little there is, else a single bright speck would vanish
        low, high = float(finite.min()), float(finite.max())
    return low, high


def _bits(image: Image.Image, data: bytes) -> int:
    """Bits per channel in the file, which Pillow's mode hides for 16-bit colour."""
    if image.format == "PNG":
        return data[24]
    if image.format == "TIFF":
        stored = getattr(image, "tag_v2", {}).get(258, 1)
        return int(max(stored) if isinstance(stored, tuple) else stored)
    return {"1": 1, "I": 32, "F": 32}.get(image.mode, 16 if image.mode.startswith("I;16") else 8)


def _frames(image: Image.Image) -> int:
    """Pages or frames in the file; later ones may be damaged, which does not hurt the first."""
    try:
        with _quiet():
            return int(getattr(image, "n_frames", 1))
    except _DAMAGE:
        return 1
