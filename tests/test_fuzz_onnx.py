"""The generator of random ONNX models: what it draws, and a slice of it in every way."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import defs, parser

from tests.fuzz_onnx import main, outcome
from tests.onnx_models.cases import HIGHEST, Case, drawn_case
from tests.onnx_models.comparing import compared, peers_of
from tests.onnx_models.judging import difference
from tests.onnx_models.registry import RECIPES
from tests.onnx_models.rounding import is_rounding

NOT_DRAWN = {"Constant", "ImageDecoder"}
"""What other recipes make on their way, and what needs pictures."""


def test_every_operator_up_to_the_highest_opset_is_drawn() -> None:
    known = {s.name for s in defs.get_all_schemas_with_history() if not s.domain and s.since_version <= HIGHEST}
    assert known - NOT_DRAWN == set(RECIPES)


def test_a_seed_is_one_model() -> None:
    first, second = drawn_case(7), drawn_case(7)
    assert first is not None
    assert second is not None
    assert first.model == second.model


def test_models_of_one_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--models", "20", "--operator", "Abs"]) == 0
    assert "('Abs', 50)" in capsys.readouterr().out  # a chunk is tried as a whole


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_a_slice(first: int) -> None:
    kinds = Counter[str]()
    for seed in range(first, first + 10):
        found = outcome(seed)
        assert not [each for each in found.findings if each[0] != "time"], (seed, found)
        kinds[found.kind] += 1
    assert kinds["fine"] >= 7, kinds  # else little is compared


def _ones(*shape: int, dtype: Any = np.float32) -> Any:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape)


_FOUND = [
    (
        11,
        "(float[1,1,2,2] x) => (float[?,?,?,?] y) { y = MaxPool <kernel_shape = [1, 3], strides = [1, 2], "
        "dilations = [1, 2], ceil_mode = 1> (x) }",
        {"x": _ones(1, 1, 2, 2)},
    ),
    (
        15,
        "(float[1,2,5] x) => (float[?,?,?] y) { y = AveragePool <kernel_shape = [3], strides = [3], ceil_mode = 1, "
        'auto_pad = "VALID"> (x) }',
        {"x": _ones(1, 2, 5)},
    ),
    (16, "(float[N,3,M] x) => (float[?,?,?] y) { y = GlobalLpPool <p = 3> (x) }", {"x": _ones(2, 3, 4)}),
    (
        21,
        "(double[1,2,3] t, int64[4] s) => (double[?,?,?,?] y) { y = AffineGrid (t, s) }",
        {"t": _ones(1, 2, 3, dtype=np.float64), "s": np.array([1, 2, 3, 2])},
    ),
    (9, "(float[3,1] x, float[4] s) => (float[?,?] y) { y = PRelu (x, s) }", {"x": -_ones(3, 1), "s": _ones(4)}),
    (
        17,
        "(float[2] i, float[2] v) => (float[?,?] y) <float[1] d = {3}> { y = OneHot (i, d, v) }",
        {"i": np.array([1, -1], np.float32), "v": _ones(2)},
    ),
    (13, "(int32 x) => (int32 y) { y = ReduceLogSum (x) }", {"x": np.array(3, np.int32)}),
    (
        23,
        "(int64[1,4] x, int64[K] a) => (int64 y) { y = ReduceLogSum <keepdims = 0> (x, a) }",
        {"x": _ones(1, 4, dtype=np.int64), "a": np.array([0, 1])},
    ),
    (10, "(float[3,N,3] x) => (float[?,?,?] a, float[?,?,?] b) { a, b = Split <axis = 1> (x) }", {"x": _ones(3, 4, 3)}),
    (14, "(float[N,2,M] x) => (float[?,?,?,?] y) <int64[1] a = {2}> { y = Unsqueeze (x, a) }", {"x": _ones(0, 2, 3)}),
    (
        10,
        "(float[N,1,M] x, int64[1] s) => (float[?] y, float[?,?,?] z) { y = Reshape (x, s) z = Split <axis = 0> (x) }",
        {"x": _ones(2, 1, 3), "s": np.array([-1])},
    ),
    (
        14,
        "(float[3] x) => (seq(float[]) s, int64 n) <int64 p = {1}> { "
        "t = SplitToSequence <keepdims = 0> (x, p) n = SequenceLength (t) s = SequenceInsert (t, x) }",
        {"x": _ones(3)},
    ),
    (
        24,
        "(float[1,1,2,2] q, float[1,1,4,2] k, float[1,1,4,2] v, float[1,1,3,2] p) => (float[?,?,?,?] y) "
        '{ y, a, b = Attention <is_causal = 1> (q, k, v, "", p, p) }',
        {
            "q": _ones(1, 1, 2, 2),
            "k": _ones(1, 1, 4, 2) % 3,
            "v": _ones(1, 1, 4, 2),
            "p": _ones(1, 1, 3, 2) % 4,
        },
    ),
    (
        15,
        "(float[N] x) => (seq(float[]) y) <int64 p = {4}> { y = SplitToSequence (x, p) }",
        {"x": _ones(0)},
    ),
    (15, "(int32 x) => (int32 y) { y = ReduceL2 (x) }", {"x": np.array(-3, np.int32)}),
    (
        15,
        "(float16[2,2] x) => (float16[?,?] y, float16[?] m, float16[?] v) <float16[2] c = {14336, 13312}> "
        "{ y, m, v = BatchNormalization <training_mode = 1> (x, c, c, c, c) }",
        {"x": _ones(2, 2, dtype=np.float16)},
    ),
    (
        13,
        "(float[N,M] y, int64 n) => (float[?,?] z) <float[1,2] x = {1, 2}, bool c = {1}> { z = Loop (n, c, x) <body = "
        "b (int64 i, bool k, float[?,?] a) => (bool[] l, float[] r) { r = Add (a, y) l = Identity (k) }> }",
        {"y": _ones(2, 2), "n": np.array(2)},
    ),
    (9, "(float[N,3,4,M] x) => (float[?,?] y) { y = Flatten <axis = 1> (x) }", {"x": _ones(0, 3, 4, 3)}),
    (11, "(float[1,1,N,M] x) => (float[?,?,?] y) { y = Squeeze <axes = [0]> (x) }", {"x": _ones(1, 1, 0, 1)}),
    (
        13,
        "(float[N,M,K] x) => (float[?,?,?,?] y) "
        "{ s = SequenceConstruct (x) y = ConcatFromSequence <axis = -4, new_axis = 1> (s) }",
        {"x": _ones(3, 0, 4)},
    ),
    (8, "(float[N,1,M] x) => (float[?,?,?] y) { y = Transpose <perm = [0, 2, 1]> (x) }", {"x": _ones(0, 1, 5)}),
    (
        24,
        "(float[2,N,M,1] x, int64 n) => (float[?,?,?,?] y) <int64 a = {1}> { y = DFT <onesided = 1> (x, n, a) }",
        {"x": _ones(2, 4, 3, 1), "n": np.array(1)},
    ),
    (
        14,
        "(int32[3] a, int32 b, int32[1,3] c) => (int32 y) { m = Max (a, b, c) y = ReduceMean <keepdims = 0> (m) }",
        {"a": _ones(3, dtype=np.int32), "b": np.array(2, np.int32), "c": _ones(1, 3, dtype=np.int32)},
    ),
    (10, "(float[2] x) => (float[?] y) { y = Clip <min = 1.0> (x) }", {"x": np.array([np.inf, 0], np.float32)}),
    (
        13,
        "(double[2] x, double l) => (double[?] y) { y = Clip (x, l) }",
        {"x": np.array([np.inf, 0]), "l": np.array(1.0)},
    ),
    (
        19,
        "(int8[N,2] x, int64[3,M] i) => (int8[?,?] y) { g = GatherND (x, i) y = Shrink <bias = 0.14250252> (g) }",
        {"x": np.array([[3, -3], [3, 2], [2, 5], [-1, 3]], np.int8), "i": np.array([[3], [3], [0]])},
    ),
]


@pytest.mark.parametrize(("opset", "text", "inputs"), _FOUND, ids=[text.split("{")[-1] for _, text, _ in _FOUND])
def test_what_was_found(opset: int, text: str, inputs: dict[str, Any]) -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> found {text}')
    found = compared(Case(0, model, [inputs, inputs]))
    assert found.kind == "fine", found


def test_a_peer_that_is_wrong_is_a_judge_of_what_does_not_hang_on_it() -> None:
    text = "found (float x, float[2] y) => (int64[?,?] a, float[?] b) { a = NonZero (x) b = Abs (y) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> {text}')
    theirs = peers_of(Case(0, model, [{"x": np.array(1, np.float32), "y": _ones(2)}]))
    assert theirs.judged([0]) == [0, 1]
    assert theirs.judged([0], "O") == [1]


@pytest.mark.parametrize(("rounds", "judged"), [(0, [0]), (1, [0, 1])])
def test_runtime_is_no_judge_of_what_is_scanned_in_no_round(rounds: int, judged: list[int]) -> None:
    text = """found (int64 n, float[N,2] x) => (float[?,?] a, float[?,?,?] b) { a, b = Loop (n, "", x) <body =
      b (int64 i, bool k, float[?,?] u) => (bool l, float[?,?] v, float[?,?] w) {
        l = Identity (k)
        v = Abs (u)
        w = Neg (u)
    }> }"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> {text}')
    case = Case(0, model, [{"n": np.array(rounds), "x": _ones(3, 2)}])
    assert peers_of(case).judged([0], "O") == judged
    assert compared(case).kind == "fine"


