from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.frontends.torch.model import TorchModel
from capgraph.ir.analysis.contents import ROUNDS_ALL, ROUNDS_NOTHING, Tf32
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph
from capgraph.ir.node import write
from capgraph.ir.types import DType, TensorType
from capgraph.optimization import Choices
from capgraph.passes.framework.base import Pass
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.framework.rewriter import Rewriter
from capgraph.sources import LoadedModel

from tests.api.models import affine, model, with_default


def test_a_model_runs() -> None:
    program = capgraph.optimize(affine())
    assert program.run({"x": np.array([[0, 1, 2]], np.float32)})["y"].tolist() == [[1, 3, 5]]


@pytest.mark.parametrize(
    "options",
    [
        {"executor": "eager"},
        {"device": "host"},
        {"mode": "none"},
        {"level": 0},
        {"level": 3},
        {"verify": "none"},
        {"verify": "numeric"},
        {"strict": True},
        {"threads": 1},
        {"executor": "graph"},
        {"freeze_initializers": True},
    ],
)
def test_options_that_are_there(options: dict[str, Any]) -> None:
    assert capgraph.optimize(affine(), **options).run({"x": np.zeros((0, 3), np.float32)})["y"].shape == (0, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "gpu"}, r"no executor 'gpu'\n.*auto, ort, eager, graph"),
        ({"device": "tpu"}, "device='tpu' is not known"),
        ({"mode": "piecewise"}, "mode='piecewise' is for programs that record"),
        ({"executor": "graph", "device": "tpu"}, "device='tpu' is not known"),
        ({"executor": "graph", "capture": {"bugdet": 1}}, "capture has no option 'bugdet'"),
        ({"executor": "graph", "capture": {"inputs": {"x": "move"}}}, "x='move' is not known"),
        ({"mode": "fast"}, "mode='fast' is not known"),
        ({"dynamic": {"batch": (1, 8)}}, "dynamic=.* is for programs that record"),
        ({"buckets": {"batch": [1, 2]}}, "buckets=.* is for programs that record"),
        ({"device": 0}, "device=0 is no name"),
        ({"device": None}, "device=None is no name"),
        ({"executor": 3, "device": "cuda"}, "executor=3 is no name"),
        ({"tf32": True}, "tf32=True is for matmuls on a GPU"),
        ({"tf32": 1, "device": "cuda"}, "tf32=1 is not known"),
        ({"tf32": True, "device": "cuda", "executor": "ort"}, "tf32=True is for matmuls on a GPU"),
        ({"tune": "yes"}, "tune='yes' is not known"),
        ({"freeze_initializers": 3}, "freeze_initializers=3 is not known"),
        ({"strict": "x"}, "strict='x' is not known"),
        ({"executor": "graph", "capture": {"inputs": "copy"}}, "inputs='copy' is not known"),
        ({"level": 7}, "level=7 is not known"),
        ({"level": "2"}, "level='2' is not known"),
        ({"level": True}, "level=True is not known"),
        ({"verify": "yes"}, "verify='yes' is not known"),
        ({"threads": 0}, "threads=0 is no number of threads"),
        ({"threads": True}, "threads=True is no number of threads"),
        ({"threads": 2**31}, "threads=2147483648 is no number of threads"),
        ({"threads": 2.0}, "threads=2.0 is no number of threads"),
        ({"threads": 2, "executor": "graph"}, "threads=2 is for ONNX Runtime on the CPU, not for executor='graph'"),
        ({"threads": 2, "executor": "ort", "device": "cuda"}, "on device='cuda'"),
    ],
)
def test_options_that_are_not_there_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(capgraph.UnsupportedError, match=message) as caught:
        capgraph.optimize(affine(), **options)
    assert caught.value.remedy


def test_factors_are_rounded_by_level_option_or_the_settings_of_pytorch() -> None:
    model = LoadedModel(affine())
    asked = [*({"level": level} for level in range(4)), {"level": 0, "tf32": True}, {"level": 3, "tf32": False}]
    found = [Choices(device="cuda", **options).tf32_of(model) for options in asked]
    assert found == [ROUNDS_NOTHING] * 3 + [ROUNDS_ALL] * 2 + [ROUNDS_NOTHING]
    assert Choices(level=3).tf32_of(model) == ROUNDS_NOTHING
    module = LoadedModel(affine(), torch=TorchModel(affine()))
    assert Choices(device="cuda").tf32_of(module) == Tf32(convolutions=True, cells=True)


def test_example_inputs_are_for_modules() -> None:
    with pytest.raises(capgraph.InputError, match="args"):
        capgraph.optimize(affine(), args=(1,))


def test_options_are_checked_before_the_model_is_read() -> None:
    with pytest.raises(capgraph.UnsupportedError):
        capgraph.optimize("missing.onnx", executor="gpu")


def test_frozen_initializers_are_no_inputs() -> None:
    assert capgraph.optimize(with_default()).optional_inputs == {"w"}
    frozen = capgraph.optimize(with_default(), freeze_initializers=True)
    assert list(frozen.inputs) == ["x"]
    assert frozen.run({"x": np.zeros(3, np.float32)})["y"].tolist() == [1, 2, 3]


def test_a_broken_graph_is_found_before_it_runs() -> None:
    b = Builder()
    graph: Graph = b.finish({"y": b.op("exp", b.input("x", "f32[2]"))})
    write(graph.outputs[0], "type", TensorType(DType.F32, (3,)))
    with pytest.raises(capgraph.InvalidGraphError):
        capgraph.optimize(graph)


def test_the_graph_that_runs_is_the_optimized_one() -> None:
    b = Builder()
    x = b.input("x", "f32[2]")
    graph = b.finish({"y": b.op("neg", b.op("neg", b.op("exp", x)))})
    assert len(capgraph.optimize(graph, level=0).graph) == 3
    program = capgraph.optimize(graph)
    assert len(program.graph) == 1
    assert program.report.rewrites == 1
    assert program.run({"x": np.zeros(2, np.float32)})["y"].tolist() == [1, 1]


def test_a_wrong_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgraph.executors.base.level_pipeline", lambda _: Pipeline(((DropsTheLastAddition(),),)))
    assert capgraph.optimize(affine()).run({"x": np.ones((1, 3), np.float32)})["y"].tolist() == [[2, 2, 2]]
    with pytest.raises(capgraph.InternalError, match=r"pass drops-the-last-addition changed what .*output y"):
        capgraph.optimize(affine(), verify="numeric")


class DropsTheLastAddition(Pass):
    name = "drops-the-last-addition"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.nodes:
            if node.op.name == "add" and rewriter.may_rewrite("drop", node):
                rewriter.replace(node, node.operands[0])


def test_the_callers_graph_may_be_edited_afterwards() -> None:
    b = Builder()
    x = b.input("x", "f32[2]")
    graph = b.finish({"y": b.op("exp", x)})
    program = capgraph.optimize(graph)
    graph.set_outputs([x])
    assert program.run({"x": np.zeros(2, np.float32)})["y"].tolist() == [1, 1]


def test_strict_refuses_a_model_that_onnxruntime_does_not_run_whole() -> None:
    greatest = model("main (float[4] x) => (int64[1] y) { y = ArgMax(x) }")
    assert "run eagerly" in capgraph.optimize(greatest, executor="ort").explain()
    with pytest.raises(capgraph.UnsupportedError, match="cannot run the whole graph"):
        capgraph.optimize(greatest, executor="ort", strict=True)
