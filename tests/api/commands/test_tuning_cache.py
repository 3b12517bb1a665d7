import json
from pathlib import Path

import pytest
from capgraph.cli import main
from capgraph.executors.cuda.driver.cache import FOLDER_VARIABLE
from capgraph.executors.cuda.run.selection import Choice, TuningCache

CHOICE = Choice("quick", {"version": 3}, {"quick": 1e-6, "slow": 2e-6})


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TuningCache:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    return TuningCache(tmp_path / "cache" / "tuning")


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_entries_are_carried_by_a_file(kept: TuningCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept.keep("a" * 40, CHOICE)
    file = tmp_path / "tuning.json"
    assert main(["tuning-cache", "--json", "--export", str(file)]) == 0
    assert report(capsys) == {"folder": str(kept.folder), "kept": 1, "imported": 0}
    for each in kept.folder.iterdir():
        each.unlink()
    assert main(["tuning-cache", "--json"]) == 0
    assert report(capsys)["kept"] == 0
    assert main(["tuning-cache", "--json", "--import", str(file)]) == 0
    assert report(capsys)["imported"] == 1
    assert TuningCache(kept.folder).find("a" * 40) == CHOICE


def test_the_same_in_words(kept: TuningCache, capsys: pytest.CaptureFixture[str]) -> None:
    kept.keep("b" * 40, CHOICE)
    assert main(["tuning-cache"]) == 0
    assert capsys.readouterr().out == f"1 entries in {kept.folder}, 0 of them imported\n"


@pytest.mark.parametrize("content", [{"../evil": CHOICE.as_json()}, {"a": 1}, [1]])
def test_what_is_no_export_is_refused_and_nothing_is_written(
    kept: TuningCache, content: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tuning.json"
    file.write_text(json.dumps(content))
    assert main(["tuning-cache", "--import", str(file)]) == 1
    said = capsys.readouterr().err
    assert f"{file} cannot be imported: this is no exported tuning cache" in said
    assert "--export" in said
    assert not kept.folder.parent.exists()


@pytest.mark.parametrize("arguments", [["--import"], ["--export"]])
def test_a_file_that_cannot_be_used_is_one_error(
    kept: TuningCache, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tuning-cache", *arguments, str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert kept.read_all() == 0


@pytest.mark.parametrize("content", [b"weights", b"\xff\xfe", b'{"a": 1}', b"{"])
def test_what_is_no_tuning_cache_is_not_replaced(
    kept: TuningCache, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.keep("a" * 40, CHOICE)
    file = tmp_path / "file"
    file.write_bytes(content)
    assert main(["tuning-cache", "--export", str(file)]) == 1
    assert f"{file} is there already, and is no tuning cache" in capsys.readouterr().err
    assert file.read_bytes() == content


def test_earlier_caches_and_empty_files_are_replaced(kept: TuningCache, tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    file.touch()
    assert main(["tuning-cache", "--export", str(file)]) == 0
    kept.keep("a" * 40, CHOICE)
    assert main(["tuning-cache", "--export", str(file)]) == 0
    assert "a" * 40 in file.read_text()
