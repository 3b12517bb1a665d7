from pathlib import Path

import pytest
import torch

from tests.frontends.torch import operator_table
from tests.frontends.torch.operator_table import UNCLAIMED, Row, claimed, page

ROWS = [Row("add", 3, 3, ()), Row("svd", 0, 2, ("aten.svd.default",)), Row("max (binary)", 1, 2, ())]


def test_the_page_is_read_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text(page(ROWS, {"eig": "its signs are free"}))
    monkeypatch.setattr(operator_table, "PAGE", tmp_path / "page.md")
    assert claimed() == {"add": (3, 3), "svd": (0, 2), "max (binary)": (1, 2)}


def test_the_page_says_what_runs_in_pytorch_and_what_is_not_claimed() -> None:
    text = page(ROWS, {"eig": "its signs are free"})
    assert "| svd | 0 of 2 | `aten.svd.default` |" in text
    assert "| max (binary) | 1 of 2 | PyTorch |" in text
    assert "| eig | its signs are free |" in text
    assert "7 samples of 3 operators" in text.replace("\n", " ")


def test_the_page_is_of_this_pytorch() -> None:
    assert f"PyTorch {torch.__version__.partition('+')[0]}'s" in operator_table.PAGE.read_text()


def test_nothing_is_both_claimed_and_not() -> None:
    assert not set(UNCLAIMED) & set(claimed())
