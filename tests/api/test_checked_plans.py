"""Wrong rewrites planted on the way to a plan: numeric checking names the pass, `bisect` the rewrite."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.capture_options import replay_options
from capgraph.cli.commands.show import stages_to_plan
from capgraph.executors.base import Executable, Request
from capgraph.executors.cuda.programs import eager_on, graphs_on
from capgraph.executors.host.device import graphs as host_graphs
from capgraph.ir.constant import Array
from capgraph.ir.graph import Graph, Value
from capgraph.ir.text.parser import parse
from capgraph.passes.framework.bisect import Culprit, bisect
from capgraph.passes.framework.numeric import Samples
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse import fuse
from capgraph.passes.planning import specialize
from capgraph.passes.planning.padding import repair

from tests.api.models import model
from tests.executors.cuda.fake import fake_device, meanings

TEXT = """
graph @main(%x: f32[B, 4], %y: f32[B, 4]) {
  %e: f32[B, 4] = exp(%x)
  %size: i64[] = dim() {value = B}
  %count: f32[] = cast(%size) {to = f32}
  %d: f32[B, 4] = sub(%e, %y)
  %t: f32[B, 4] = tanh(%d)
  %mean: f32[4] = reduce_sum(%t) {axes = [0], keep_dims = false}
  %z: f32[4] = div(%mean, %count)
  return %z
}
"""


LAST = """
graph @main(%x: f32[B, 4], %y: f32[B, 4]) {
  %e: f32[B, 4] = exp(%x)
  %last: f32[1, 4] = slice(%e) {axes = [0], starts = [B - 1], ends = [B], steps = [1]}
  %d: f32[B, 4] = sub(%last, %y)
  %t: f32[B, 4] = tanh(%d)
  return %t
}
"""


CHAIN = """
graph @main(%x: f32[B, 4], %y: f32[B, 4]) {
  %e: f32[B, 4] = exp(%x)
  %d: f32[B, 4] = sub(%e, %y)
  %t: f32[B, 4] = tanh(%d)
  return %t
}
"""


def _other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = specialize.bound_attrs

    def wrong(*given: Any) -> dict[str, Any]:
        attrs = bound(*given)
        moved = {name: tuple(place - 1 for place in attrs[name]) for name in ("starts", "ends") if name in attrs}
        return {**attrs, **moved}

    monkeypatch.setattr(specialize, "bound_attrs", wrong)


def _other_real_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    masked = repair.MaskInsertion._masked

    def wrong(self: repair.MaskInsertion, value: Value, axis: int, fill: Any) -> Value:
        return self._op("abs", masked(self, value, axis, fill))

    monkeypatch.setattr(repair.MaskInsertion, "_masked", wrong)


def _swapped_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    real = fuse._fuse

    def wrong(graph: Graph, *others: Any) -> None:
        real(graph, *others)
        for node in graph.nodes:
            body = node.attrs["body"] if node.op.name == "fused" else Graph()
            for inner in body.nodes:
                if inner.op.name == "sub":
                    a, b = inner.inputs
                    body.replace_input(inner, 0, b)
                    body.replace_input(inner, 1, a)

    monkeypatch.setattr(fuse, "_fuse", wrong)


Plant = Callable[[pytest.MonkeyPatch], None]
PLANTED = [
    ("host", LAST, _other_sizes, "specialize", "bind-sizes", {"slice"}),
    ("host", TEXT, _other_real_elements, "mask-padding", "mask", {"reduce_sum"}),
    ("cuda", LAST, _other_sizes, "specialize", "bind-sizes", {"slice"}),
    ("cuda", TEXT, _other_real_elements, "mask-padding", "mask", {"reduce_sum"}),
    ("cuda", CHAIN, _swapped_operands, "fuse", "fuse", {"sub", "tanh"}),
]
CASES = pytest.mark.parametrize(("device", "text", "plant", "name", "rule", "ops"), PLANTED)


def compiled(text: str, device: str, folder: Path) -> Executable:
    """A recorded program of which every plan is checked."""
    options = replay_options(
        mode="full", dynamic={"B": (1, 4)}, buckets={"B": [4]}, strict=False, capture=None, check="numeric"
    )
    if device == "host":
        return host_graphs(Request(replay=options)).compile(parse(text))
    return graphs_on(fake_device(folder), Request(device="cuda", replay=options)).compile(parse(text))


def given(count: int) -> dict[str, Array]:
    x = np.linspace(-1, 1, 4 * count, dtype=np.float32).reshape(count, 4)
    return {"x": x, "y": x[::-1].copy()}


@CASES
def test_numeric_checking_names_the_pass(
    device: str,
    text: str,
    plant: Plant,
    name: str,
    rule: str,
    ops: set[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    plant(monkeypatch)
    with meanings(), pytest.raises(capgraph.MiscompiledError, match=f"pass {name} changed what the graph means"):
        compiled(text, device, tmp_path).run(given(4))


def found(text: str, device: str) -> Culprit | None:
    graph, sizes = parse(text), {"B": 4}
    return bisect(graph, Pipeline(stages_to_plan(device, sizes)), Samples.drawn(graph, sizes=sizes))


@CASES
def test_bisect_finds_the_rewrite(
    device: str, text: str, plant: Plant, name: str, rule: str, ops: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    culprit = found(text, device)
    assert culprit is not None
    assert (culprit.guilty.name, culprit.rewrite.rule) == (name, rule)
    shown = {node.op.name for node in culprit.before.nodes}
    assert ops <= shown
    assert len(shown) <= 2


@pytest.mark.parametrize("device", ["host", "cuda"])
def test_right_rewrites_pass(device: str, tmp_path: Path) -> None:
    assert found(TEXT, device) is None
    assert found(LAST, device) is None
    assert found(CHAIN, device) is None
    with meanings():
        program = compiled(TEXT, device, tmp_path)
        for count in (3, 4, 3):
            x, y = given(count).values()
            np.testing.assert_allclose(program.run(given(count))["z"], np.tanh(np.exp(x) - y).mean(0), rtol=1e-5)
        assert program.stats().counters.padded_calls > 0  # type: ignore[attr-defined]


def test_what_runs_eagerly_on_a_gpu_is_checked_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _swapped_operands(monkeypatch)
    program = eager_on(fake_device(tmp_path), Request(device="cuda", check="numeric")).compile(parse(TEXT))
    with meanings(), pytest.raises(capgraph.MiscompiledError, match="pass fuse changed what the graph means"):
        program.run(given(4))


@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_branches_that_agree_on_sizes_at_a_call_are_right() -> None:
    """Rows of one input or the other, by how many there are; they are mentioned behind the If as well."""
    proto = model("""net (float[N, 3] a, float[M, 3] b) => (float[R, 3] y, float[S] z)
    <int64[1] zero = {0}, int64[1] two = {2}, float[1] half = {0.5}> {
      shape = Shape (a) rows = Gather (shape, zero) same = Equal (rows, two) is_two = Squeeze (same)
      y = If (is_two) <then_branch = yes () => (float[K, 3] t) { t = Add (a, a) },
                       else_branch = no () => (float[L, 3] e) { e = Neg (b) }>
      all = Shape (y) count = Gather (all, zero) z = Expand (half, count)
    }""")
    options: dict[str, Any] = {"executor": "graph", "verify": "numeric", "capture": {"beyond": "exact"}}
    with capgraph.optimize(proto, **options) as program:
        for rows in (2, 3, 4):
            a, b = np.full((rows, 3), 2, np.float32), np.ones((3, 3), np.float32)
            for _ in range(2):
                found = program.run({"a": a, "b": b})
                np.testing.assert_array_equal(found["y"], a + a if rows == 2 else -b)
                np.testing.assert_array_equal(found["z"], np.full(len(found["y"]), 0.5, np.float32))
