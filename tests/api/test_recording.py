from dataclasses import replace

import capgraph
import numpy as np
import pytest
from capgraph.capture_options import replay_options
from capgraph.executors.replay.planning import capture_policy
from capgraph.ir.target import HOST
from capgraph.ir.text.parser import parse
from capgraph.passes.planning.planner import PlanPolicy, make_plan

from tests.api.models import affine


def affine_dims() -> dict[str, tuple[int, int]]:
    """A range for each symbolic dim of the model."""
    symbols = {str(dim) for ty in capgraph.optimize(affine()).inputs.values() for dim in ty.shape if str(dim).isalpha()}
    return dict.fromkeys(symbols, (1, 8))


def test_a_recorded_program_explains_and_counts() -> None:
    program = capgraph.optimize(affine(), executor="graph", dynamic=affine_dims())
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    for _ in range(3):
        given = program.run({"x": x})["y"]
    assert np.array_equal(given, capgraph.optimize(affine(), executor="eager").run({"x": x})["y"])
    stats = program.stats()
    assert (stats.counters.calls, stats.counters.replayed_calls, stats.counters.padded_calls) == (3, 2, 2)
    text = program.explain()
    assert "executor: graph on host, recorded and replayed" in text
    assert "calls: 3, of which 2 replayed in 2 segments and 1 ran eagerly" in text
    assert "may be padded as it is, proven at" in text
    assert "rewrites: specialize " in text


def test_a_program_that_records_nothing_counts_nothing() -> None:
    with pytest.raises(capgraph.UnsupportedError, match="executor 'eager' counts nothing"):
        capgraph.optimize(affine(), executor="eager").stats()


def test_a_dim_that_is_not_there_is_refused() -> None:
    with pytest.raises(capgraph.InputError, match="there is no symbolic dim 'nope'"):
        capgraph.optimize(affine(), executor="graph", dynamic={"nope": (1, 2)})


BETWEEN = """
    graph @main(%q: f32[1, 2, 8, 4], %k: f32[1, 2, 8, 4], %v: f32[1, 2, 8, 4], %w: f32[1, 2, 8, 4]) {
      %a: f32[1, 2, 8, 4] = exp(%q)
      %b: f32[1, 2, 8, 4] = attention(%a, %k, %v, _, _)
      %c: f32[1, 2, 8, 4] = onnx.Foo(%b)
      %d: f32[1, 2, 8, 4] = attention(%c, %k, %v, _, _)
      %e: f32[1, 2, 8, 4] = add(%d, %w)
      return %e
    }"""


@pytest.mark.parametrize(
    ("mode", "keep", "outside"),
    [
        ("full_and_piecewise", None, {"Foo"}),
        ("full_and_piecewise", ["attention"], {"Foo", "attention"}),
        ("piecewise", None, {"Foo", "attention"}),
        ("piecewise", [], {"Foo"}),
    ],
)
def test_what_one_node_forces_outside_moves_no_other(mode: str, keep: list[str] | None, outside: set[str]) -> None:
    graph = parse(BETWEEN)
    capture = {} if keep is None else {"keep_outside": keep}
    options = replay_options(mode=mode, dynamic=None, buckets=None, strict=False, capture=capture)
    policy = capture_policy(options, options.mode, {})
    plan = make_plan(graph, {}, HOST, PlanPolicy(replace(policy, min_kernels=0)))
    cut = {plan.steps[cut.step].node.op.name.split(".")[-1] for segment in plan.segments for cut in segment.cuts}
    assert cut == outside


def test_a_condition_on_a_size_that_is_not_there_is_an_error_that_names_it() -> None:
    capture = {"keep_outside": {"add": lambda sizes: sizes["nope"] > 1}}
    program = capgraph.optimize(affine(), executor="graph", dynamic=affine_dims(), capture=capture)
    program.run({"x": np.ones((3, 3), np.float32)})
    assert "keep_outside asks for the size 'nope'" in program.stats().refused[0]
