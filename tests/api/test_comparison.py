from pathlib import Path

import capgraph
import numpy as np
import pytest
from capgraph.comparing.closeness import OutputError, Tolerance, output_error
from capgraph.comparing.comparison import compare
from capgraph.comparing.fitting_inputs import DrawnInputs
from capgraph.sources import load_model

from tests.api.models import affine, model, save, with_default, with_foreign_node

F32 = np.float32


def test_errors_are_absolute_and_relative() -> None:
    error = output_error("y", np.array([1, -4], F32), np.array([1, -3], F32))
    assert (error.largest, error.relative, error.is_close) == (1.0, 0.25, False)
    assert output_error("y", np.array([1e3], F32), np.array([1e3 + 0.01], F32)).is_close


@pytest.mark.parametrize(
    ("old", "new", "is_close"),
    [
        (np.array([np.nan, np.inf], F32), np.array([np.nan, np.inf], F32), True),
        (np.array([np.inf], F32), np.array([-np.inf], F32), False),
        (np.array([1], F32), np.array([np.nan], F32), False),
        (np.array([2**62]), np.array([2**62 + 1]), False),
        (np.array([True]), np.array([False]), False),
        (np.array([1], F32), np.array([1], np.float64), False),
        (np.zeros(2, F32), np.zeros((1, 2), F32), False),
        (np.zeros(0, F32), np.zeros(0, F32), True),
        (np.zeros(1, F32), np.array([1e-30], F32), False),
        (np.array(["a"], object), np.array(["a"], object), True),
        (np.array(["a"], object), np.array(["b"], object), False),
        ([1, 2], [1, 2], True),
        ([], [], True),
        ([np.ones(1, F32)], [np.ones(1, F32) + 1e-6], True),
        ([np.ones(1, F32), np.ones(1, F32)], [np.ones(1, F32), np.zeros(1, F32)], False),
        ([np.ones(1, F32)], [np.ones(1, F32), np.ones(1, F32)], False),
        ([{"a": 0.5, "b": 1.0}], [{"b": 1.0 + 1e-6, "a": 0.5}], True),
        ([{"a": 0.5}], [{"a": 0.4}], False),
        ([{"a": 0.5}], [{"b": 0.5}], False),
    ],
)
def test_what_is_close(old: object, new: object, is_close: bool) -> None:
    assert output_error("y", old, new).is_close is is_close


def test_two_models_are_compared_through_onnxruntime(tmp_path: Path) -> None:
    raw, other = save(affine(), tmp_path, "raw.onnx"), affine()
    other.graph.initializer[0].CopyFrom(
        model("main (float[1] x) => (float[1] y) <float two = {2.5}> { y = Mul(x, two) }").graph.initializer[0]
    )
    wrong = save(other, tmp_path, "wrong.onnx")
    graph = load_model(raw).graph
    same = compare(graph, raw, raw, DrawnInputs(2, {}))
    assert same.is_close
    assert same.runtime.startswith("onnxruntime")
    assert same.sizes == {"batch": 3}
    found = compare(graph, raw, wrong, DrawnInputs(2, {"batch": 5}))
    assert not found.is_close
    assert found.sizes == {"batch": 5}
    assert 0.1 < found.outputs[0].relative < 0.3


def test_without_onnxruntime_the_reference_evaluator_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capgraph.comparing.comparison.problem_here", lambda: ("onnxruntime is not installed", ""))
    raw = save(with_default(), tmp_path)
    found = compare(load_model(raw).graph, raw, raw, DrawnInputs(1, {}))
    assert found.runtime == "the reference evaluator (onnxruntime is not installed)"
    assert found.is_close


def test_types_that_onnxruntime_does_not_take_go_to_the_reference_evaluator(tmp_path: Path) -> None:
    raw = save(model("main (bfloat16[4] x) => (bfloat16[4] y) { y = Neg(x) }"), tmp_path)
    found = compare(load_model(raw).graph, raw, raw, DrawnInputs(1, {}))
    assert found.is_close
    assert found.runtime.startswith("the reference evaluator (%x is bf16")


def test_only_the_optimized_model_is_refused(tmp_path: Path) -> None:
    raw = save(affine(), tmp_path)
    unknown = model("main (float[batch, 3] x) => (float[batch, 3] y) { y = com.example.Mystery(x) }")
    refused = save(unknown, tmp_path, "refused.onnx")
    with pytest.raises(capgraph.UnsupportedError, match=r"refuses refused.onnx: .*Mystery") as caught:
        compare(load_model(raw).graph, raw, refused, DrawnInputs(1, {}))
    assert "standard operators" in (caught.value.remedy or "")


def test_a_model_that_cannot_run_says_why(tmp_path: Path) -> None:
    text = "main (float[n] x) => (float[a, 2] y) <int64[2] s = {-1, 2}> { y = Reshape(x, s) }"
    raw = save(model(text), tmp_path)
    with pytest.raises(capgraph.ExecutionError, match="cannot run on drawn inputs") as caught:
        compare(load_model(raw).graph, raw, raw, DrawnInputs(1, {"n": 7}))
    assert "--dim" in (caught.value.remedy or "")
    raw = save(with_foreign_node(), tmp_path)
    with pytest.raises(capgraph.UnsupportedError, match="nothing here knows how to run"):
        compare(load_model(raw).graph, raw, raw, DrawnInputs(1, {}))


