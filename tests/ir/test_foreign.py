"""The registry of foreign meanings: the closest domain wins."""

from collections.abc import Sequence
from typing import Any

import pytest
from capgraph.ir import foreign as registry
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.foreign import meaning_of, register_meaning
from capgraph.ir.graph import Graph, Node, Origin
from capgraph.ir.op import foreign


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_meanings", {})


def node(name: str) -> Node:
    return Graph().append(foreign(name), [], types=[], origin=Origin("layer 1"))


def wide(_node: Node, _operands: Sequence[Any]) -> Sequence[Any]:
    return ()


def close(_node: Node, _operands: Sequence[Any]) -> Sequence[Any]:
    return ()


def test_the_longest_domain_is_looked_up_first() -> None:
    register_meaning("com", wide)
    register_meaning("com.microsoft", close)
    assert meaning_of(node("com.microsoft.Gelu")) is close
    assert meaning_of(node("com.other.Gelu")) is wide


def test_a_later_registration_replaces_an_earlier_one() -> None:
    register_meaning("onnx", wide)
    register_meaning("onnx", close)
    assert meaning_of(node("onnx.Foo")) is close


@pytest.mark.parametrize("name", ["aten.foo.default", "Foo"])
def test_an_unknown_domain_says_what_to_do(name: str) -> None:
    register_meaning("onnx", wide)
    with pytest.raises(UnsupportedError) as caught:
        meaning_of(node(name))
    assert name in caught.value.message
    assert "layer 1" in str(caught.value.where)
    assert "import the frontend" in str(caught.value.remedy)
