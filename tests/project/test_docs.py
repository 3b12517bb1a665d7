"""Pages say what is so: the op table is that of the ops, links lead somewhere, and what is named exists."""

import re
import subprocess
import sys
from pathlib import Path

import capgraph
import pytest
from capgraph.executors.replay.options import CaptureOptions

from docs import generate_reference
from docs.generate_ops import PAGE, unexplained_traits
from tests.onnx_suite.importing import KNOWN_FAILURES, SKIPPED
from tests.project.pages import PAGES, ROOT

LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"`((?:api|ir|frontends|passes|executors|tests|benchmarks|examples|docs|requirements)/[\w./]*)`")
SOURCE = re.compile(r"`([\w./]+\.py)`")
SOURCES = [
    f"/{path.relative_to(ROOT).as_posix()}"
    for folder in ("api", "benchmarks", "docs", "examples", "executors", "frontends", "ir", "passes", "tests")
    for path in (ROOT / folder).rglob("*.py")
]


def test_the_op_table_is_up_to_date() -> None:
    """In a process of its own: tests before this one may have added to the tables that it reads, or taken from them."""
    script = "from docs.generate_ops import page; print(page(), end='')"
    made = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert PAGE.read_text() == made.stdout, "run: python -m docs.generate_ops"
    assert unexplained_traits() == []


@pytest.mark.parametrize("name", generate_reference.PAGES)
def test_the_reference_is_up_to_date(name: str) -> None:
    written = (generate_reference.FOLDER / name).read_text()
    assert written == generate_reference.page(name), "run: python docs/generate_reference.py"


def test_the_reference_explains_every_public_name_and_option() -> None:
    told = (ROOT / "docs" / "reference" / "api.md").read_text() + (
        ROOT / "docs" / "reference" / "errors.md"
    ).read_text()
    public = [name for name in capgraph.__all__ if not name.startswith("__")]
    assert [name for name in public if f"## {name}\n" not in told and f"| `{name}` |" not in told] == []
    options = (ROOT / "docs" / "reference" / "options.md").read_text()
    assert [name for name in CaptureOptions.__dataclass_fields__ if f"| `{name}` |" not in options] == []


def test_every_exception_from_the_backend_suite_is_named() -> None:
    named = set(re.findall(r"^\| `(test_\w+)`", (ROOT / "docs" / "onnx.md").read_text(), re.MULTILINE))
    assert named == SKIPPED.keys() | KNOWN_FAILURES.keys()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    targets = [target for target in LINK.findall(path.read_text()) if not target.startswith("https://")]
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_folders_that_are_named_exist(path: Path) -> None:
    named = [name for name in NAMED.findall(path.read_text()) if "FAMILY" not in name]
    assert [name for name in named if not (ROOT / name).exists()] == []


def unclear_sources(text: str) -> list[str]:
    """Python files named in `text` that do not exist, or whose name with folders fits several."""
    named = [name for name in SOURCE.findall(text) if "FAMILY" not in name]
    counts = {name: sum(source.endswith(f"/{name}") for source in SOURCES) for name in named}
    return [name for name, count in counts.items() if not count or ("/" in name and count > 1)]


# Decisions and the changelog tell what was: they may name files that are gone.
@pytest.mark.parametrize(
    "path",
    [path for path in PAGES if path.parent.name != "decisions" and path.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_source_files_that_are_named_without_their_whole_path_exist(path: Path) -> None:
    assert unclear_sources(path.read_text()) == []


def test_names_of_source_files_that_mislead_are_found() -> None:
    text = "`rules/linear.py`, `fusion_groups.py`, `lowering.py`, `gone.py`, `gemm/gone.py`, `commands/__init__.py`"
    assert unclear_sources(text) == ["gone.py", "gemm/gone.py"]
    assert unclear_sources("`ops/indexing.py`") == ["ops/indexing.py"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_of_prose_are_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert [line for line in lines if len(line) > 140 and not line.startswith("|")] == []
