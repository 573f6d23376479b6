"""Atomic writes leave the old file or the new one; slugs are safe names of files."""

import errno
import os
from multiprocessing.pool import ThreadPool

import pytest

from robustassay import files
from robustassay.files import create_atomically, move_into_place, write_atomically
from robustassay.names import slug


@pytest.mark.parametrize("content", [b"\x00\xff", "β ≤ 1\n"])
def test_a_file_is_replaced_and_nothing_else_remains(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text("old")
    write_atomically(path, content)
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "a.json"
    write_atomically(path, "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_file_and_folder_are_flushed_in_that_order_around_the_rename(tmp_path, monkeypatch):
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor: int) -> None:
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def renamed(source: str, path: str) -> None:
        calls.append("rename")
        replace(source, path)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    write_atomically(tmp_path / "a", "new")
    (tmp_path / "part").write_text("whole")
    move_into_place(tmp_path / "part", tmp_path / "b")
    assert calls == ["file", "rename", "folder"] * 2
    assert (tmp_path / "b").read_text() == "whole"


def test_windows_flushes_writable_files_and_no_folders(tmp_path, monkeypatch):
    flags: list[int] = []
    opened = os.open

    def noted(path: str, how: int, *rest: int) -> int:
        flags.append(how)
        return opened(path, how, *rest)

    monkeypatch.setattr(files, "WINDOWS", True)
    monkeypatch.setattr(os, "open", noted)
    write_atomically(tmp_path / "a", "new")
    assert flags == [os.O_RDWR]
    assert (tmp_path / "a").read_text() == "new"


def test_of_several_writers_the_first_creates_the_file(tmp_path):
    path = tmp_path / "manifest.json"
    with ThreadPool(8) as pool:
        pool.map(lambda at: create_atomically(path, str(at) * 1000), range(8))
    held = path.read_text()
    assert len(held) == 1000
    assert len(set(held)) == 1
    create_atomically(path, "later")
    assert path.read_text() == held
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("timm:vit_tiny.augreg/in1k", "timm-vit_tiny.augreg-in1k"),
        ("jpeg(quality=75) | cnn", "jpeg-quality=75-cnn"),
        ("../../etc/passwd", "etc-passwd"),
        (".hidden", "hidden"),
        ("..", "-"),
        ("模型", "-"),
        ("", "-"),
    ],
)
def test_slugs(text, expected):
    assert slug(text) == expected


def test_a_slug_keeps_only_what_is_asked_for():
    assert slug("Linf 8/255 a_b", keep="") == "Linf-8-255-a-b"
