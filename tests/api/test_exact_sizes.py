"""Calls with a size of 1 where the model was read with another symbol."""

import warnings
from itertools import product
from pathlib import Path
from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.ir.notices import CapgraphWarning
from onnxruntime import InferenceSession

from tests.api.models import model, save

EXECUTORS = ["eager", "graph", "ort"]
SUM = "net (float[N, 3] a, float[M, 3] b) => (float[K, 3] c, int64[2] s) { c = Add(a, b) s = Shape(c) }"
MATMUL = "net (float[N, 2, 3] a, float[M, 3, 2] b) => (float[K, 2, 2] c) { c = MatMul(a, b) }"


def _options(executor: str) -> dict[str, object]:
    return {"dynamic": {"N": (1, 8), "M": (1, 8)}} if executor == "graph" else {}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("rows", [(1, 4), (4, 1), (4, 4), (0, 1)])
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_two_symbols_meet_one_of_which_is_1(executor: str, rows: tuple[int, int]) -> None:
    a, b = (np.arange(3 * count, dtype=np.float32).reshape(count, 3) for count in rows)
    with capgraph.optimize(model(SUM), executor=executor, **_options(executor)) as program:
        for _ in range(2):
            found = program.run({"a": a, "b": b})
            np.testing.assert_array_equal(found["c"], a + b)
            assert found["s"].tolist() == list((a + b).shape)
    x, y = np.ones((rows[0], 2, 3), np.float32), np.ones((rows[1], 3, 2), np.float32)
    with capgraph.optimize(model(MATMUL), executor=executor, **_options(executor)) as program:
        np.testing.assert_array_equal(program.run({"a": x, "b": y})["c"], x @ y)


def test_it_is_said_once(tmp_path: Path) -> None:
    program = capgraph.optimize(save(model(SUM), tmp_path), executor="eager")
    one, four = np.ones((1, 3), np.float32), np.ones((4, 3), np.float32)
    with pytest.warns(CapgraphWarning, match="N == M"):
        program.run({"a": one, "b": four})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run({"a": four, "b": one})
        assert program.run({"a": four, "b": four})["s"].tolist() == [4, 3]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_sizes_that_do_not_go_together_are_an_error(executor: str) -> None:
    program = capgraph.optimize(model(SUM), executor=executor, **_options(executor))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(capgraph.CapgraphError):
            program.run({"a": np.ones((2, 3), np.float32), "b": np.ones((4, 3), np.float32)})


@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_lists_have_sizes_too() -> None:
    program = capgraph.optimize(model(SUM), executor="eager")
    assert program.run({"a": [[1.0, 2.0, 3.0]], "b": [[0.0] * 3] * 4})["s"].tolist() == [4, 3]


@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_inputs_with_defaults_may_be_left_out() -> None:
    proto = model(
        "net (float[N, 3] a, float[M, 3] b, float x = {2}) => (float[K, 3] c) { s = Add(a, b) c = Mul(s, x) }"
    )
    with capgraph.optimize(proto, executor="eager") as program:
        assert program.run({"a": np.ones((1, 3), np.float32), "b": np.ones((4, 3), np.float32)})["c"].shape == (4, 3)


def test_what_is_no_mapping_is_an_input_error() -> None:
    program = capgraph.optimize(model(SUM), executor="eager")
    with pytest.raises(capgraph.InputError):
        program.run([1.0])  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_a_model_in_memory_may_change() -> None:
    proto = model(SUM)
    program = capgraph.optimize(proto, executor="eager")
    proto.graph.node[0].op_type = "Sub"
    found = program.run({"a": np.ones((1, 3), np.float32), "b": np.ones((4, 3), np.float32)})
    assert found["c"].tolist() == [[2.0] * 3] * 4


def test_a_file_that_has_changed_is_an_error(tmp_path: Path) -> None:
    path = save(model(SUM), tmp_path)
    program = capgraph.optimize(path, executor="eager")
    Path(path).unlink()
    with pytest.raises(capgraph.ExecutionError, match="has changed since"):
        program.run({"a": np.ones((1, 3), np.float32), "b": np.ones((4, 3), np.float32)})


