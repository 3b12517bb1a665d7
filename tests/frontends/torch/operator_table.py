"""docs/reference/torch-operators.md: what is claimed of PyTorch's operators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "torch-operators.md"
UNCLAIMED: dict[str, str] = {}
"""Operators that are not claimed, and why: their samples are not run."""


@dataclass(frozen=True)
class Row:
    """What is claimed of an operator: how many of its samples are native, of how many; foreign operators in others."""

    name: str
    native: int
    total: int
    foreign: tuple[str, ...]

    def __str__(self) -> str:
        rest = ", ".join(f"`{name}`" for name in self.foreign) or ("" if self.native == self.total else "PyTorch")
        return f"| {self.name} | {self.native} of {self.total} | {rest} |"


_HEAD = """# PyTorch's operators

Made by `make test-ops` from all of PyTorch {version}'s own samples of its operators (`op_db`, f32, forward): {samples}
samples of {rows} operators, each through `torch.compile(backend="capgraph")` and equal to eager PyTorch. A sample is
native if its whole graph is: no node of it runs in PyTorch. The last column names what does in the others; "PyTorch"
stands where a result's size or a branch depends on data, so that torch.compile leaves the call to PyTorch (torch.export
captures many of these). Sparse and half-precision complex tensors are not taken. Of what is drawn, dtype and shape are
compared.

{native} operators are native in all their samples, {some} in some.

| operator | native samples | otherwise |
|---|---|---|
"""
_UNCLAIMED = """
## Not claimed

| operator | why |
|---|---|
"""


def page(rows: Sequence[Row], unclaimed: Mapping[str, str]) -> str:
    """The text of docs/reference/torch-operators.md; `unclaimed` says why the others are not claimed."""
    head = _HEAD.format(
        version=torch.__version__.partition("+")[0],
        native=sum(row.native == row.total for row in rows),
        rows=len(rows),
        some=sum(0 < row.native < row.total for row in rows),
        samples=sum(row.total for row in rows),
    )
    text = head + "".join(f"{row}\n" for row in rows)
    if unclaimed:
        text += _UNCLAIMED + "".join(f"| {name} | {why} |\n" for name, why in unclaimed.items())
    return text


def claimed() -> dict[str, tuple[int, int]]:
    """What the page says: native samples and all samples, by operator; nothing where there is no page yet."""
    text = PAGE.read_text() if PAGE.exists() else ""
    found: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        if len(parts) == 3 and " of " in parts[1]:
            native, _, total = parts[1].partition(" of ")
            found[parts[0]] = (int(native), int(total))
    return found
