"""Each decision has a number of its own, a price, a row of the index, and what was measured, if anything was."""

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
def test_a_decision_has_a_title_a_reason_and_a_price_and_may_have_a_number(path: Path) -> None:
    title, reason, *measured, price = path.read_text().rstrip("\n").split("\n\n")
    assert re.fullmatch(rf"# {path.name[:3]}\. \S.*", title)
    assert not reason.startswith("**")
    assert price.startswith("**Price:** ")
    assert len(measured) <= 1
    assert all(each.startswith("**Number:** ") and "not measured" not in each for each in measured)


def test_the_index_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| (\d{3}) \| \[(.*)\]\((.*)\) \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    titles = {path.name: path.read_text().splitlines()[0] for path in DECISIONS}
    assert {name: f"# {number}. {title}" for number, title, name in rows} == titles
    assert len(rows) == len(titles)
