"""How much there is of what grows: kept measurements."""

from tests.project.pages import PAGES, ROOT

MOST_RESULT_LINES = 1500
"""Lines of all tables in `benchmarks/results/`, each of which a page cites."""


def test_kept_measurements_are_few_and_cited() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    results = sorted((ROOT / "benchmarks" / "results").iterdir())
    assert sum(len(path.read_text().splitlines()) for path in results) <= MOST_RESULT_LINES
    assert [path.name for path in results if path.name not in pages] == []
