"""Each decision has a number of its own, a measured number, a price, and a row of the index."""

import re
from pathlib import Path

import pytest

from tests.project.pages import ROOT

FOLDER = ROOT / "docs" / "decisions"
DECISIONS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


def test_numbers_are_given_once_and_in_order() -> None:
    numbers = [int(path.name[:3]) for path in DECISIONS]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_a_title_a_number_and_a_price(path: Path) -> None:
    title, *paragraphs = path.read_text().rstrip("\n").split("\n\n")
    assert re.fullmatch(rf"# {path.name[:3]}\. \S.*", title)
    assert len(paragraphs) == 3
    assert paragraphs[1].startswith("**Number:** ")
    assert paragraphs[2].startswith("**Price:** ")


def test_the_index_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| (\d{3}) \| \[(.*)\]\((.*)\) \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    titles = {path.name: path.read_text().splitlines()[0] for path in DECISIONS}
    assert {name: f"# {number}. {title}" for number, title, name in rows} == titles
    assert len(rows) == len(titles)
