"""Sessions over fixed memory, on the CPU's provider, and on providers that are not what they seem."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from capgraph.executors.ort.gpu import session as module
from capgraph.executors.ort.gpu.session import (
    Provider,
    SubgraphSession,
    cuda_provider,
    is_refused_recording,
    off_device,
    opened_on,
)
from capgraph.executors.ort.session import STANDARD, Written
from capgraph.frontends.onnx.contrib import OPERATORS
from capgraph.ir.errors import CaptureError, ExecutionError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.text.parser import parse

from tests.executors.ort.gpu.on_host import HOST

ADDED = "graph @added(%x: f32[B, 3], %y: f32[B, 3]) { %z: f32[B, 3] = add(%x, %y) return %z }"
GELU = """
graph @g(%x: f32[4, 8], %w: f32[8, 6], %b: f32[6]) {
  %m: f32[4, 6] = matmul(%x, %w)
  %s: f32[4, 6] = add(%m, %b)
  %y: f32[4, 6] = gelu(%s)
  return %y
}
"""


def place(array: np.ndarray) -> tuple[tuple[int, ...], int]:
    return array.shape, array.ctypes.data


def session(text: str = ADDED, provider: Provider = HOST, written: Written = STANDARD) -> SubgraphSession:
    return SubgraphSession(parse(text), provider, is_recorded=True, written=written)


def test_a_session_reads_and_writes_the_memory_that_is_bound():
    made = session()
    x, y, z = (np.full((2, 3), number, np.float32) for number in (1, 2, 0))
    binding = made.bind([place(x), place(y)], [place(z)])
    made.run(binding)
    assert (z == 3).all()
    x[:] = 5
    number = made.take(binding)
    made.replay(binding, number)
    assert (z == 7).all()
    assert made.recorded == 1
    made.release(number)
    assert made.recorded == 0


def test_a_number_is_checked_against_its_memory():
    made = session()
    x, y, z = (np.zeros((2, 3), np.float32) for _ in range(3))
    number = made.take(made.bind([place(x), place(y)], [place(z)]))
    other = made.bind([place(y), place(x)], [place(z)])
    with pytest.raises(CaptureError, match="was recorded with x"):
        made.replay(other, number)


def test_other_sizes_fail_with_an_error_that_names_the_graph():
    made = session()
    x, y, z = (np.zeros((size, 3), np.float32) for size in (2, 4, 2))
    with pytest.raises(ExecutionError, match="ONNX Runtime failed") as caught:
        made.run(made.bind([place(x), place(y)], [place(z)]))
    assert caught.value.where == "graph added"


def test_a_provider_that_the_installed_build_lacks_is_named():
    with pytest.raises(UnsupportedError, match="has no CUDAExecutionProvider, only") as caught:
        session(provider=cuda_provider(0, 7))
    assert "onnxruntime-gpu" in (caught.value.remedy or "")


class Elsewhere:
    """A session that silently got another provider."""

    def __init__(self, nodes: Sequence[tuple[str, str, str]] = ()) -> None:
        self._nodes = nodes

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        def part(ep: str, name: str, operator: str) -> Any:
            node = type("Node", (), {"name": name, "op_type": operator})()
            return type("Part", (), {"ep_name": ep, "get_nodes": lambda _self: [node]})()

        return [part(*each) for each in self._nodes]


def test_a_session_is_asked_which_provider_it_got(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_check_offered", lambda _provider: None)
    monkeypatch.setattr(module, "opened", lambda *_arguments, **_options: Elsewhere())
    with pytest.raises(UnsupportedError, match="gave a session on CPUExecutionProvider instead of CUDA"):
        opened_on(cuda_provider(0, 7), parse(ADDED), Written())


def test_nodes_that_left_the_provider():
    found = Elsewhere([("CUDAExecutionProvider", "a", "Relu"), ("CPUExecutionProvider", "b", "Tan")])
    assert off_device(found, cuda_provider(0, 7)) == [("b", "Tan")]
    assert off_device(found, HOST) == []


@pytest.mark.parametrize(
    "refusal",
    [
        "Could not find an implementation for BiasGelu(1) node with name ''",
        "com.microsoft:BiasGelu(-1) is not a registered function/op",
    ],
)
def test_operators_that_the_installed_version_lacks_become_standard_ones(refusal: str, monkeypatch: pytest.MonkeyPatch):
    opened = module.opened

    def lacking(graph: Any, options: Any, providers: Any, *, written: Written) -> Any:
        if any(each.name == "BiasGelu" for each in written.operators):
            raise UnsupportedError(f"ONNX Runtime refuses the model: {refusal}")
        return opened(graph, options, providers, written=written)

    monkeypatch.setattr(module, "opened", lacking)
    made = session(GELU, written=Written(None, OPERATORS))
    assert made.lacking == {"BiasGelu"}
    random = np.random.default_rng(0)
    x, w, b = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (8, 6), (6,)))
    y = np.zeros((4, 6), np.float32)
    made.run(made.bind([place(x), place(w), place(b)], [place(y)]))
    np.testing.assert_allclose(y, evaluate_graph(parse(GELU), [x, w, b])[0], rtol=1e-5, atol=1e-6)


def test_a_refusal_for_another_reason_is_told(monkeypatch: pytest.MonkeyPatch):
    def refused(*_arguments: Any, **_options: Any) -> Any:
        raise UnsupportedError("ONNX Runtime refuses the model: out of luck")

    monkeypatch.setattr(module, "opened", refused)
    with pytest.raises(UnsupportedError, match="out of luck"):
        session(GELU, written=Written(None, OPERATORS))


def test_refusals_of_recordings_are_told_apart():
    assert is_refused_recording(UnsupportedError("This session cannot use the graph capture feature as requested"))
    assert not is_refused_recording(UnsupportedError("Could not find an implementation"))


def test_sessions_hold_half_precision_of_every_kind():
    text = "graph @g(%x: bf16[4]) { %y: f32[4] = cast(%x) {to = f32} return %y }"
    x, y = np.arange(4).astype(ml_dtypes.bfloat16), np.zeros(4, np.float32)
    made = session(text)
    made.run(made.bind([place(x)], [place(y)]))
    assert y.tolist() == [0, 1, 2, 3]