NOISY = "net (float[N, 3] a, float[M, 3] b) => (float[K, 3] c) { s = Add(a, b) r = RandomNormalLike(s) c = Add(s, r) }"


@pytest.mark.parametrize("executor", ["eager", "graph"])
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_they_draw_what_follows_from_a_seed(executor: str) -> None:
    given = [(np.zeros((m, 3), np.float32), np.zeros((n, 3), np.float32)) for m, n in ((4, 4), (1, 4), (4, 1), (1, 4))]

    def drawn(program: capgraph.Program, seed: int) -> list[bytes]:
        program.seed(seed)
        return [program.run({"a": a, "b": b})["c"].tobytes() for a, b in given]

    programs = [capgraph.optimize(model(NOISY), executor=executor, **_options(executor)) for _ in range(2)]
    first = drawn(programs[0], 3)
    assert len(set(first)) == len(first), "each call draws other numbers"
    assert drawn(programs[1], 3) == first, "programs made after the seed"
    assert drawn(programs[0], 3) == first, "programs made before it"
    assert set(drawn(programs[0], 4)).isdisjoint(first)


@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_they_are_counted() -> None:
    program = capgraph.optimize(model(SUM), executor="graph", **_options("graph"))
    one, four = np.ones((1, 3), np.float32), np.ones((4, 3), np.float32)
    assert "for their sizes alone" not in program.explain()
    for a, b in ((four, four), (one, four), (one, four), (four, one)):
        program.run({"a": a, "b": b})
    counters = program.stats().counters
    assert (counters.calls, counters.exact_calls) == (4, 3)
    assert "3 calls broke sizes that the model was read with: 2 programs for their sizes alone" in program.explain()


RANKS = """net (float[N, M] x) => (float[K] y) {
  k = Constant <value = int64[1] {3}> ()
  unread, places = TopK <axis = 0> (x, k)
  y = Squeeze (x)
}"""


@pytest.mark.parametrize("executor", ["eager", "graph", "ort"])
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_sizes_that_give_another_rank_and_that_the_model_cannot_have_are_refused(executor: str) -> None:
    program = capgraph.optimize(model(RANKS), executor=executor, **_options(executor))
    assert program.run({"x": np.ones((4, 3), np.float32)})["y"].shape == (4, 3)
    with pytest.raises(capgraph.CapgraphError, match="top_k"):
        program.run({"x": np.ones((1, 3), np.float32)})


COUNTED = """net (float[2, N] a, int64[1] k, float[2, M] b) => (float[2, K] c) { t, i = TopK(a, k) c = Add(t, b) }"""


@pytest.mark.parametrize("executor", ["eager", "graph", "ort"])
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_a_size_that_running_tells_may_be_1(executor: str) -> None:
    program = capgraph.optimize(model(COUNTED), executor=executor, **_options(executor))
    a, b = np.ones((2, 4), np.float32), np.ones((2, 3), np.float32)
    for count in (3, 1, 3):
        assert (program.run({"a": a, "k": np.array([count]), "b": b})["c"] == 2).all()
    with pytest.raises(capgraph.ExecutionError):
        program.run({"a": a, "k": np.array([2]), "b": b})