def test_random_models_are_refused(tmp_path: Path) -> None:
    raw = save(model("main (float[4] x) => (float[4] y) { r = RandomNormalLike(x)  y = Add(x, r) }"), tmp_path)
    with pytest.raises(capgraph.UnsupportedError, match="other outputs on each run"):
        compare(load_model(raw).graph, raw, raw, DrawnInputs(1, {}))


def apart(tmp_path: Path, first: str, second: str, **chosen: float) -> tuple[bool, OutputError]:
    """Whether two models are close, and their worst output."""
    paths = [save(model(text), tmp_path, name) for text, name in ((first, "a.onnx"), (second, "b.onnx"))]
    found = compare(load_model(paths[0]).graph, *paths, DrawnInputs(2), Tolerance(**chosen))
    return found.is_close, found.outputs[0]


IN_F32 = "main (float[64] x) => (float[64] y) <float k = {0.1}> { y = Mul(x, k) }"
IN_F16 = (
    "main (float[64] x) => (float[64] y) <float k = {0.1}> {"
    "  h = Cast<to = 10>(x)  l = Cast<to = 10>(k)  m = Mul(h, l)  y = Cast<to = 1>(m) }"
)


def test_the_narrowest_float_inside_says_what_may_differ(tmp_path: Path) -> None:
    is_close, output = apart(tmp_path, IN_F16, IN_F32)
    assert is_close
    assert 1e-4 < output.relative < output.allowed == 1e-2


def test_a_longer_sum_may_differ_by_more(tmp_path: Path) -> None:
    text = "main (float[1, N] x) => (float[1, 1] y) {{ y = ReduceSum<axes = [1]>(x) }}".replace("N", "{0}")
    short, long = (
        apart(tmp_path, *[text.format(size).replace("{{", "{").replace("}}", "}")] * 2) for size in ("4", "1048576")
    )
    assert short[1].allowed == 1e-4
    assert long[1].allowed > 1e-3


def test_what_cancels_is_held_to_the_model_in_f64(tmp_path: Path) -> None:
    lossy = "main (float[64] x) => (float[64] y) <float k = {9999.7}> { a = Add(x, k)  y = Sub(a, k) }"
    is_close, output = apart(tmp_path, lossy, "main (float[64] x) => (float[64] y) { y = Identity(x) }")
    assert is_close
    assert output.held_to == "the model in f64"
    is_close, output = apart(tmp_path, lossy, "main (float[64] x) => (float[64] y) { y = Neg(x) }")
    assert not is_close
    assert apart(tmp_path, "main (float[64] x) => (float[64] y) { y = Identity(x) }", lossy)[0] is False


def test_a_tolerance_that_is_chosen_is_the_only_one(tmp_path: Path) -> None:
    assert not apart(tmp_path, IN_F16, IN_F32, rtol=1e-6)[0]
    assert apart(tmp_path, IN_F16, IN_F32, rtol=1e-6, atol=1.0)[0]


def test_sizes_that_the_model_runs_on_are_found(tmp_path: Path) -> None:
    text = "main (float[batch, n] x) => (float[r, 8] y) <int64[2] s = {-1, 8}> { y = Reshape(x, s) }"
    path = save(model(text), tmp_path)
    found = compare(load_model(path).graph, path, path, DrawnInputs(1))
    assert found.sizes["batch"] * found.sizes["n"] % 8 == 0


def test_sizes_that_nodes_ask_of_each_other_are_found(tmp_path: Path) -> None:
    text = "main (float[n, 3] x, float[p, k] z, float[b, 5] q, float[12, 5] w) => (float[a, 5] y) {"
    raw = save(model(text + " h = Concat<axis = 1>(x, z)  m = MatMul(h, w)  y = Add(m, q) }"), tmp_path)
    found = compare(load_model(raw).graph, raw, raw, DrawnInputs(1, {}))
    assert found.sizes["k"] == 9
    assert found.sizes["n"] == found.sizes["p"] == found.sizes["b"]


def test_sizes_that_run_by_broadcasting_alone_come_last(tmp_path: Path) -> None:
    text = "main (float[n] x, float[m] y) => (float[k] z) <int64[1] s = {-1}> { a = Add(x, y)  z = Reshape(a, s) }"
    path = save(model(text), tmp_path)
    found = compare(load_model(path).graph, path, path, DrawnInputs(1))
    assert found.sizes["n"] == found.sizes["m"] != 1


def test_a_number_that_chooses_a_branch_is_one_that_it_is_compared_with(tmp_path: Path) -> None:
    text = """main (float[2] x, int64 sr) => (float[2] y) <int64 k = {16000}> {
        c = Equal(sr, k)
        y = If(c) <then_branch = t () => (float[2] a) { a = OP(x) }, else_branch = e () => (float[2] b) { b = Neg(x) }>
    }"""
    assert apart(tmp_path, text.replace("OP", "Exp"), text.replace("OP", "Exp"))[0]
    assert not apart(tmp_path, text.replace("OP", "Exp"), text.replace("OP", "Abs"))[0]


def test_outputs_of_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(capgraph.InputError, match="has no output 'y', only 'z'"):
        apart(tmp_path, IN_F32, "main (float[64] x) => (float[64] z) { z = Exp(x) }")
