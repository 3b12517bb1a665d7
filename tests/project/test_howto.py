"""The howto pages: each diff fits, is short, and brings a test that passes with it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.executors.cuda.emulator import HAS_COMPILER
from tests.project.pages import ROOT, apply_diff, blocks

HOWTO = ROOT / "docs" / "howto"
MOST_LINES = 60


def run(arguments: Sequence[str], package: Path) -> str:
    """What a Python process prints that imports the package in the folder `package`, whose tests are there too."""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    ran = subprocess.run(
        (sys.executable, *arguments), cwd=package, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def diff_of(page: str) -> str:
    """The one diff of a page, which is short."""
    (diff,) = (block.text for block in blocks(HOWTO / page) if block.language == "diff")
    assert sum(line.startswith("+") and not line.startswith("+++") for line in diff.splitlines()) < MOST_LINES
    return diff


def test_the_diff_that_adds_a_pass(tmp_path: Path) -> None:
    changed = apply_diff(diff_of("add-a-pass.md"), tmp_path, ["tests/passes/checking.py"])
    (test,) = (path for path in changed if path.startswith("tests/"))
    assert "1 passed" in run(["-m", "pytest", "-q", "-p", "no:cacheprovider", test], tmp_path)


ELSEWHERE = """
from capgraph.executors.cuda.kernel_ir.expressions import EXPRESSIONS
from capgraph.executors.cuda.kernel_ir.types import Name
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from capgraph.passes.recognize.recognize_activations import RecognizeActivations
from capgraph.passes.framework.pipeline import Pipeline

graph = parse("graph @f(%x: f32[N]) { %t: f32[N] = tanh(%x) %y: f32[N] = sub(%x, %t) return %y }")
Pipeline(((RecognizeActivations(),),)).run(graph)
print(*(node.op.name for node in graph.nodes))
print(*(node.op_type for node in export_model(graph).graph.node))
print(EXPRESSIONS["tanhshrink"]([Name("x", DType.F32)], None, DType.F32))
"""


def test_the_diff_that_adds_an_elementwise_op(tmp_path: Path) -> None:
    helpers = [f"tests/ir/ops/{name}.py" for name in ("drawn_arrays", "native_runs", "onnx_oracle", "test_activation")]
    apply_diff(diff_of("add-an-elementwise-op.md"), tmp_path, helpers)
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "tanhshrink", "tests/ir/ops/test_activation.py"]
    assert "2 passed" in run(test, tmp_path)
    assert run(["-c", ELSEWHERE], tmp_path).splitlines() == ["tanhshrink", "Tanh Sub", "(x - (tanhf(x)))"]


JUDGING = ["tests/passes/planning/padding/judging.py", "tests/passes/planning/padding/poison.py", "tests/strategies"]
EMULATION = ["tests/strategies", "tests/executors/cuda/emulator.py"]
EMULATION += [f"tests/executors/cuda/codegen/{name}.py" for name in ("cases", "emulated", "running")]


@pytest.mark.parametrize(
    ("page", "copied"),
    [
        pytest.param(
            "add-a-kernel.md", EMULATION, marks=pytest.mark.skipif(not HAS_COMPILER, reason="kernels compile with g++")
        ),
        ("add-an-executor.md", []),
        ("add-a-lowering.md", []),
        ("add-a-padding-rule.md", JUDGING),
    ],
)
def test_a_diff_whose_own_test_says_what_it_does(page: str, copied: list[str], tmp_path: Path) -> None:
    (test,) = (path for path in apply_diff(diff_of(page), tmp_path, copied) if path.startswith("tests/"))
    assert "1 passed" in run(["-m", "pytest", "-q", "-p", "no:cacheprovider", test], tmp_path)
