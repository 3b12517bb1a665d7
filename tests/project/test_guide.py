"""The guide's blocks do what they show: sessions and commands run, listings have types, extras and targets exist.

README's run from the wheel, in `test_packaging.py`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.pages import ROOT, blocks, failures, source_of

GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
RUN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *GUIDE]


@pytest.mark.parametrize("page", RUN[1:], ids=lambda page: page.stem)
def test_blocks_do_what_they_show(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert failures(page) == []


def test_blocks_have_types(tmp_path: Path) -> None:
    for page in RUN:
        (tmp_path / f"{page.stem.lower().replace('-', '_')}_page.py").write_text(source_of(page))
    mypy = (
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--allow-subclassing-any",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        str(tmp_path),
    )
    checked = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= {"pycon", "python", "console", "text"}


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_listings_that_do_not_run_say_so(page: Path) -> None:
    listed = sum(block.language == "python" for block in blocks(page))
    assert page.read_text().count("checked for syntax and types only") == listed


def test_a_block_that_shows_something_else_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```pycon\n>>> 1 + 1\n3\n```\n\n```console\n$ make nothing\n$ pip install '.[nothing]'\n$ ls\n"
        "$ capgraph --version\ncapgraph 9\n```\n"
    )
    (found,) = failures(page)
    assert "Expected:\n    3\nGot:\n    2" in found
    assert "there is no target nothing" in found
    assert "there is no extra nothing" in found
    assert "nobody checks the command ls" in found
    assert "expected:\ncapgraph 9\n" in found