SPLIT = """net (float[3, 2] x, int64[3] sizes, float[1, 2] w) => (float[K, 2] y, float[N, 2] z, float[L, 2] v) {
  a, b, c = Split<axis = 0>(x, sizes)
  y = Add(a, b)
  v = Mul(y, w)
  d = Concat<axis = 0>(y, x)
  z = Neg(d)
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 2, 0), (2, 1, 0), (0, 1, 2), (1, 0, 2)])
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_sizes_that_running_alone_tells_may_be_1(executor: str, sizes: tuple[int, ...]) -> None:
    program = capgraph.optimize(model(SPLIT), executor=executor)
    x, w = np.arange(6, dtype=np.float32).reshape(3, 2), np.full((1, 2), 2, np.float32)
    a, b, _ = np.split(x, np.cumsum(sizes)[:-1])
    for _ in range(2):
        found = program.run({"x": x, "sizes": np.array(sizes), "w": w})
        np.testing.assert_array_equal(found["y"], a + b)
        np.testing.assert_array_equal(found["v"], 2 * (a + b))
        np.testing.assert_array_equal(found["z"], -np.concatenate([a + b, x]))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_sizes_that_running_alone_tells_have_to_meet(executor: str) -> None:
    text = "net (float[6, 2] x, int64[2] sizes) => (float[K, 2] y) { a, b = Split<axis = 0>(x, sizes) y = Add(a, b) }"
    program = capgraph.optimize(model(text), executor=executor)
    with pytest.raises(capgraph.ExecutionError):
        program.run({"x": np.ones((6, 2), np.float32), "sizes": np.array([2, 4])})


LOOPED = """net (float[W] w, int64[S] v) => (int64[T] y)
<int64 n = {1}, int64[1] first = {7}, float[2, 3] rows = {1, 2, 3, 4, 5, 6}> {
  unused = Add(rows, w)
  y = Loop(n, "", first)<
    body = round (int64 i, bool c, int64[?] x) => (bool o, int64[?] z) { z = Add(x, v) o = Identity(c) }>
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_what_a_loop_begins_with_meets_others_where_what_is_not_used_refuses_sizes(executor: str) -> None:
    program = capgraph.optimize(model(LOOPED), executor=executor)
    for width, count in ((3, 1), (5, 2), (5, 1), (3, 4)):
        found = program.run({"w": np.ones(width, np.float32), "v": np.arange(count)})
        assert found["y"].tolist() == [7 + each for each in range(count)]


CHOSEN = """net (float[2, N] a, int64[1] k, float[2, M] b, bool[1, M] where) => (float[?, ?] c, float[?, ?] d)
<bool yes = {1}> {
  t, i = TopK(a, k)
  c = Where(yes, t, b)
  d = Where(where, t, t)
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_what_is_not_chosen_has_sizes(executor: str) -> None:
    program = capgraph.optimize(model(CHOSEN), executor=executor, **_options(executor))
    for count, width in ((3, 3), (1, 3), (3, 1)):
        given = {"a": np.ones((2, 4)), "b": np.zeros((2, width)), "where": np.ones((1, width), bool)}
        found = program.run(
            {**{n: v.astype("f4") if v.dtype != bool else v for n, v in given.items()}, "k": np.array([count])}
        )
        assert found["c"].tolist() == found["d"].tolist() == [[1] * 3] * 2


BRANCHED = """net (float[N, 3] a, float[M, 3] b, float[W] w, bool yes) => (float[K, 3] c, float[2, L] d)
<float[2, 3] rows = {1, 2, 3, 4, 5, 6}> {
  c = Add(a, b)
  d = If(yes)<then_branch = one () => (float[2, P] e) { e = Add(rows, w) },
              else_branch = two () => (float[2, Q] f) { f = Identity(rows) }>
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_branches_not_taken_may_refuse_sizes(executor: str) -> None:
    program = capgraph.optimize(model(BRANCHED), executor=executor, **_options(executor))
    a, b, w = np.ones((1, 3), np.float32), np.ones((4, 3), np.float32), np.ones(2, np.float32)
    found = program.run({"a": a, "b": b, "w": w, "yes": np.array(False)})
    assert found["c"].shape == (4, 3)
    assert found["d"].shape == (2, 3)
    with pytest.raises(capgraph.CapgraphError):
        program.run({"a": a, "b": b, "w": w, "yes": np.array(True)})


HALVED = """net (float[1, 1, H, 2] x, float[N, 3] a, float[M, 3] b, bool yes) => (float[?, ?, ?, ?] c, float[?, ?] d) {
  c, d = If(yes)<then_branch = one () => (float[?, ?, ?, ?] e, float[?, ?] f) {
                   e = SpaceToDepth<blocksize = 2>(x)
                   f = Neg(a) },
                 else_branch = two () => (float[?, ?, ?, ?] g, float[?, ?] h) {
                   g = Neg(x)
                   h = Add(a, b) }>
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_branches_not_taken_may_refuse_to_be_halved(executor: str) -> None:
    program = capgraph.optimize(model(HALVED), executor=executor, **_options(executor))
    x, a, b = np.ones((1, 1, 1, 2), np.float32), np.ones((1, 3), np.float32), np.ones((4, 3), np.float32)
    found = program.run({"x": x, "a": a, "b": b, "yes": np.array(False)})
    assert found["c"].shape == (1, 1, 1, 2)
    assert found["d"].shape == (4, 3)


SQUEEZED = """net (float[K, 4] w, float[N, 3] a, float[M, 3] b, bool yes) => (float[?, ?] c, float[?] d)
<int64[1] first = {0}> {
  c = Add(a, b)
  d = If(yes)<then_branch = one () => (float[?] e) { e = Squeeze(w, first) },
              else_branch = two () => (float[?] f) { f = ReduceSum<keepdims = 0>(w, first) }>
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_branches_not_taken_may_refuse_what_has_to_be_1(executor: str) -> None:
    program = capgraph.optimize(model(SQUEEZED), executor=executor)
    w, a, b = np.ones((2, 4), np.float32), np.ones((1, 3), np.float32), np.ones((2, 3), np.float32)
    found = program.run({"w": w, "a": a, "b": b, "yes": np.array(False)})
    assert found["c"].tolist() == [[2] * 3] * 2
    assert found["d"].tolist() == [2] * 4


RANKED = """net (float[N, 3] x, float[2, N] a, float[M, 2] b, bool yes) => (float y, float[2, 2] d)
<float[2, 2] rows = {1, 2, 3, 4}> {
  y = Squeeze(x)
  d = If(yes)<then_branch = one () => (float[2, 2] e) { e = MatMul(a, b) },
              else_branch = two () => (float[2, 2] f) { f = Identity(rows) }>
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_branches_not_taken_may_refuse_sizes_of_another_rank(executor: str) -> None:
    program = capgraph.optimize(model(RANKED), executor=executor, **_options(executor))
    x, a, b = np.ones((1, 3), np.float32), np.ones((2, 1), np.float32), np.ones((4, 2), np.float32)
    found = program.run({"x": x, "a": a, "b": b, "yes": np.array(False)})
    assert found["y"].shape == (3,)
    assert found["d"].shape == (2, 2)
    with pytest.raises(capgraph.CapgraphError):
        program.run({"x": x, "a": a, "b": b, "yes": np.array(True)})


STATED = """net (float[N] x, bool yes) => (float[?] y) <float[3] rows = {1, 2, 3}, float[3] d, float[3] e> {
  d = If(yes)<then_branch = one () => (float[3] p) { p = Add(x, rows) },
              else_branch = two () => (float[N] q) { q = Identity(x) }>
  e = LeakyRelu(d)
  y = Neg(e)
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_what_a_model_states_of_values_is_not_taken_for_other_sizes(executor: str) -> None:
    program = capgraph.optimize(model(STATED), executor=executor)
    for count in (3, 2):
        x = np.ones(count, np.float32)
        assert program.run({"x": x, "yes": np.array(False)})["y"].tolist() == [-1] * count


UNREAD = """net (float[A, B] x, float[D, C] y, float[N, 3] a, float[M, 3] b, bool yes, int64 count)
=> (float[?, 3] c, float[?, 2] d, float f)
<float[2, 2] rows = {1, 2, 3, 4}, float zero = {0}> {
  c = Add(a, b)
  d = If(yes)<then_branch = one () => (float[2, 2] e) {
                e = Neg(rows)
                nobody = Add(x, y)
                reads = Mul(rows, x) },
              else_branch = two () => (float[2, 2] g) { g = Identity(rows) }>
  f = Loop(count, , zero)<body = three (int64 i, bool goes, float p) => (bool on, float q) {
                on = Identity(goes)
                m = MatMul(x, y)
                n = MatMul(m, rows)
                q = ReduceSum<keepdims = 0>(n) }>
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_bodies_that_do_not_run_may_refuse_sizes(executor: str) -> None:
    program = capgraph.optimize(model(UNREAD), executor=executor, **_options(executor))
    shapes = {"x": (5, 7), "y": (4, 3), "a": (1, 3), "b": (2, 3)}
    call: dict[str, Any] = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    no, zero = np.array(False), np.array(0, np.int64)
    found = program.run({**call, "yes": no, "count": zero})
    assert found["c"].tolist() == [[2] * 3] * 2
    assert found["d"].tolist() == [[1, 2], [3, 4]]
    assert found["f"] == 0
    with pytest.raises(capgraph.CapgraphError):
        program.run({**call, "yes": no, "count": zero + 1})


TOLD_LATE = """net (float[2, N] a, int64[1] k, float[2, M] b, float[P, 3] x, float[Q, 3] z, float[W] w, bool yes)
=> (float[?, ?] c, float[?, ?] d, float[?, ?] g) <float[2, 3] rows = {1, 2, 3, 4, 5, 6}> {
  t, i = TopK(a, k)
  c = Add(t, b)
  g = Add(x, z)
  d = If(yes)<then_branch = one () => (float[?, ?] e) { e = Add(rows, w) },
              else_branch = two () => (float[?, ?] f) { f = Identity(rows) }>
}"""


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_a_size_that_running_tells_may_be_1_where_a_branch_refuses_others(executor: str, rows: int) -> None:
    program = capgraph.optimize(model(TOLD_LATE), executor=executor)
    call = {
        "a": np.ones((2, 3), np.float32),
        "k": np.array([1]),
        "b": np.ones((2, 4), np.float32),
        "x": np.ones((rows, 3), np.float32),
        "z": np.ones((2, 3), np.float32),
        "w": np.ones(2, np.float32),
        "yes": np.array(False),
    }
    for _ in range(2):
        found = program.run(call)
        assert found["c"].tolist() == [[2] * 4] * 2
        assert found["g"].tolist() == [[2] * 3] * 2
        assert found["d"].shape == (2, 3)
    with pytest.raises(capgraph.CapgraphError):
        program.run({**call, "yes": np.array(True)})


RESHAPED = {
    "0 that copies": ("c = Concat<axis = 0>(rest, size) y = Reshape(x, c)", ((4, 1), (0, 0), (1, 1))),
    "0 that copies, beside what a call tells": (
        "c = Concat<axis = 0>(k, size) y = Reshape(x, c)",
        ((4, 1), (0, 0), (1, 1)),
    ),
    "0 that copies, of what a call tells": (
        "c = Concat<axis = 0>(rest, left) y = Reshape(taken, c)",
        ((4, 1), (0, 0), (1, 1)),
    ),
    "-1 that is the rest": ("c = Concat<axis = 0>(less, three) y = Reshape(w, c)", ((4, 1), (1, 1), (4, 1))),
    "-1 that is the rest, beside what a call tells": (
        "c = Concat<axis = 0>(less, k) y = Reshape(x, c)",
        ((4, 6), (1, 3), (4, 6)),
    ),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("case", RESHAPED)
@pytest.mark.filterwarnings("ignore::capgraph.ir.notices.CapgraphWarning")
def test_sizes_that_mean_others_in_a_reshape(executor: str, case: str) -> None:
    nodes, rows = RESHAPED[case]
    proto = model(f"""net (float[N, 3] x, int64[1] k, bool[N] m) => (float[?, ?] y)
    <int64[1] rest = {{-1}}, int64[1] first = {{0}}, int64[1] two = {{2}}, int64[1] three = {{3}},
    int64[1] all = {{-1}}, float[6] w = {{1, 2, 3, 4, 5, 6}}> {{
      flat = Reshape(x, all) size = Shape(flat) s = Shape(x) n = Gather(s, first) less = Sub(n, two)
      taken = Compress<axis = 0>(x, m) t = Reshape(taken, all) left = Shape(t)
      {nodes}
    }}""")
    options: dict[str, Any] = {"dynamic": {"N": (1, 8)}} if executor == "graph" else {}
    session = InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with capgraph.optimize(proto, executor=executor, **options) as program:
        for (count, k), chosen in product(rows, (True, False)):
            x = np.arange(3 * count, dtype=np.float32).reshape(count, 3)
            given = {"x": x, "k": np.array([k]), "m": np.full(count, chosen)}
            (expected,) = session.run(["y"], given)
            np.testing.assert_array_equal(program.run(given)["y"], expected, strict=True)
