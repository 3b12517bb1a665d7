"""Options of passes: as text, from text, refused with a word on what would do."""

from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.passes.framework.base import Pass
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.rewriter import Rewriter


@dataclass(frozen=True)
class Sample(Pass):
    """A pass with an option of every kind."""

    name: ClassVar[str] = "sample"
    limit: int = 64
    factor: float = 0.5
    deep: bool = False
    mode: str = "fast"
    ops: tuple[str, ...] = ("add",)

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        """Nothing to do."""


def test_the_text_of_a_pass_has_the_options_that_differ() -> None:
    assert str(Sample()) == "sample"
    assert str(Sample(limit=3, deep=True)) == "sample{limit=3, deep=true}"
    assert str(Sample(ops=("add", "mul"))) == "sample{ops=add+mul}"


@pytest.mark.parametrize(
    "made",
    [
        Sample(),
        Sample(limit=-1, factor=1e-3, deep=True, mode="slow", ops=("mul", "sub")),
    ],
)
def test_options_read_back(made: Sample) -> None:
    text = str(made).removeprefix("sample").strip("{}")
    options = dict(part.split("=") for part in text.split(", ") if part)
    assert Sample.from_options(options) == made


def test_passes_are_values() -> None:
    assert Sample(limit=2) == Sample(limit=2)
    assert hash(Sample()) == hash(Sample())
    with pytest.raises(FrozenInstanceError):
        Sample().limit = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": "3"}, "pass sample has no option depth"),
        ({"limit": "many"}, "option limit of pass sample takes int, not 'many'"),
        ({"factor": "x"}, "takes float"),
        ({"deep": "perhaps"}, "takes bool, not 'perhaps'"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        Sample.from_options(options)


def test_the_remedy_lists_the_options() -> None:
    with pytest.raises(UnsupportedError) as caught:
        Sample.from_options({"depth": "3"})
    assert caught.value.remedy == "its options: limit, factor, deep, mode, ops"


def test_passes_are_exact_unless_they_say_otherwise() -> None:
    assert Sample.exactness is Exactness.EXACT
