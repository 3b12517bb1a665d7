"""The cases of the table of ops: enough of them, each right beside PyTorch on the CPU where it is small."""

from argparse import Namespace
from collections import defaultdict

import pytest
import torch
from capgraph.ir.ops import OPS

from benchmarks.gpu import op_cases_heavy
from benchmarks.gpu.op_cases import Operand
from benchmarks.gpu.op_table import Found, all_cases, check_on_host, difference, drawn, table


def test_every_op_has_cases_or_a_reason() -> None:
    cases = list(all_cases())
    assert len(cases) >= 200
    assert len({case.name for case in cases}) == len(cases)
    excused = " ".join(op_cases_heavy.NOT_HERE.values()).replace(",", " ").split()
    missing = OPS.keys() - {case.op for case in cases} - set(excused)
    assert not {op for op in missing if not op.startswith("dynamic_")}


def test_every_op_has_three_sizes_in_both_precisions() -> None:
    others = {"arange": "counts beyond 2048", "one_hot": "PyTorch's has i64", "det": "PyTorch has none of halves"}
    others["keyed_multinomial"] = "PyTorch adds up weights in their dtype, which 1e5 halves overflow"
    names: defaultdict[str, set[str]] = defaultdict(set)
    for case in all_cases():
        names[case.op].add(case.name)
    for op, found in names.items():
        admitted = OPS[op].operands[0].dtypes if OPS[op].operands else frozenset()
        wanted = {"f16", "f32"} & {each.value for each in admitted} if op not in others else set()
        assert len({name.rpartition(" ")[0] for name in found}) >= 3, op
        assert wanted <= {name.rpartition(" ")[2] for name in found}, op


def test_operands_are_read_from_their_text() -> None:
    assert Operand.parse("=i64:4x3<7", "f16") == Operand(True, "i64", (4, 3), "<7")
    assert Operand.parse("()+", "f32").type == "f32[]"
    with pytest.raises(ValueError, match="no operand"):
        Operand.parse("4 x 3", "f16")


@pytest.mark.parametrize(
    "only", ["^(relu|add|cast-f32|max) 1x768", "^tensor_scatter 1x8x2048", "^transpose 64x768", "^scatter_add 64x512"]
)
def test_cases_mean_what_pytorch_does(only: str) -> None:
    assert not check_on_host(Namespace(only=only, stage="1/1"))


def test_what_is_wrong_is_told() -> None:
    case = next(case for case in all_cases() if case.name == "relu 1x768 f32")
    (x,) = drawn(case, "cpu")
    right = torch.relu(x)
    assert not difference([right], right, case)
    assert "error" in difference([right + 0.01], right, case)
    assert "is [768]" in difference([right.view(-1)], right, case)


def test_the_table_begins_with_what_is_worst_and_has_dtypes_side_by_side() -> None:
    rows = [
        Found("a 1x8 f32", "relu", 1.0, 2.0),
        Found("b 1x8 f32", "add", 3.0, 2.0, notes="host"),
        Found("a 1x8 f16", "relu", 1.0, 4.0),
        Found("c 4 i64", "mul", None, None, notes="FAILED"),
    ]
    lines = table(rows).splitlines()
    assert "4 cases of 3 ops" in lines[0]
    assert "median 0.50, worst 1.50, 1 above 1.25; 1 host, 0 WRONG, 1 FAILED" in lines[0]
    assert [line.split() for line in lines[2:5]] == [
        ["c", "4", "i64", "-", "-", "-", "(FAILED)"],
        ["b", "1x8", "f32", "1.500", "3.00", "2.00", "(host)"],
        ["a", "1x8", "f32", "0.500", "1.00", "2.00", "f16", "0.250", "1.00", "4.00"],
    ]
