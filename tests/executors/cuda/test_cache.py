"""Compiled kernels on disk: damage, other processes, folders that cannot be written."""

import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from capgraph.executors.cuda.driver.cache import NOWHERE, KernelCache, Module, cache_folder, write_file
from capgraph.executors.cuda.run.selection import Choice, TuningCache

KEYS = [f"{index:064x}" for index in range(3)]


def filled(folder: Path) -> Module:
    module = Module.of(b"machine code")
    KernelCache(folder).keep(KEYS, module)
    return module


def test_what_was_kept_is_found_by_another_cache(tmp_path: Path) -> None:
    module = filled(tmp_path)
    cache = KernelCache(tmp_path)
    assert [cache.find(key) for key in KEYS] == [module] * 3
    assert cache.find("f" * 64) is None
    assert cache.damaged == 0


@pytest.mark.parametrize("content", [b"", b"machine cod", b"machine code and more", b"\0" * 12])
def test_a_damaged_module_counts_as_missing_and_can_be_made_again(tmp_path: Path, content: bytes) -> None:
    module = filled(tmp_path)
    (tmp_path / "modules" / module.digest).write_bytes(content)
    cache = KernelCache(tmp_path)
    assert cache.find(KEYS[0]) is None
    assert cache.damaged == 1
    cache.keep([KEYS[0]], module)
    assert KernelCache(tmp_path).find(KEYS[0]) == module


@pytest.mark.parametrize("content", [b"", b"../../etc/passwd", b"\xff\xfe", b"0" * 63, b"g" * 64, b"0" * 64])
def test_an_entry_that_names_no_module_counts_as_missing(tmp_path: Path, content: bytes) -> None:
    filled(tmp_path)
    (tmp_path / "kernels" / KEYS[0]).write_bytes(content)
    cache = KernelCache(tmp_path)
    assert cache.find(KEYS[0]) is None
    assert cache.damaged == 1
    assert cache.find(KEYS[1]) is not None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = KernelCache(blocked / "cache")
    module = Module.of(b"code")
    cache.keep(KEYS, module)
    assert cache.find(KEYS[0]) is None
    assert cache.keep_failure(KEYS[0], "source", "log") is None


def test_a_file_that_cannot_be_moved_to_its_place_leaves_nothing(tmp_path: Path) -> None:
    with patch.object(Path, "replace", side_effect=OSError("no room")):
        assert not write_file(tmp_path / "folder" / "file", b"content")
    assert list((tmp_path / "folder").iterdir()) == []


def test_what_does_not_compile_is_kept_with_the_log(tmp_path: Path) -> None:
    path = KernelCache(tmp_path).keep_failure(KEYS[0], "int oops", "error: expected a ;")
    assert path is not None
    assert path.read_text() == "int oops"
    assert path.with_suffix(".log").read_text() == "error: expected a ;"


_WRITER = """
import sys
from pathlib import Path
from capgraph.executors.cuda.driver.cache import KernelCache, Module
folder, number = Path(sys.argv[1]), int(sys.argv[2])
for turn in range(60):
    cache = KernelCache(folder)
    for index in range(5):
        module = Module.of(bytes([index]) * 200_000)
        found = cache.find(f"{index:064x}")
        assert found is None or found == module, "half a module was read"
        cache.keep([f"{index:064x}"], module)
    assert cache.damaged == 0
"""


def test_several_processes_never_read_half_a_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    running = [subprocess.Popen([*command, str(each)], stderr=subprocess.PIPE, text=True) for each in range(3)]
    for process in running:
        assert process.wait(timeout=600) == 0, process.stderr.read() if process.stderr else ""
        if process.stderr is not None:
            process.stderr.close()
    assert not [each for each in (tmp_path / "modules").iterdir() if each.name.startswith(".")]


def test_the_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAPGRAPH_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("CAPGRAPH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "capgraph"


def test_who_has_no_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CAPGRAPH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with patch.object(Path, "home", side_effect=RuntimeError("Could not determine home directory.")):
        folder = cache_folder()
        monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
        assert cache_folder() == Path("/elsewhere/capgraph")
    assert folder == NOWHERE
    cache, choices = KernelCache(folder / "kernels"), TuningCache(folder / "tuning")
    cache.keep(KEYS, Module.of(b"code"))
    assert cache.find(KEYS[0]) is None
    assert cache.damaged == 0
    choices.keep("a" * 40, Choice("quick", None, {}))
    assert choices.find("a" * 40) is not None, "what was measured is known to the process"
    assert TuningCache(folder / "tuning").read_all() == 0
