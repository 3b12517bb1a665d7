"""Pages say what is so: the op table is that of the ops, links lead somewhere, and what is named exists."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate_ops import PAGE, page, unexplained_traits
from tests.onnx_suite.importing import KNOWN_FAILURES, SKIPPED

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"`((?:api|ir|frontends|passes|executors|tests|benchmarks|examples|docs|requirements)/[\w./]*)`")


def test_the_op_table_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python docs/generate_ops.py"
    assert unexplained_traits() == []


def test_the_examples_of_the_readme_do_what_they_show() -> None:
    found = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert found.attempted >= 10
    assert found.failed == 0


def test_the_examples_of_the_readme_have_types(tmp_path: Path) -> None:
    examples = doctest.DocTestParser().get_examples((ROOT / "README.md").read_text())
    script = tmp_path / "readme.py"
    script.write_text("".join(example.source for example in examples))
    mypy = (sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(script))
    checked = subprocess.run(mypy, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_exception_from_the_backend_suite_is_named() -> None:
    named = set(re.findall(r"^\| `(test_\w+)`", (ROOT / "docs" / "onnx.md").read_text(), re.MULTILINE))
    assert named == SKIPPED.keys() | KNOWN_FAILURES.keys()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = [target for target in LINK.findall(path.read_text()) if not target.startswith("https://")]
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_and_folders_that_are_named_exist(path: Path) -> None:
    named = [name for name in NAMED.findall(path.read_text()) if "FAMILY" not in name]
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lines_of_prose_are_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert [line for line in lines if len(line) > 140 and not line.startswith("|")] == []