@pytest.mark.parametrize(("node", "least"), [("Shrink <bias = 1.0> (x)", 2**24), ("Mod <fmod = 1> (x, x)", 2**53)])
def test_runtime_is_no_judge_of_integers_that_its_floats_do_not_hold(node: str, least: int) -> None:
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 13]> found (int64[1] x) => (int64[?] y) {{ y = {node} }}'
    )
    calls = [{"x": np.array([number])} for number in (least, least + 1, -least - 1)]
    theirs = peers_of(Case(0, model, calls))
    assert [theirs.judged([call], "O") for call in range(3)] == [[0], [], []]


def _strings(*each: str) -> Any:
    return np.array(each, object)


def test_strings_that_say_one_number_are_the_same() -> None:
    assert not difference(_strings("NaN", "INF", "9.9999999e-09"), _strings("nan", "inf", "1e-08"), 0.0)
    assert difference(_strings("NaN", "a"), _strings("0", "a"), 0.0) == "strings"
    assert difference(_strings("NaN", "a"), _strings("nan", "b"), 0.0) == "strings"


def test_strings_that_say_numbers_may_be_a_rounding_apart() -> None:
    text = "found (float[1] x) => (string[?] y) { s = Add (x, x) d = Sub (s, x) z = Sub (d, x) y = Cast <to = 8> (z) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> {text}')
    case = Case(0, model, [{"x": np.array([3], np.float32)}])
    zero = [_strings("0")]
    assert is_rounding(case, case.calls[0], zero, [_strings("2.4e-07")])
    assert not is_rounding(case, case.calls[0], zero, [_strings("1")])
    assert not is_rounding(case, case.calls[0], zero, [_strings("none")])


