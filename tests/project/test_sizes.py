"""How much there is of what grows: kept measurements, and files of a folder."""

from pathlib import Path
from statistics import median

from tests.project.imports import package_folders
from tests.project.pages import PAGES, ROOT

MOST_RESULT_LINES = 1500
"""Lines of all tables in `benchmarks/results/`, each of which a page cites."""


def test_kept_measurements_are_few_and_cited() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    results = sorted((ROOT / "benchmarks" / "results").iterdir())
    assert sum(len(path.read_text().splitlines()) for path in results) <= MOST_RESULT_LINES
    assert [path.name for path in results if path.name not in pages] == []


LEAST_LINES, MOST_LINES = 120, 300
"""Lines of the median source file of a folder: below, a reader opens many files; above, files have several subjects."""


def test_the_median_file_of_a_folder_is_neither_small_nor_large() -> None:
    lines: dict[Path, list[int]] = {}
    for path in dict.fromkeys(path for folder in package_folders().values() for path in folder.rglob("*.py")):
        if path.name not in ("__init__.py", "__main__.py"):
            lines.setdefault(path.parent.relative_to(ROOT), []).append(len(path.read_text().splitlines()))
    medians = {str(folder): median(counts) for folder, counts in lines.items()}
    assert {folder: found for folder, found in medians.items() if not LEAST_LINES <= found <= MOST_LINES} == {}
