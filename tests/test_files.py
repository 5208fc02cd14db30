"""A file is written whole or not at all, and only where a plain file may be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.files import check_picture, whole_file


def write(path: Path, text: str = "new") -> None:
    with whole_file(path) as partial:
        partial.write_text(text)


def write_half(path: Path) -> None:
    with whole_file(path) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt


def test_the_file_takes_the_place_of_the_former_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    write(tmp_path / "a")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "new")]


def test_a_failure_leaves_the_former_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_half(tmp_path / "a")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("a")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "new"


def test_what_is_no_plain_file_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "folder", "link"):
        with pytest.raises(InputError, match="not a plain file"):
            write(tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("name", ["no/folder", "file/below", "n" * 300])
def test_a_place_that_cannot_be_is_one_message(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_ending_of_a_picture_is_checked() -> None:
    check_picture(Path("a.PNG"))
    with pytest.raises(InputError, match=r"neither .png"):
        check_picture(Path("a"))