def test_what_is_refused_as_documented_is_no_finding() -> None:
    text = """found (float[N] x, float[N] y) => (float[?] z) <int64[2] p = {0, 1}> {
      longer = Pad (x, p)
      z = Add (longer, y)
    }"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> {text}')
    assert compared(Case(0, model, [{"x": _ones(1), "y": _ones(1)}])).kind == "limit"


@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (1, 1)])
def test_squeeze_without_axes_of_sizes_that_are_1_at_run_time(shape: tuple[int, int]) -> None:
    text = "found (float[N,M] x) => (float[?] y) { y = Squeeze (x) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> {text}')
    assert compared(Case(0, model, [{"x": _ones(*shape)}])).kind == "fine"


def test_a_sequence_keeps_what_was_put_in() -> None:
    text = """found (float x, float[8] w, float b) => (seq(float) s, float[8] y) {
      t = SequenceConstruct (b, b)
      s = SequenceInsert (t, x)
      h = Mul (w, w)
      k = Exp (h)
      y = Add (k, h)
    }"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 15]> {text}')
    inputs = {"x": np.float32(7), "w": _ones(8), "b": np.float32(2)}
    found = compared(Case(0, model, [{name: np.asarray(value) for name, value in inputs.items()}]))
    assert found.kind == "fine", found
