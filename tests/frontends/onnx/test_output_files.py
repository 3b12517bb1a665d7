import os
import socket
from pathlib import Path

import pytest
from capgraph.frontends.onnx.files.writing import file_to_write, part_prefix
from capgraph.ir.errors import InputError


def test_a_file_that_is_there_or_not_is_written_as_named(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"")
    assert file_to_write(there) == there
    assert file_to_write(tmp_path / "new") == tmp_path / "new"
    assert file_to_write(there / "new") == there / "new"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_link_is_followed(tmp_path: Path, is_there: bool) -> None:
    folder, link, hop = tmp_path / "folder", tmp_path / "link", tmp_path / "hop"
    folder.mkdir()
    if is_there:
        (folder / "file").write_bytes(b"")
    hop.symlink_to(Path("folder") / "file")
    link.symlink_to(hop)
    assert file_to_write(link) == (folder / "file").resolve()


def test_what_is_no_regular_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    os.mkfifo("fifo")
    Path("link").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    for name, kind in {"fifo": "a FIFO", "link": "a FIFO", ".": "a folder", "socket": "a socket"}.items():
        with pytest.raises(InputError, match=f"is {kind}"):
            file_to_write(Path(name))


def test_names_that_no_file_can_have_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="no name of a file: embedded null"):
        file_to_write(tmp_path / "a\0b")
    with pytest.raises(InputError, match=r"nnn\.\.\.nnn.* cannot be written: File name too long"):
        file_to_write(Path("n" * 300))
    with pytest.raises(InputError, match="cannot be written: Too many levels"):
        file_to_write(tmp_path / "loop")


@pytest.mark.parametrize("letter", ["a", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{PENCIL}"])
def test_a_name_of_full_length_has_room_for_a_part(tmp_path: Path, letter: str) -> None:
    name = letter * (255 // len(letter.encode()))
    (tmp_path / name).write_bytes(b"")
    (tmp_path / f"{part_prefix(tmp_path / name)}abcdefgh.part").write_bytes(b"")
