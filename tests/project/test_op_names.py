"""No list and no comparison of op names stands outside their rows and own tables: see tests/project/op_names.py."""

from collections import Counter
from types import ModuleType

import pytest
from capgraph.frontends.onnx import ops as onnx_ops
from capgraph.frontends.torch import ops as torch_ops
from capgraph.passes.planning.padding import rules

from docs.op_matrix import rows_of
from tests.project.op_names import find, find_in_package


def test_facts_of_ops_stand_in_their_rows() -> None:
    """Ask a trait (`op.has(Trait.VIEW)`), or name one op as an object (`node.op is TRANSPOSE`)."""
    assert [str(each) for each in find_in_package()] == []


@pytest.mark.parametrize(
    "planted",
    [
        'VIEWS = frozenset({"reshape", "squeeze"})',
        'VIEWS = ("reshape", *MORE, "squeeze")',
        'VIEWS = frozenset("reshape squeeze".split())',
        'COST = {"add": 1, "exp": 4}',
        'if node.op.name == "add": pass',
        'if node.op.name in ("add", *MORE): pass',
        'if "add" != op.name: pass',
        'if node.op.name.startswith("reduce_"): pass',
        'name = node.op.name\nif name == "add": pass',
        'match node.op.name:\n    case "add" | "sub": pass',
    ],
)
def test_a_list_of_names_is_found(planted: str) -> None:
    assert len(find(planted)) == 1


@pytest.mark.parametrize(
    "allowed",
    [
        "if node.op is ADD: pass",
        'rewriter.op("add", x, y)',
        'RULES = {"add": _of_add, "sub": _of_sub}',
        'if case.op.name in TABLE and node.attrs["size"] == 1: pass',
        'for axis in ("height", "size"): pass',
        'if kind in ("max", "min"): pass',
        'if name == "min": pass',
        'if node.op.name.startswith("onnx."): pass',
    ],
)
def test_what_is_no_list_of_names_is_left_alone(allowed: str) -> None:
    assert find(allowed) == []


@pytest.mark.parametrize(
    ("package", "table"), [(torch_ops, "TABLE"), (onnx_ops, "IMPORTS"), (onnx_ops, "EXPORTS"), (rules, "RULES")]
)
def test_tables_that_are_joined_have_one_row_for_a_name(package: ModuleType, table: str) -> None:
    counts = Counter(name for name, _ in rows_of(package, table))
    assert [name for name, count in counts.items() if count > 1] == []
