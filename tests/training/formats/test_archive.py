"""Archives from strangers: what leads out, links, hides or explodes is refused; Korean Windows names are read right."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from registry.lifecycle import Refused
from tests.training.formats.conftest import labelled, png, read
from training import formats
from training.formats.archive import Limits, ZipWriter
from training.formats.archive import read as read_file


def zipped(path: Path, entries: dict[str, bytes], **how: int) -> Path:
    with zipfile.ZipFile(path, "w", **how) as target:
        for name, data in entries.items():
            target.writestr(name, data)
    return path


def raw_zip(path: Path, entries: list[tuple[bytes, bytes]], flags: int = 0) -> Path:
    """A zip whose names are exactly these bytes, as Windows' own archiver writes them."""
    out, table = io.BytesIO(), io.BytesIO()
    for name, data in entries:
        offset, crc = out.tell(), zlib.crc32(data)
        common = struct.pack("<HHHHHIIIHH", 20, flags, 0, 0, 33, crc, len(data), len(data), len(name), 0)
        out.write(b"PK\3\4" + common + name + data)
        table.write(b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, offset) + name)
    start, size = out.tell(), len(table.getvalue())
    out.write(table.getvalue() + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), size, start, 0))
    path.write_bytes(out.getvalue())
    return path


def names(path: Path, limits: Limits | None = None) -> list[str]:
    with formats.opened(path, limits) as archive:
        return archive.names()


def test_a_zip_of_korean_windows_is_read_and_paired(tmp_path: Path) -> None:
    entries = [(r"라벨\images\불량_스크래치_001.png", png(40, 20)), (r"라벨\images\정상.png", png(40, 20, 9))]
    entries += [(r"라벨\labels\불량_스크래치_001.txt", b"0 0.5 0.5 0.5 0.5\r\n"), (r"라벨\labels\정상.txt", b"")]
    entries += [(r"라벨\classes.txt", "균열\r\n".encode())]
    path = raw_zip(tmp_path / "windows.zip", [(name.encode("cp949"), data) for name, data in entries])
    assert names(path) == sorted(name.replace("\\", "/") for name, _ in entries)
    found = read(path, "yolo")
    assert found.refused == []
    assert {picture.name: picture.verdict for picture in found.package.pictures} == {
        "라벨/images/불량_스크래치_001.png": "NG",
        "라벨/images/정상.png": "OK",
    }


def test_utf8_names_without_the_flag_are_read_as_utf8(tmp_path: Path) -> None:
    path = raw_zip(tmp_path / "a.zip", [("불량.png".encode(), b"x"), ("정상.png".encode(), b"y")])
    assert names(path) == ["불량.png", "정상.png"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../1.png", "leads out"),
        ("a/../../1.png", "leads out"),
        ("a\\..\\..\\1.png", "leads out"),
        ("/etc/1.png", "leads out"),
        ("C:\\1.png", "leads out"),
        ("\\\\host\\share\\1.png", "leads out"),
        ("1.png\0.txt", "leads out"),
    ],
)
def test_names_that_lead_out_are_refused(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=reason):
        names(raw_zip(tmp_path / "a.zip", [(name.encode(), b"x")]))


def test_links_are_refused_in_zips_and_folders(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("1.png")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as target:
        target.writestr(link, "/etc/passwd")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "1.png").symlink_to("/etc/passwd")
    for path in (tmp_path / "a.zip", folder):
        with pytest.raises(Refused, match="is a link"):
            names(path)


def test_bombs_crowds_and_encrypted_entries_are_refused(tmp_path: Path) -> None:
    bomb = zipped(tmp_path / "bomb.zip", {"1.png": bytes(20 << 20)}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(Refused, match="200 times"):
        names(bomb)
    crowd = zipped(tmp_path / "crowd.zip", {f"{n}.txt": b"" for n in range(11)})
    with pytest.raises(Refused, match="more than 10 files"):
        names(crowd, Limits(entries=10))
    large = zipped(tmp_path / "large.zip", {"1.png": bytes(1000), "2.png": bytes(1000)})
    with pytest.raises(Refused, match="larger than 1999"):
        names(large, Limits(total_bytes=1999))
    with pytest.raises(Refused, match="encrypted"):
        names(raw_zip(tmp_path / "secret.zip", [(b"1.png", b"x")], flags=1))
    with formats.opened(large) as archive, pytest.raises(Refused, match="larger than 999"):
        read_file(archive, "1.png", 999)


def test_one_name_twice_and_no_zip_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="twice"):
        names(raw_zip(tmp_path / "a.zip", [(b"a/1.png", b"x"), (b"a\\1.png", b"y")]))
    (tmp_path / "b.zip").write_bytes(b"PK but no more")
    with pytest.raises(Refused, match="neither a folder nor a zip"):
        names(tmp_path / "b.zip")


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    path = raw_zip(tmp_path / "a.zip", [(b"1.txt", b"hello")])
    path.write_bytes(path.read_bytes().replace(b"hello", b"jello"))
    with formats.opened(path) as archive, pytest.raises(Refused, match=r"“1\.txt” is damaged"):
        read_file(archive, "1.txt")


def test_what_systems_leave_behind_is_passed_over(tmp_path: Path) -> None:
    entries = {"a/1.png": b"x", "__MACOSX/a/._1.png": b"x", "a/.DS_Store": b"x", "Thumbs.db": b"x", "a/": b""}
    assert names(zipped(tmp_path / "a.zip", entries)) == ["a/1.png"]


def test_the_writer_never_writes_a_name_twice_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    for second in ("é.png", "e\u0301.png", "É.png"):
        with pytest.raises(ValueError, match="already"):
            _write_both(tmp_path / "a.zip", "é.png", second)
        assert list(tmp_path.iterdir()) == []


def _write_both(path: Path, first: str, second: str) -> None:
    with ZipWriter(path) as target:
        target.add(first, b"x")
        target.add(second, b"y")


def test_written_names_carry_the_utf8_flag_and_equal_packages_equal_bytes(tmp_path: Path) -> None:
    picture, data = labelled("불량/불량_스크래치_001.png", verdict="OK")
    package = formats.Package((), (picture,))
    (tmp_path / "source.png").write_bytes(data)
    formats.write(package, "coco", pictures=lambda name: data, out=tmp_path / "a.zip")
    formats.write(package, "coco", pictures=lambda name: tmp_path / "source.png", out=tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as made:
        entry = made.getinfo("images/불량/불량_스크래치_001.png")
        assert entry.flag_bits & 0x800
        assert made.read(entry) == data
