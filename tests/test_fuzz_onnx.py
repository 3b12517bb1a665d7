"""The generator of random ONNX models: what it draws, and a slice of it in every way."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from capgraph.ir.errors import CapgraphError
from onnx import defs, parser

from tests.fuzz_onnx import main, outcome
from tests.onnx_models import ways
from tests.onnx_models.cases import HIGHEST, Case, drawn_case
from tests.onnx_models.comparing import compared, peers_of
from tests.onnx_models.draw import value_of
from tests.onnx_models.judging import difference, quantizes
from tests.onnx_models.parts import all_nodes
from tests.onnx_models.peers import run_runtime
from tests.onnx_models.reference_errors import reference_is_wrong
from tests.onnx_models.registry import RECIPES
from tests.onnx_models.rounding import contents, is_rounding, jumps
from tests.onnx_models.unspecified import is_inexact, is_open
from tests.onnx_models.ways import breaks_what_was_taken

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
        12,
        "(float[2] x) => (float[?,?] y) <int64 p = {1}> { "
        "s = SplitToSequence <keepdims = 0> (x, p) y = ConcatFromSequence <axis = -1, new_axis = 1> (s) }",
        {"x": _ones(2)},
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
        10,
        "(int64[4] s) => (float[?,?,?,?] y) { x = ConstantOfShape (s) y = Hardmax <axis = 1> (x) }",
        {"s": np.array([2, 3, 1, 2])},
    ),
    (
        9,
        "(float[N,1] x, bool c) => (float[?] z) <float o = {5}> { y = If (c) <then_branch = a () => (float[] s) "
        "{ s = Squeeze (x) }, else_branch = b () => (float t) { t = Add (o, o) }> z = Sin (y) }",
        {"x": _ones(3, 1), "c": np.array(True)},
    ),
    (9, "(float[N,M,1,1,N] x) => (float[?,?,?] y) { y = Squeeze <axes = [3, 0]> (x) }", {"x": _ones(1, 4, 1, 1, 1)}),
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
    (
        13,
        "(float[2] x, float[1,N] z, bool[3] c) => (float[?] y, float[?,?] v) "
        "{ y = Compress (x, c) v = Compress <axis = 1> (z, c) }",
        {"x": _ones(2), "z": _ones(1, 0), "c": np.array([False, False, False])},
    ),
    (
        18,
        "(float[2,3] x, int64[N] p) => (float[?,?] y) "
        '{ a = Constant <value = int32[1] {1}> () i = Identity (a) y = Pad (x, p, "", i) }',
        {"x": _ones(2, 3), "p": np.array([1, 2])},
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


_GAPS = "kernel_shape = [2], dilations = [2]"


@pytest.mark.parametrize(
    ("text", "inputs", "judges"),
    [
        (f"(float[1,1,5] x) => (float[?,?,?] y) {{ y = AveragePool <{_GAPS}> (x) }}", {"x": _ones(1, 1, 5)}, "OR"),
        (
            f'(float[1,1,5] x) => (float[?,?,?] y) {{ y = AveragePool <{_GAPS}, auto_pad = "VALID"> (x) }}',
            {"x": _ones(1, 1, 5)},
            "O",
        ),
        ("(string[2,2] x) => (string[?,?] y) { y = Trilu (x) }", {"x": np.full((2, 2), "a", object)}, ""),
        (
            "(float[1,1,0,N] x) => (float[?,?,?,?] y) { y = SpaceToDepth <blocksize = 2> (x) }",
            {"x": _ones(1, 1, 0, 3)},
            "",
        ),
        (
            "(float[1,1,0,N] x) => (float[?,?,?,?] y) { y = SpaceToDepth <blocksize = 2> (x) }",
            {"x": _ones(1, 1, 0, 4)},
            "OR",
        ),
        (
            "(float[1,N,0,2] x) => (float[?,?,?,?] y) { y = DepthToSpace <blocksize = 2> (x) }",
            {"x": _ones(1, 3, 0, 2)},
            "",
        ),
        (
            "(float[N,3,1,M] x, int64[K,1,1] l) => (float y) { y = NegativeLogLikelihoodLoss (x, l) }",
            {"x": _ones(2, 3, 1, 0), "l": _ones(0, 1, 1, dtype=np.int64)},
            "",
        ),
        (
            "(float[2] x, int64 n, bool c) => (int64[?] y) { s = Loop (n, c) <body = b (int64 i, bool k) => "
            "(bool l, float[2] r) { l = Identity (k) r = Abs (x) }> y = Shape (s) }",
            {"x": _ones(2), "n": np.array(0), "c": np.array(True)},
            "O",
        ),
        (
            "(float[?] x, int64 n, bool c) => (int64[?] y) { s = Loop (n, c) <body = b (int64 i, bool k) => "
            "(bool l, float[?] r) { l = Identity (k) r = Abs (x) }> y = Shape (s) }",
            {"x": _ones(2), "n": np.array(0), "c": np.array(True)},
            "",
        ),
        (
            "(float[2] x, int64 n, bool c) => (int64[?] y) { s = Loop (n, c) <body = b (int64 i, bool k) => "
            "(bool l, float[] r) { l = Identity (k) r = Abs (x) }> y = Shape (s) }",
            {"x": _ones(2), "n": np.array(0), "c": np.array(True)},
            "",
        ),
        *[
            (
                "(string[2] x, int64 n, bool c) => (string[?,?] y) { y = Loop (n, c) <body = b (int64 i, bool k) => "
                "(bool l, string[2] r) { l = Identity (k) r = Identity (x) }> }",
                {"x": np.array(["a", "b"], object), "n": np.array(rounds), "c": np.array(True)},
                judges,
            )
            for rounds, judges in ((1, "O"), (2, ""))
        ],
        *[
            (
                "(int64 n, bool c, int64 x) => (int64 y) { y = Loop (n, c, x) <body = b (int64 i, bool k, int64 v) => "
                f"(bool k, int64 {given}) {{ a = Add (i, i) }}> }}",
                {"n": np.array(3), "c": np.array(True), "x": np.array(7)},
                judges,
            )
            for given, judges in (("i", "R"), ("a", "OR"), ("v", "OR"))
        ],
        *[
            (
                "(float x, float[3] s) => (float[] y, float[?] z) { y, z = Scan <num_scan_inputs = 1, body = "
                f"b (float v, float e) => (float {state}, float {scanned}) {{ a = Add (v, e) n = Neg (e) }}> (x, s) }}",
                {"x": np.array(1, np.float32), "s": _ones(3)},
                judges,
            )
            for state, scanned, judges in (("a", "n", "OR"), ("v", "n", "R"), ("e", "n", "R"), ("a", "e", "R"))
        ],
        *[
            (
                "(uint8[N,2,M] x, uint8[K,M,2] y) => (int32[?,?,?] z) { z = MatMulInteger (x, y) }",
                {"x": np.zeros((left, 2, inner), np.uint8), "y": np.zeros((3, inner, 2), np.uint8)},
                judges,
            )
            for left, inner, judges in ((3, 1, "OR"), (2, 0, ""))
        ],
        *[
            (
                "(float[1,2,3] x, float[C] s, float[B] b) => (float[?,?,?] y) { y = InstanceNormalization (x, s, b) }",
                {"x": _ones(1, 2, 3), "s": _ones(2), "b": _ones(count)},
                judges,
            )
            for count, judges in ((2, "OR"), (1, ""))
        ],
        (
            "(float[1,2,3] x) => (float[?,?,?] y) { y, i = MaxPool <kernel_shape = [2]> (x) }",
            {"x": _ones(1, 2, 3)},
            "OR",
        ),
        (
            "(float[1,2,3] x) => (int64[?,?,?] i) { y, i = MaxPool <kernel_shape = [2]> (x) }",
            {"x": _ones(1, 2, 3)},
            "O",
        ),
        *[
            (
                "(float[1,1,R,3] x) => (float[?,?,?,?] y) { y = AveragePool <kernel_shape = [3, 1], strides = [3, 1], "
                "ceil_mode = 1> (x) }",
                {"x": _ones(1, 1, rows, 3)},
                judges,
            )
            for rows, judges in ((4, "O"), (5, "OR"), (6, "OR"))
        ],
        *[
            (
                f"(double[1,1,4,5] x) => (double[?,?,?,?] y) {{ y = MaxPool <kernel_shape = [3, 3], {given}> (x) }}",
                {"x": _ones(1, 1, 4, 5, dtype=np.float64)},
                judges,
            )
            for given, judges in (
                ("pads = [1, 2, 0, 1]", "O"),
                ("pads = [1, 2, 2, 1]", "OR"),
                ("pads = [1, 2, 0, 1], strides = [1, 2]", "OR"),
                ("pads = [1, 1, 1, 1], ceil_mode = 1", "O"),
            )
        ],
        (
            "(float[1,1,5] x) => (float[?,?,?] y) { y = MaxPool <kernel_shape = [2], pads = [0, 1]> (x) }",
            {"x": _ones(1, 1, 5)},
            "O",
        ),
        *[
            (
                '(float[N] x, int64[2] p) => (float[?] y) { y = Pad <mode = "edge"> (x, p) }',
                {"x": _ones(size), "p": np.array([1, -1])},
                judges,
            )
            for size, judges in ((0, ""), (2, "O"))
        ],
        *[
            (
                "(float[1,1,1,N] x, float[1,1,M] c) => (float[?,?,?,?] y) "
                f"{{ y = RotaryEmbedding <rotary_embedding_dim = {part}> (x, c, c) }}",
                {"x": _ones(1, 1, 1, size), "c": _ones(1, 1, (part or size) // 2)},
                judges,
            )
            for size, part, judges in ((4, 0, "OR"), (5, 4, "OR"), (5, 0, ""))
        ],
        *[
            (
                f'(float[2,3,2] x, int64[N,M] l) => (float[?,?] y) {{ y = {loss} <reduction = "none"> (x, l) }}',
                {"x": np.tile(_ones(3)[:, None], (2, 1, 2)), "l": np.zeros((2, count), np.int64)},
                judges,
            )
            for loss in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
            for count, judges in ((2, "OR"), (1, ""))
        ],
        *[
            (
                "(double[1,2,3] x, double[C] s) => (double[?,?,?] y) { y = GroupNormalization <num_groups = 2, "
                "stash_type = 11> (x, s, s) }",
                {"x": _ones(1, 2, 3, dtype=np.float64), "s": _ones(count, dtype=np.float64)},
                judges,
            )
            for count, judges in ((2, "OR"), (1, ""))
        ],
        *[
            (
                "(float[N] x, bool[M] c) => (float[?] y) { y = Compress <axis = 0> (x, c) }",
                {"x": _ones(1), "c": np.array([True, is_beyond])},
                judges,
            )
            for is_beyond, judges in ((True, ""), (False, "OR"))
        ],
        *[
            (
                "(float[N,M,0] x, int64[2,4,0] i) => (float[?,?,?] y) { y = GatherElements <axis = 1> (x, i) }",
                {"x": _ones(count, 3, 0), "i": _ones(2, 4, 0, dtype=np.int64)},
                judges,
            )
            for count, judges in ((1, ""), (2, "OR"))
        ],
        *[
            (
                """(float[N] a, float[M] b) => (float[?] y) {
                  y = Scan <num_scan_inputs = 2, body = add (float p, float q) => (float r) { r = Add (p, q) }> (a, b)
                }""",
                {"a": _ones(2), "b": _ones(count)},
                judges,
            )
            for count, judges in ((3, ""), (2, "OR"))
        ],
        *[
            (
                f"({ty}[2] x) => ({ty}[?] y) {{ y = LogSoftmax <axis = 0> (x) }}",
                {"x": np.array([1, np.nan], dtype)},
                judges,
            )
            for ty, dtype, judges in (("double", np.float64, "R"), ("float", np.float32, "OR"))
        ],
        *[
            (
                "(float[2] x, int64[1] i) => (float[?] y) { y = GatherElements (x, i) }",
                {"x": _ones(2), "i": np.array([place])},
                judges,
            )
            for place, judges in ((2, ""), (-3, ""), (-2, "OR"))
        ],
        *[
            (
                "(float[B,4,1] x, float[N] w, int64 s) => (float[?,?,?,?] y) { y = STFT <onesided = 0> (x, s, w) }",
                {"x": _ones(0, 4, 1), "w": _ones(size), "s": np.array(2)},
                judges,
            )
            for size, judges in ((0, ""), (2, "OR"))
        ],
        *[
            (
                f"({ty}[1] x) => (string[?] y) {{ s = Cast <to = 8> (x) y = {node} }}",
                {"x": _ones(1, dtype=dtype)},
                judges,
            )
            for ty, dtype, node, judges in (
                ("float", np.float32, "Identity (s)", "OR"),
                ("float", np.float32, "StringConcat (s, s)", ""),
                ("int64", np.int64, "StringConcat (s, s)", "OR"),
            )
        ],
    ],
)
def test_who_is_a_judge(text: str, inputs: dict[str, Any], judges: str) -> None:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> found {text}')
    assert "".join(sorted(peers_of(Case(0, model, [inputs])).judges_of(0, 0))) == judges


def test_what_runtime_gets_wrong_is_the_reference_evaluators() -> None:
    text = "(float[4,4,0] x) => (float[?,?] y) { y = ReduceMax <keepdims = 0, axes = [-3]> (x) }"
    case = _case(text, {"x": _ones(4, 4, 0)}, 12)
    assert run_runtime(case.model.SerializeToString(), case.calls[0])[0].shape == (4, 4, 0)
    assert contents(case.model, case.calls[0])["y"].shape == (4, 0)


@pytest.mark.parametrize(("columns", "breaks"), [(1, True), (2, False)])
def test_sizes_that_a_model_cannot_have_break_what_was_taken(columns: int, breaks: bool) -> None:
    case = _case(
        "(float[2,N] x) => (int64[] y) { t = Transpose (x) s = Squeeze (t) y = ArgMin <axis = 1> (s) }", {}, 15
    )
    assert breaks_what_was_taken(case.model.SerializeToString(), {"x": _ones(2, columns)}) is breaks


@pytest.mark.parametrize(("rounds", "judged"), [(0, []), (1, [0, 1])])
def test_nobody_is_a_judge_of_what_is_scanned_in_no_round(rounds: int, judged: list[int]) -> None:
    text = """found (int64 n, float[N,2] x) => (float[?,?] a, float[?,?,?] b) { a, b = Loop (n, "", x) <body =
      b (int64 i, bool k, float[?,?] u) => (bool l, float[?,?] v, float[?,?] w) {
        l = Identity (k)
        v = Abs (u)
        w = Neg (u)
    }> }"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 13]> {text}')
    case = Case(0, model, [{"n": np.array(rounds), "x": _ones(3, 2)}])
    assert peers_of(case).judged([0], "O") == judged
    assert compared(case).kind == ("fine" if rounds else "unjudged")


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


def _case(text: str, inputs: dict[str, Any], opset: int) -> Case:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> found {text}')
    return Case(0, model, [inputs])


@pytest.mark.parametrize(
    ("mode", "scales", "region", "judges"),
    [
        ("tf_crop_and_resize", "2, 2", [0.25, 0, 0.75, 1], "RO"),
        ("tf_crop_and_resize", "2, 1", [0.25, 0, 0.75, 1], "RO"),
        ("tf_crop_and_resize", "1, 2", [0.25, 0, 0.75, 1], "R"),
        ("tf_crop_and_resize", "2, 1.5", [0.25, 0, 0.75, 1], "R"),
        ("align_corners", "2, 1.5", [], "R"),
        ("half_pixel", "2, 1.5", [], "RO"),
        ("half_pixel", "2, 1.1", [], "R"),
        ("pytorch_half_pixel", "0.5, 0.6", [], "RO"),
        ("pytorch_half_pixel", "0.5, 0.3", [], "R"),
        ("pytorch_half_pixel", "0.25, 0.6", [], "O"),
        ("pytorch_half_pixel", "0.25, 0.3", [], ""),
    ],
)
def test_peers_are_no_judges_of_parts_of_elements(mode: str, scales: str, region: list[float], judges: str) -> None:
    attributes = f'mode = "linear", coordinate_transformation_mode = "{mode}"'
    text = "(float[4,5] x, float[R] r) => (float[?,?] y) <float[2] s = {%s}> { y = Resize <%s> (x, r, s) }"
    inputs = {"x": _ones(4, 5), "r": np.array(region, np.float32)}
    case = _case(text % (scales, attributes), inputs, 18)
    assert set(peers_of(case).judges[0, 0]) == set(judges)
    assert compared(case).kind == ("fine" if judges else "unjudged")


@pytest.mark.parametrize(
    ("operator", "x", "updates", "judges"),
    [
        ("ScatterElements", np.nan, 1, "R"),
        ("ScatterElements", 1, np.nan, ""),
        ("ScatterElements", 1, 2, "RO"),
        ("ScatterND", 1, np.nan, "R"),
    ],
)
def test_peers_that_pass_over_nan_are_no_judges(operator: str, x: float, updates: float, judges: str) -> None:
    shape = "1,1" if operator == "ScatterND" else "1"
    body = f'y = {operator} <reduction = "max"> (x, i, u)'
    text = f"(float[1] x, float[1] u) => (float[?] y) <int64[{shape}] i = {{0}}> {{ {body} }}"
    inputs = {"x": np.array([x], np.float32), "u": np.array([updates], np.float32)}
    case = _case(text, inputs, 18)
    assert set(peers_of(case).judges[0, 0]) == set(judges)
    assert compared(case).kind == ("fine" if judges else "unjudged")


_LOSS = """(float[N,2] x, int64[N] l) => (float y, float[?,?] z) {
  y, z = SoftmaxCrossEntropyLoss (x, l)
}"""
_STFT = "(float[1,4,1] x, float[N] w, int64 n) => (float[?,?,?,?] y) <int64 s = {1}> { y = STFT (x, s, w, n) }"
_SOFTPLUS = """(float[1,1,1] x, float[1,2] b) => (float[?,?,?,?] y) <float[1,1,1] w = {1}> {
  y = RNN <hidden_size = 1, activations = ["Softplus"]> (x, w, w, b)
}"""
_EQUAL = "(float[N] x) => (float[?] y) { y, z = Split (x) }"
_REVERSED = "(float[2,N] x, int64[K] l) => (float[?,?] y) { y = ReverseSequence (x, l) }"
_STATE = """(float[N,1,1] x, float[1,1,1] h) => (float[?,?,?] y) <float[1,1,1] w = {1}> {
  z, y = RNN <hidden_size = 1> (x, w, w, "", "", h)
}"""
_WEIGHTS = """(float[N,1,1] x, float[1,K,1] w) => (float[?,?,?,?] y) <float[1,2,2] r = {1, 0, 0, 1}> {
  y = RNN <hidden_size = 2> (x, w, r)
}"""
_ASKED = """(float[1,1,5] x) => (float[?,?,?] y) <float[1,1,2] w = {1, 10}> {
  y = ConvTranspose <output_shape = [5], %s> (x, w)
}"""
_TRAINED = "(float[2,1] x, float[1] s) => (float[?,?] y) { y = BatchNormalization (x, s, s, s, s) }"
_LARGER = '(float[1,2] x) => (float[?,?] y) <float[2] s = {1, %g}> { y = Upsample <mode = "linear"> (x, s) }'
_BORDER = """(float[1,1,1,4] x, float[1,1,1,2] g) => (float[?,?,?,?] y) {
  y = GridSample <mode = "cubic", padding_mode = "%s"> (x, g)
}"""
_STATED = "(float[1,1,3] x, float[1,1,N] w) => (float[?,?,?] y) { y = Conv <kernel_shape = [2]> (x, w) }"
_SLOPES = "(float[N,3] x, float[K,3] s) => (float[?,?] y) { y = PRelu (x, s) }"
_KERNEL = """(uint8[1,1,2,2] x, uint8[1,1,K,2] w) => (uint8[?,?,?,?] y) <float s = {1}, uint8 z = {0}> {
  y = QLinearConv <pads = [1, 0, 0, 0]> (x, s, z, w, s, z, s, z)
}"""


@pytest.mark.parametrize(
    ("text", "opset", "inputs", "judges"),
    [
        (_LOSS, 13, {"x": [[1, -80]], "l": [0]}, "RO"),
        (_LOSS, 13, {"x": [[1, -95]], "l": [0]}, "O"),
        (_LOSS, 13, {"x": [[1, np.inf]], "l": [0]}, "R"),
        ("(float[N,2] x) => (float[?,?] y) { y = LogSoftmax (x) }", 13, {"x": [[1, -80]]}, "RO"),
        ("(float[N,2] x) => (float[?,?] y) { y = LogSoftmax (x) }", 13, {"x": [[1, -95]]}, "O"),
        (_STFT, 17, {"x": [[[1], [2], [3], [4]]], "w": [1, 2], "n": 2}, "RO"),
        (_SOFTPLUS, 14, {"x": [[[1]]], "b": [[1, 20]]}, "O"),
        (_SOFTPLUS, 14, {"x": [[[1]]], "b": [[1, 90]]}, ""),
        (_TRAINED, 13, {"x": [[1], [2]], "s": [2]}, "O"),
        (_TRAINED, 14, {"x": [[1], [2]], "s": [2]}, "RO"),
    ],
)
def test_who_is_a_judge_of_numbers(text: str, opset: int, inputs: dict[str, Any], judges: str) -> None:
    integers = {"l", "n"}
    call = {name: np.array(each, np.int64 if name in integers else np.float32) for name, each in inputs.items()}
    case = _case(text, call, opset)
    assert set(peers_of(case).judges[0, 0]) == set(judges)
    assert compared(case).kind == ("fine" if judges else "unjudged")


@pytest.mark.parametrize(
    ("text", "opset", "inputs", "judges"),
    [
        (_EQUAL, 17, {"x": [1, 2]}, "RO"),
        (_EQUAL, 17, {"x": [1, 2, 3]}, ""),
        (_EQUAL.replace("(x)", "<num_outputs = 2> (x)"), 18, {"x": [1, 2, 3]}, "RO"),
        (_REVERSED, 10, {"x": _ones(2, 2), "l": [2, 1]}, "RO"),
        (_REVERSED, 10, {"x": _ones(2, 3), "l": [2, 1]}, ""),
        (_STATE, 14, {"x": _ones(2, 1, 1), "h": [[[2]]]}, "RO"),
        (_STATE, 14, {"x": _ones(0, 1, 1), "h": [[[2]]]}, ""),
        (_WEIGHTS, 14, {"x": _ones(2, 1, 1), "w": [[[1], [2]]]}, "RO"),
        (_WEIGHTS, 14, {"x": _ones(2, 1, 1), "w": [[[1]]]}, ""),
        (_ASKED % 'auto_pad = "SAME_LOWER"', 8, {"x": _ones(1, 1, 5)}, "R"),
        (_ASKED % "pads = [1, 0]", 8, {"x": _ones(1, 1, 5)}, "RO"),
        (_ASKED % "pads = [0, 1]", 8, {"x": _ones(1, 1, 5)}, "O"),
        (_BORDER % "border", 20, {"x": _ones(1, 1, 1, 4), "g": _ones(1, 1, 1, 2)}, "O"),
        (_BORDER % "reflection", 20, {"x": _ones(1, 1, 1, 4), "g": _ones(1, 1, 1, 2)}, "RO"),
        (_LARGER % 1.5, 9, {"x": _ones(1, 2)}, "O"),
        (_LARGER % 1.4, 9, {"x": _ones(1, 2)}, ""),
        (_STATED, 17, {"x": _ones(1, 1, 3), "w": _ones(1, 1, 2)}, "RO"),
        (_STATED, 17, {"x": _ones(1, 1, 3), "w": _ones(1, 1, 1)}, ""),
        (_SLOPES, 16, {"x": _ones(2, 3), "s": _ones(1, 3)}, "RO"),
        (_SLOPES, 16, {"x": _ones(1, 3), "s": _ones(2, 3)}, ""),
        (_SLOPES, 16, {"x": _ones(4, 3), "s": _ones(2, 3)}, ""),
    ],
)
def test_who_is_a_judge_of_sizes(text: str, opset: int, inputs: dict[str, Any], judges: str) -> None:
    call = {name: np.array(each, np.int64 if name == "l" else np.float32) for name, each in inputs.items()}
    assert set(peers_of(_case(text, call, opset)).judges_of(0, 0)) == set(judges)


def test_integers_in_functions_may_be_a_step_apart() -> None:
    text = "(uint8[1,3] x) => (uint8[?,?] y) { y = local.wide (x) } " + (
        '<domain: "local", opset_import: ["": 18]> wide (x) => (y) { '
        's = Constant <value = int64[2] {1, 7}> () y = Resize <mode = "linear"> (x, "", "", s) }'
    )
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "local": 1]> found {text}')
    assert quantizes(model)
    assert not quantizes(_case("(uint8 x) => (uint8 y) { y = Identity (x) }", {}, 18).model)


@pytest.mark.parametrize(("lowest", "is_excused"), [(-103, True), (-80, False)])
def test_the_least_numbers_may_be_0(lowest: float, is_excused: bool) -> None:
    case = _case("(float[1] x) => (float[?] y) { e = Exp (x) y = Log (e) }", {"x": np.array([lowest], np.float32)}, 13)
    expected = peers_of(case).accepted(0)[0]
    assert np.isfinite(expected[0]).all()
    assert is_rounding(case, case.calls[0], expected, [np.full(1, -np.inf, np.float32)]) is is_excused


def test_an_axis_that_is_none_has_no_end_to_choose_behind() -> None:
    text = "(float[2] x, bool[2] c) => (float[?] y) { y = Compress <axis = 1> (x, c) }"
    case = _case(text, {"x": _ones(2), "c": np.array([True, False])}, 11)
    assert peers_of(case).judges_of(0, 0) == {}


def test_rows_that_are_equal_for_the_reference_alone_are_rounding() -> None:
    """ONNX Runtime folds the mean into the bias, which makes three rows of one."""
    text = """(float[3,2,1] x, float[2] s, float[2] b) => (float[?,?,?] y) {
      n = InstanceNormalization (x, s, b)
      y = Unique <axis = 0> (n)
    }"""
    x = np.array([2.6902747, 0.95813197, 0.8622761, 2.8564951, 0.5200084, 2.9718857], np.float32).reshape(3, 2, 1)
    call = {"x": x, "s": np.array([-0.5, -1.5], np.float32), "b": np.array([0.8267452, 1.460506], np.float32)}
    case = _case(text, call, 22)
    by_reference, by_runtime = peers_of(case).accepted(0)
    assert len(by_reference[0]) < len(by_runtime[0])
    assert is_rounding(case, case.calls[0], by_runtime, by_reference)


@pytest.mark.parametrize(("mode", "is_excused"), [("linear", True), ("nearest", False)])
def test_what_hangs_on_a_step_of_interpolated_integers_is_rounding(mode: str, is_excused: bool) -> None:
    text = """(int32[1,1,4,5] x, int32[1,1,10,2] m) => (int32[?,?,?,?] y) <int64[4] s = {1, 1, 10, 2}> {
      r = Resize <mode = "%s", coordinate_transformation_mode = "align_corners"> (x, "", "", s)
      y = Mod (r, m)
    }"""
    x, m = np.arange(-10, 10).reshape(1, 1, 4, 5), np.full((1, 1, 10, 2), -4)
    case = _case(text % mode, {"x": x.astype(np.int32), "m": m.astype(np.int32)}, 13)
    expected = peers_of(case).accepted(0)[0][0]
    assert is_rounding(case, case.calls[0], [expected], [np.where(expected == 0, -3, expected)]) is is_excused


@pytest.mark.parametrize("off", [4e-5, 5e-4])
def test_cubic_weights_are_those_of_floats(off: float) -> None:
    text = """(double[1,1,5,1] x) => (double[?,?,?,?] y) <int64[1] s = {3}> {
      y = Resize <mode = "cubic", antialias = 1, axes = [2]> (x, "", "", s)
    }"""
    case = _case(text, {"x": _ones(1, 1, 5, 1, dtype=np.float64)}, 18)
    expected = peers_of(case).accepted(0)[0][0]
    assert is_rounding(case, case.calls[0], [expected], [expected + off]) is (off < 1e-4)


WEIGHED = """(float[2,3] x) => (float[?,?] y) <TYPE[3,2] w = {2, 5, 4, 5, 1, 3}, float s = {0.4}> {
  d = DequantizeLinear (w, s)
  y = MatMul (x, d)
}"""


@pytest.mark.parametrize("opset", [15, 21])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_rows_that_meet_weights_of_bytes_are_rounded_to_bytes(dtype: str, opset: int) -> None:
    x = np.array([[0.46926332, -1.9428012, 0.01850681], [1, 2, 3]], np.float32)
    case = _case(WEIGHED.replace("TYPE", dtype), {"x": x}, opset)
    assert compared(case).findings == []
    (expected,) = peers_of(case).accepted(0)[-1]
    for off, way, is_excused in ((4e-3, "ort", True), (4e-3, "eager", False), (0.5, "ort", False)):
        assert is_rounding(case, case.calls[0], [expected], [expected * np.float32(1 + off)], way) is is_excused


def test_only_rows_near_the_end_of_floats_may_be_no_numbers_among_bytes() -> None:
    case = _case(WEIGHED.replace("TYPE", "int8"), {"x": np.array([[1.7e38, 0, 0], [1, 2, 3]], np.float32)}, 15)
    (expected,) = peers_of(case).accepted(0)[-1]
    assert np.isfinite(expected).all()
    for row in range(2):
        given = np.where(np.arange(2)[:, None] == row, np.float32(np.nan), expected)
        assert is_rounding(case, case.calls[0], [expected], [given], "ort") is (row == 0)


def test_weights_that_are_given_are_multiplied_by_floats() -> None:
    text = "(float[2,3] x, int8[3,2] w, float s) => (float[?,?] y) { d = DequantizeLinear (w, s) y = MatMul (x, d) }"
    call = {"x": _ones(2, 3), "w": np.full((3, 2), 3, np.int8), "s": np.array(0.4, np.float32)}
    case = _case(text, call, 21)
    (expected,) = peers_of(case).accepted(0)[0]
    assert not is_rounding(case, case.calls[0], [expected], [expected * np.float32(1.004)], "ort")


@pytest.mark.parametrize(("off", "is_excused"), [(1e-6, True), (1e-3, False)])
def test_places_of_doubles_are_those_of_floats(off: float, is_excused: bool) -> None:
    text = """(double[1,1,1,4] x, double[1,1,1,2] g) => (double[?,?,?,?] y) {
      y = GridSample <mode = "cubic", padding_mode = "reflection"> (x, g)
    }"""
    x, grid = np.array([1.5, -2, 3, 0.25]).reshape(1, 1, 1, 4), np.array([0.3, 1.7]).reshape(1, 1, 1, 2)
    case = _case(text, {"x": x, "g": grid}, 20)
    assert compared(case).kind == "fine"
    expected = peers_of(case).accepted(0)[0][0]
    assert is_rounding(case, case.calls[0], [expected], [expected + off]) is is_excused


@pytest.mark.parametrize(("mode", "judges"), [("linear", ""), ("nearest", "R")])
def test_reference_is_no_judge_of_integers_between_which_a_grid_lies(mode: str, judges: str) -> None:
    text = f"""(int32[1,1,1,2] x, float[1,1,1,2] g) => (int32[?,?,?,?] y) {{
      y = GridSample <mode = "{mode}", align_corners = 1> (x, g)
    }}"""
    x, grid = np.array([[[[3, 8]]]], np.int32), np.array([[[[0.5, 0]]]], np.float32)
    case = _case(text, {"x": x, "g": grid}, 20)
    assert set(peers_of(case).judges[0, 0]) == set(judges)
    assert compared(case).kind == ("fine" if judges else "unjudged")


@pytest.mark.parametrize(("rows", "judges"), [(0, "R"), (1, "RO")])
def test_runtime_is_no_judge_of_a_kernel_without_elements(rows: int, judges: str) -> None:
    kernel = np.ones((1, 1, rows, 2), np.uint8)
    case = _case(_KERNEL, {"x": _ones(1, 1, 2, 2, dtype=np.uint8), "w": kernel}, 13)
    assert set(peers_of(case).judges[0, 0]) == set(judges)


@pytest.mark.parametrize(("bits", "is_judged"), [(32640, False), (16128, True)])  # infinity, 0.5
def test_bfloat16_has_infinities_too(bits: int, is_judged: bool) -> None:
    body = "a = Attention (q, q, q) y = Cast <to = 1> (a)"
    text = f"() => (float[?,?,?,?] y) <bfloat16[1,1,1,1] q = {{{bits}}}> {{ {body} }}"
    assert bool(peers_of(_case(text, {}, 23)).judges[0, 0]) is is_judged


@pytest.mark.parametrize(
    ("past", "judges"), [((2, 1, 1, 1), "O"), ((2, 1, 0, 0), ""), ((1, 1, 0, 1), ""), ((2, 3, 0, 1), "")]
)
def test_runtime_is_no_judge_of_a_past_of_other_sizes(past: tuple[int, ...], judges: str) -> None:
    text = """(double[2,2,2,1] q, double[2,1,1,1] k, double[B,H,P,S] p) => (double[?,?,?,?] y) {
      y, a, b, c = Attention <is_causal = 1> (q, k, k, "", p, p)
    }"""
    inputs = {"q": (2, 2, 2, 1), "k": (2, 1, 1, 1), "p": past}
    theirs = peers_of(_case(text, {name: np.ones(shape) for name, shape in inputs.items()}, 24))
    assert "".join(theirs.judges[0, 0].keys() - {"R"}) == judges


@pytest.mark.parametrize(("past", "judges"), [((2, 2, 0, 3), "OR"), ((1, 2, 0, 3), ""), ((2, 1, 0, 3), "")])
def test_runtime_is_no_judge_of_a_past_of_other_sizes_than_heads_side_by_side(
    past: tuple[int, ...], judges: str
) -> None:
    text = """(double[2,2,6] q, double[B,H,P,S] p) => (double[?,?,?] y) {
      y, a, b = Attention <q_num_heads = 2, kv_num_heads = 2> (q, q, q, "", p, p)
    }"""
    theirs = peers_of(_case(text, {"q": np.ones((2, 2, 6)), "p": np.ones(past)}, 24))
    assert "".join(sorted(theirs.judges_of(0, 0))) == judges


@pytest.mark.parametrize(("keys", "size", "judges"), [(1, 2, "OR"), (2, 0, "OR"), (2, 2, "R")])
def test_runtime_is_no_judge_of_keys_that_come_after_a_single_query(keys: int, size: int, judges: str) -> None:
    text = """(float[1,1,1,1] q, float[1,1,K,1] k, float[1,1,P,1] p) => (float[?,?,?,?] y) {
      y, a, b = Attention <is_causal = 1> (q, k, k, "", p, p)
    }"""
    inputs = {"q": _ones(1, 1, 1, 1), "k": _ones(1, 1, keys, 1), "p": _ones(1, 1, size, 1)}
    assert "".join(sorted(peers_of(_case(text, inputs, 24)).judges_of(0, 0))) == judges


@pytest.mark.parametrize(
    ("operands", "attributes", "judges"),
    [
        ("q, k, k, m", "is_causal = 0", "OR"),
        ("q, k, k, m", "is_causal = 1", "R"),  # the first query sees the first key alone, which the mask hides
        ('q, k, k, "", "", "", one', "is_causal = 1", "R"),  # one key for two queries: the first sees none
        ('q, k, k, "", "", "", one', "is_causal = 0", "OR"),
        ('q, k, k, "", "", "", two', "is_causal = 1", "OR"),
        ("f, f, f, m", "is_causal = 1", "OR"),
    ],
)
def test_runtime_is_no_judge_of_doubles_that_see_nothing(operands: str, attributes: str, judges: str) -> None:
    text = f"""(double[1,1,2,1] q, double[1,1,3,1] k, float[1,1,2,1] f, bool[2,2] m) => (y)
      <int64[1] one = {{1}}, int64[1] two = {{2}}> {{ y = Attention <{attributes}> ({operands}) }}"""
    inputs = {"q": np.ones((1, 1, 2, 1)), "k": np.ones((1, 1, 3, 1)), "f": _ones(1, 1, 2, 1)}
    kind = "float" if operands[0] == "f" else "double"
    case = _case(text.replace("(y)", f"({kind}[?,?,?,?] y)"), {**inputs, "m": np.array([[False, True]] * 2)}, 24)
    assert "".join(sorted(peers_of(case).judges_of(0, 0))) == judges


@pytest.mark.parametrize(("heads", "judges"), [(2, "OR"), (1, "")])
def test_runtime_is_no_judge_of_fewer_values_than_keys(heads: int, judges: str) -> None:
    text = "(double[1,4,3,2] q, double[1,2,2,2] k, double[1,H,2,2] v) => (double[?,?,?,?] y) {y = Attention (q, k, v)}"
    inputs = {"q": _ones(1, 4, 3, 2), "k": _ones(1, 2, 2, 2), "v": _ones(1, heads, 2, 2)}
    case = _case(text, {name: each.astype(np.float64) for name, each in inputs.items()}, 24)
    assert "".join(sorted(peers_of(case).judges_of(0, 0))) == judges


@pytest.mark.parametrize(
    ("mode", "scale", "judges"),
    [
        ("floor", 0.6, "R"),  # the second place is 2 - 1e-7, which f32 has for 2
        ("floor", 0.7, "OR"),
        ("floor", 1.5, "OR"),  # whole places, as the scale is exact
        ("ceil", 0.6, "R"),
        ("round_prefer_floor", 0.6, "OR"),
        ("round_prefer_floor", 1.2, "R"),
    ],
)
def test_runtime_is_no_judge_of_places_beside_an_edge(mode: str, scale: float, judges: str) -> None:
    how = f'mode = "nearest", nearest_mode = "{mode}", coordinate_transformation_mode = "half_pixel"'
    text = f'(float[4] x) => (float[?] y) <float[1] s = {{{scale}}}> {{ y = Resize <{how}> (x, "", s) }}'
    assert "".join(sorted(peers_of(_case(text, {"x": _ones(4)}, 19)).judges_of(0, 0))) == judges


@pytest.mark.parametrize(("axis", "judges"), [(1, "OR"), (-1, "")])
def test_runtime_is_no_judge_of_policies_along_axes_that_are_counted_from_the_last(axis: int, judges: str) -> None:
    text = f"""(float[1,4] x) => (float[?,?] y) <int64[1] s = {{8}}> {{
      y = Resize <axes = [{axis}], keep_aspect_ratio_policy = "not_larger"> (x, "", "", s)
    }}"""
    assert "".join(sorted(peers_of(_case(text, {"x": _ones(1, 4)}, 19)).judges_of(0, 0))) == judges


@pytest.mark.parametrize(("begin", "judges"), [(0.009714047, ""), (0.5, "R"), (-0.009714047, "R")])
def test_reference_is_no_judge_of_a_region_that_it_leaves(begin: float, judges: str) -> None:
    text = """(float[1,4] x, float[4] r) => (float[?,?] y) <float[2] s = {1.5, 3}> {
      y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"> (x, r, s)
    }"""
    case = _case(text, {"x": _ones(1, 4), "r": np.array([0, begin, 1, 0], np.float32)}, 15)
    assert "".join(sorted(peers_of(case).judges_of(0, 0))) == judges
    assert compared(case).kind == ("fine" if judges else "unjudged")


@pytest.mark.parametrize(
    ("weight", "scale", "judges"),
    [("v", "1e-8", "R"), ("v", "1e-3", "OR"), ("float[2,2] w = {1, 0.0001, 100.3, -4}", "1e-3", "R")],
)
def test_runtime_is_no_judge_of_floats_that_it_quantizes(weight: str, scale: str, judges: str) -> None:
    taken, made = ("", "w = DequantizeLinear (v, t, z)") if weight == "v" else (f", {weight}", "")
    text = f"""(int8[2,2] x) => (int8[?,?] y)
      <float s = {{0.05}}, int8 z = {{0}}, int8[2,2] v = {{1, 2, 3, 4}}, float t = {{{scale}}}{taken}>
      {{
        b = Constant <value_floats = [1.5, -2.25]> ()
        f = DequantizeLinear (x, s, z) {made} m = MatMul (f, w) p = Add (m, b)
        y = QuantizeLinear (p, s, z)
      }}"""
    case = _case(text, {"x": np.int8([[50, 0], [0, 1]])}, 21)
    assert "".join(sorted(peers_of(case).judges_of(0, 0))) == judges
    assert compared(case).kind == "fine"


def test_rounding_of_a_region_is_what_the_reference_does_where_runtime_passes_over_it() -> None:
    """0.8 + 3 * 0.9 is 3.5, which the reference has a little below, and ours at it."""
    text = """(float[9] x, float[2] r, int64[1] s) => (float[?] y) {
      y = Resize <
        mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize", nearest_mode = "round_prefer_ceil"
      > (x, r, "", s)
    }"""
    x = np.arange(9, dtype=np.float32)
    case = _case(text, {"x": x, "r": np.float32([0.1, 1.0]), "s": np.array([9])}, 22)
    assert "".join(peers_of(case).judges_of(0, 0)) == "R"
    assert compared(case).kind == "fine"
    places = np.array([1, 2, 3, 4, 4, 5, 6, 7, 8])
    assert is_rounding(case, case.calls[0], [x[[1, 2, 3, 3, *places[4:]]]], [x[places]])
    assert not is_rounding(case, case.calls[0], [x[places]], [x[[*places[:5], 6, 6, 7, 8]]])


@pytest.mark.parametrize(("scale", "judges"), [(1 / 3, "O"), (0.5, "R"), (2 / 3, "OR")])
def test_reference_is_no_judge_of_a_single_element_of_a_region(scale: float, judges: str) -> None:
    text = f"""(float[3] x, float[2] r) => (float[?] y) <float[1] s = {{{scale:.9f}}}> {{
      y = Resize <mode = "nearest", coordinate_transformation_mode = "tf_crop_and_resize"> (x, r, s)
    }}"""
    case = _case(text, {"x": np.arange(3, dtype=np.float32), "r": np.float32([0, 0.9])}, 19)
    assert "".join(sorted(peers_of(case).judges_of(0, 0))) == judges
    assert compared(case).kind == ("fine" if judges else "unjudged")


@pytest.mark.parametrize(
    ("before", "after", "judges"),
    [
        (7, 9, ""),  # the fifth place is 3, which f64 has for 3 - 4e-16
        (7, 8, "OR"),
        (6, 9, "OR"),
        (5, 7, "R"),  # 2, also in f64
    ],
)
def test_reference_is_no_judge_of_places_off_an_edge(before: int, after: int, judges: str) -> None:
    text = f"""(float[{before}] x) => (float[?] y) <int64[1] s = {{{after}}}> {{
      y = Resize <mode = "nearest", nearest_mode = "floor"> (x, "", "", s)
    }}"""
    case = _case(text, {"x": np.arange(before, dtype=np.float32)}, 19)
    assert "".join(sorted(peers_of(case).judges_of(0, 0))) == judges
    assert compared(case).kind == ("fine" if judges else "unjudged")


@pytest.mark.parametrize(
    ("operator", "x", "judges"),
    [
        ("ReduceL1", [[2**31 - 1, 1], [3, 4]], "R"),  # 2^31 wraps
        ("ReduceL1", [[2**31 - 1, 0], [1, 4]], "OR"),
        ("ReduceL2", [[2**16, 1], [3, 4]], "R"),
        ("ReduceSumSquare", [[2**16, 1], [3, 4]], ""),  # of which the reference gives int64
        ("ReduceSum", [[2**31 - 1, 1], [3, 4]], "R"),
        ("ReduceProd", [[2**16, 2**15], [3, 4]], "R"),
        ("ReduceProd", [[2**16, 2**14], [3, 4]], "OR"),
    ],
)
def test_runtime_is_no_judge_of_reduced_integers_that_wrap(operator: str, x: list[list[int]], judges: str) -> None:
    text = f"(int32[2,2] x, int64[1] a) => (int32[?,?] y) {{ y = {operator} (x, a) }}"
    case = _case(text, {"x": np.array(x, np.int32), "a": np.array([1])}, 18)
    assert "".join(sorted(peers_of(case).judges_of(0, 0))) == judges


@pytest.mark.parametrize(
    ("shape", "is_told"), [((1, 3), False), ((5, 3), False), ((2, 1, 5, 3), False), ((4, 3), True), ((3, 1, 3), True)]
)
def test_no_peer_is_a_judge_of_masks_for_other_rows(shape: tuple[int, ...], is_told: bool) -> None:
    text = "(float[1,2,1,4] q, float[1,2,3,4] k, bool[M,N] m) => (float[?,?,?,?] y) { y = Attention (q, k, k, m) }"
    held = {"q": _ones(1, 2, 5, 4), "k": _ones(1, 2, 3, 4), "m": np.ones(shape, bool)}
    if shape == (2, 1, 5, 3):
        held["q"] = _ones(2, 2, 5, 4)
    known = {name: value_of(name, each) for name, each in held.items()}
    assert bool(is_open(_case(text, {}, 23).model, known)) is is_told


@pytest.mark.parametrize(("batch", "count", "is_told"), [(2, 2, False), (2, 1, False), (1, 2, True), (3, 2, True)])
def test_no_peer_is_a_judge_of_lengths_for_other_samples(batch: int, count: int, is_told: bool) -> None:
    text = """(float[B,2,5,4] q, float[B,2,3,4] k, int64[N] n) => (float[?,?,?,?] y) {
      y = Attention (q, k, k, "", "", "", n)
    }"""
    held = {"q": _ones(batch, 2, 5, 4), "k": _ones(batch, 2, 3, 4), "n": np.full(count, 2)}
    known = {name: value_of(name, each) for name, each in held.items()}
    assert bool(is_open(_case(text, {}, 24).model, known)) is is_told


@pytest.mark.parametrize(("most", "is_told"), [(2**62, True), (3, False)])
def test_a_peer_alone_is_no_judge_of_what_large_integers_become(most: int, is_told: bool) -> None:
    model = _case("(int64[2] x) => (float[?] z) { y = ReduceLogSumExp (x) z = Cast <to = 1> (y) }", {}, 18).model
    known = {name: value_of(name, np.array([0, most])) for name in ("x", "y")}
    assert is_inexact(model, known, "numbers") is is_told
    assert is_inexact(model, known, "integers")
    assert is_inexact(model, known, "shape")


_EDGE = "(float[4] x) => (float[?] y) <float[2] r = {%s}, float[1] s = {1.5}> { y = Resize <%s> (x, r, s) }"
_CEIL = 'mode = "nearest", nearest_mode = "ceil", coordinate_transformation_mode = "tf_crop_and_resize"'
_GRU = """(float[1,1,1] x, float[1,3,1] r, float[1,1,1] h) => (float[?,?,?] y) <float[1,3,1] w = {0, 0, 0.5}> {
  y = GRU <hidden_size = 1> (x, w, r, "", "", h)
}"""
_NORM = (
    "(float[1,1,1] x) => (float[?,?,?] y) <float[1] s = {-9}, float[1] b = {1}> {y = InstanceNormalization (x, s, b)}"
)
_POLE = """(float[1,3,1] x) => (float[?,?,?,?] y) <int64 n = {3}> {
  z = STFT <onesided = 0> (x, n, "", n)
  y = Reciprocal (z)
}"""


@pytest.mark.parametrize(
    ("text", "inputs", "expected", "given", "is_excused"),
    [
        (_EDGE % ("0.18257824, 0", _CEIL), {"x": _ones(4)}, [2, 2, 2, 2, 2, 2], [2, 2, 2, 2, 2, 1], True),
        (_EDGE % ("0.1, 0.8", _CEIL), {"x": _ones(4)}, [2, 2, 3, 3, 3, 4], [2, 2, 2, 3, 3, 4], False),
        (_NORM, {"x": _ones(1, 1, 1)}, [[[1.0]]], [[[0.9998]]], True),
        (_NORM, {"x": _ones(1, 1, 1)}, [[[1.0]]], [[[0.9]]], False),
        (_NORM, {"x": _ones(1, 1, 1) / 1000}, [[[1.0]]], [[[0.9998]]], False),
    ],
)
def test_what_rounding_explains(text: str, inputs: Any, expected: Any, given: Any, is_excused: bool) -> None:
    case = _case(text, inputs, 18)
    arrays = [np.array(each, np.float32) for each in (expected, given)]
    assert is_rounding(case, case.calls[0], arrays[:1], arrays[1:]) is is_excused


_CORNER = """(double[2,2,2,5] x, float[8] r) => (double[?,?,?,?] y) <int64[4] s = {3, 3, 3, 15}> {
  y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 99.0>
    (x, r, "", s)
}"""


@pytest.mark.parametrize(("place", "is_excused"), [((2, 2, 2, 14), True), ((1, 1, 1, 7), False)])
def test_an_element_at_edges_of_several_axes_may_be_inside(place: tuple[int, ...], is_excused: bool) -> None:
    region = np.array([0, 0, 0, 0.00719985, 1, 1, 1, 1], np.float32)
    case = _case(_CORNER, {"x": _ones(2, 2, 2, 5, dtype=np.float64), "r": region}, 19)
    expected = peers_of(case).accepted(0)[0][0]
    assert expected[2, 2, 2, 14] == 99
    found = expected.copy()
    found[place] = 40
    assert is_rounding(case, case.calls[0], [expected], [found]) is is_excused


_REPEATED = """(float[1,1,2] x, float[3] s, float b) => (float[?,?,?] y) {
  u = Upsample (x, s)
  a = Add (u, b)
  y = Sub (a, b)
}"""


@pytest.mark.parametrize(("apart", "is_excused"), [(1e-3, True), (0.5, False)])
def test_noise_leaves_whole_scales_as_they_are(apart: float, is_excused: bool) -> None:
    inputs = {"x": _ones(1, 1, 2), "s": np.array([3, 1, 1], np.float32), "b": np.array(1e3, np.float32)}
    case = _case(_REPEATED, inputs, 9)
    expected = peers_of(case).accepted(0)[-1][0]
    assert is_rounding(case, case.calls[0], [expected], [expected + np.float32(apart)]) is is_excused


_BY_SCALES = """(float[1,1,2] x, float[3] s) => (float[?,?,?] y) {
  y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric"> (x, "", s)
}"""
_BETWEEN = """(float[3] s) => (float[?,?,?] y) <float[1,1,2] b = {1, -0.998}> {
  u = Upsample <mode = "linear"> (b, s)
  y = Reciprocal (u)
}"""


def test_scales_that_are_given_are_no_rounding() -> None:
    case = _case(_BY_SCALES, {"x": np.array([[[1, 2]]], np.float32), "s": np.array([1, 1, 1.5], np.float32)}, 19)
    expected = peers_of(case).accepted(0)[-1][0]
    assert expected.shape == (1, 1, 3)
    assert not is_rounding(case, case.calls[0], [expected], [expected[..., :2]])


@pytest.mark.parametrize(("part", "is_excused"), [(1.001, True), (1.1, False)])
def test_what_a_model_holds_is_as_inexact_as_what_it_is_given(part: float, is_excused: bool) -> None:
    case = _case(_BETWEEN, {"s": np.array([1, 1, 2], np.float32)}, 9)
    expected = peers_of(case).accepted(0)[-1][0]
    assert is_rounding(case, case.calls[0], [expected], [expected * np.float32(part)]) is is_excused


_KEPT_RATIO = """(float[1,N] x) => (float[?,?] y) <int64[2] s = {1, 4}> {
  y = Resize <keep_aspect_ratio_policy = "not_larger"> (x, "", "", s)
}"""
_POOLED = "(float[1,1,N] x) => (float[?,?,?] y) { y = MaxPool <kernel_shape = [3], strides = [3], pads = [2, 2]> (x) }"


@pytest.mark.parametrize("text", [_KEPT_RATIO, _POOLED])
@pytest.mark.parametrize("size", [0, 2])
def test_nothing_says_how_to_scale_or_to_pool_nothing(text: str, size: int) -> None:
    rank = 2 if text is _KEPT_RATIO else 3
    case = _case(text, {"x": _ones(*(1 for _ in range(rank - 1)), size)}, 19)
    known = contents(case.model, case.calls[0]) if size else {"x": value_of("x", case.calls[0]["x"])}
    assert bool(is_open(case.model, known)) is (size == 0)


@pytest.mark.parametrize(("count", "is_wrong"), [(1, False), (2, False), (3, True)])
def test_reference_is_no_judge_of_scales_for_other_channels(count: int, is_wrong: bool) -> None:
    text = """(uint8[1,1,1] x, float s, uint8 z, int8[2,1,1] w, float[N] ws, int8[N] wz) => (uint8[?,?,?] y) {
      y = QLinearConv (x, s, z, w, ws, wz, s, z)
    }"""
    model = _case(text, {}, 15).model
    held = {"w": np.ones((2, 1, 1), np.int8), "ws": _ones(count), "wz": np.zeros(count, np.int8)}
    held |= {"x": np.ones((1, 1, 1), np.uint8), "s": np.float32(1), "z": np.uint8(0)}
    known = {name: value_of(name, np.asarray(each)) for name, each in held.items()}
    assert bool(reference_is_wrong(model, known)) is is_wrong


@pytest.mark.parametrize(("off", "is_excused"), [(1e-4, True), (0.2, False)])
def test_squares_may_be_what_is_left_of_a_running_sum(off: float, is_excused: bool) -> None:
    text = "(float[1,2,1,1] x) => (float[?,?,?,?] y) { y = LRN <size = 1, alpha = 1.0> (x) }"
    case = _case(text, {"x": np.array([[[[100]], [[0.5]]]], np.float32)}, 17)
    expected = peers_of(case).accepted(0)[-1][0]
    found = expected + np.array([[[[0]], [[off]]]], np.float32)
    assert is_rounding(case, case.calls[0], [expected], [found]) is is_excused


def test_ends_of_a_window_may_be_one_number_or_two() -> None:
    text = """(int64 n) => (float16[?] y) {
      w = HannWindow <periodic = 0, output_datatype = 10> (n)
      y = Unique <sorted = 1> (w)
    }"""
    case = _case(text, {"n": np.array(2)}, 23)
    expected = peers_of(case).accepted(0)[0][0]
    assert expected.shape == (2,)
    assert is_rounding(case, case.calls[0], [expected], [np.zeros(1, np.float16)])


def test_a_rank_that_only_some_calls_have_is_no_fault_of_the_judge() -> None:
    text = '(float[N,2] x) => (float[?,?] y) { s = Squeeze (x) y = Pad <mode = "reflect", pads = [0, 1, 0, 1]> (s) }'
    assert peers_of(_case(text, {"x": _ones(1, 2)}, 10)).judges_of(0, 0) == {}


@pytest.mark.parametrize(("state", "is_excused"), [(40, True), (1, False)])
def test_a_closed_gate_lets_a_part_of_the_state_in(state: float, is_excused: bool) -> None:
    inputs = {"x": _ones(1, 1, 1), "r": np.array([[[-50], [0], [0]]], np.float32), "h": np.full((1, 1, 1), state)}
    case = _case(_GRU, {name: each.astype(np.float32) for name, each in inputs.items()}, 14)
    expected = peers_of(case).accepted(0)[-1][0]
    assert is_rounding(case, case.calls[0], [expected], [expected + np.float32(1e-4)]) is is_excused


def test_what_is_zero_by_symmetry_may_be_a_rounding_on_either_side_of_a_pole() -> None:
    case = _case(_POLE, {"x": np.array([[[0.3], [-0.2], [0.6]]], np.float32)}, 19)
    call, found = case.calls[0], peers_of(case).accepted(0)[-1][0]
    infinite, wrong = found.copy(), found.copy()
    infinite[0, 0, 0, 1], wrong[0, 0, 1, 0] = np.inf, np.inf
    found[0, 0, 0, 1] = -2e7
    assert is_rounding(case, call, [found], [infinite])
    assert not is_rounding(case, call, [found], [wrong])


def test_a_branch_is_cut_down_to_what_an_output_hangs_on() -> None:
    text = """(bool c, float[1,1,1,2] x) => (float[?,?,?,?] a, float[?,?,?,?] b) {
      a, b = If (c) <
        then_branch = t () => (float[1,1,1,2] p, float[1,1,1,2] q) { p = LpNormalization <p = 1> (x) q = Neg (x) },
        else_branch = e () => (float[1,1,1,2] r, float[1,1,1,2] s) { r = Abs (x) s = Exp (x) }>
    }"""
    case = _case(text, {"c": np.array(True), "x": _ones(1, 1, 1, 2)}, 18)
    theirs = peers_of(case)
    assert [sorted(theirs.judges[0, place]) for place in (0, 1)] == [["O"], ["O", "R"]]
    assert {node.op_type for node in all_nodes(theirs.parts[1].model.graph.node)} == {"If", "Exp", "Neg"}


_SCALED = "InstanceNormalization (x, s, s)"


@pytest.mark.parametrize(
    "text",
    [
        f"(float[1,2,3] x, float[C] s) => (float[?,?,?] y) {{ y = {_SCALED} }}",
        "(float[1,2,3] x, float[C] s) => (float[?,?,?] y) <bool c = {1}> { y = If (c) <"
        f"then_branch = t () => (float[1,2,3] p) {{ p = {_SCALED} }},"
        "else_branch = e () => (float[1,2,3] q) { r = NonZero (s) q = Abs (x) }> }",
        "(float[1,2,3] x, float[C] s) => (float[?,?,?] y) { y = local.normed (x, s) } "
        f'<domain: "local", opset_import: ["": 18]> normed (x, s) => (y) {{ y = {_SCALED} }}',
    ],
)
@pytest.mark.parametrize(("count", "judges"), [(2, "OR"), (1, "")])
def test_what_branches_and_functions_are_given_is_known(text: str, count: int, judges: str) -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "local": 1]> found {text}')
    case = Case(0, model, [{"x": _ones(1, 2, 3), "s": _ones(count)}])
    assert "".join(sorted(peers_of(case).judges_of(0, 0))) == judges


@pytest.mark.parametrize(("size", "kind"), [(0, "fine"), (3, "found")])
def test_what_a_peer_gets_wrong_may_be_what_no_output_of_a_function_hangs_on(
    size: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(data: bytes) -> None:
        if b"kept" in data:
            raise CapgraphError("refused")

    text = """(float[1,3] x, float[2] z) => (float[?,?] y, float[?] w) { y = local.kept (x) w = Neg (z) }
      <domain: "local", opset_import: ["": 18]> kept (x) => (y) {
        n = Constant <value_ints = [2, %d]> () e = ConstantOfShape (n) s = SequenceConstruct (e, x)
        c = ConcatFromSequence <axis = 0> (s) y = Neg (x) }"""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "local": 1]> found {text % size}')
    monkeypatch.setattr(ways, "read", refuse)
    assert compared(Case(0, model, [{"x": _ones(1, 3), "z": _ones(2)}]), ["read"]).kind == kind


@pytest.mark.parametrize(("bias", "is_excused"), [("1, 1, 1, 1, 1", True), ("2, 1, 1, 1, 1", False)])
def test_any_of_what_is_equal_but_for_roundings_may_be_the_greatest(bias: str, is_excused: bool) -> None:
    text = """(float[1,5,1] x) => (float[?,?,?] y) <float[5] s = {9, 9, 9, 9, 9}, float[5] b = {%s}> {
      n = InstanceNormalization (x, s, b)
      y = Hardmax <axis = 1> (n)
    }"""
    case = _case(text % bias, {"x": _ones(1, 5, 1)}, 13)
    first, last = (np.eye(5, dtype=np.float32)[place].reshape(1, 5, 1) for place in (0, 4))
    assert is_rounding(case, case.calls[0], [first], [last]) is is_excused
    assert is_rounding(case, case.calls[0], [first], [first])


@pytest.mark.parametrize(("body", "is_told"), [("HannWindow <periodic = 0> (n)", True), ("Identity (x)", False)])
def test_a_rounding_may_decide_what_runs(body: str, is_told: bool) -> None:
    text = """(float[3] x, int64 n) => (seq(float[]) y) <int64[2] p = {2, 1}> {
      d = %s
      u = Unique (d)
      y = SplitToSequence (u, p)
    }"""
    case = _case(text % body, {"x": _ones(3), "n": np.array(5)}, 17)
    assert jumps(case, case.calls[0]) is is_told


def test_contents_are_of_the_peer_that_may_be_right() -> None:
    text = """(float[1,1,4] x, float[1,1,2] w) => (float[?,?,?] y) {
      y = ConvTranspose <strides = [3], auto_pad = "SAME_UPPER"> (x, w)
    }"""
    case = _case(text, {"x": _ones(1, 1, 4), "w": _ones(1, 1, 2)}, 13)
    assert contents(case.model, case.calls[0])["y"].shape == (1, 1, 12)


@pytest.mark.parametrize(
    ("kind", "x", "judges"),
    [("float16", np.nan, "R"), ("float16", -2, "RO"), ("float", np.nan, "RO")],
)
def test_runtime_is_no_judge_of_the_sign_of_nan_of_16_bits(kind: str, x: float, judges: str) -> None:
    call = {"x": np.array([x], np.float16 if kind == "float16" else np.float32)}
    case = _case(f"({kind}[1] x) => ({kind}[?] y) {{ y = Sign (x) }}", call, 13)
    assert set(peers_of(case).judges[0, 0]) == set(judges)
    assert compared(case).kind == "fine"


@pytest.mark.parametrize(
    ("rows", "columns", "rounds", "judges"), [(0, 1, 2, ""), (0, 5, 2, "O"), (0, 1, 1, "O"), (1, 5, 2, "O")]
)
def test_runtime_is_no_judge_of_scanned_shapes_that_differ(rows: int, columns: int, rounds: int, judges: str) -> None:
    text = """(float[N,M] x, int64 n) => (float[?,?] y, float[?,?,?] z) <float[1,5] a = {1, 2, 3, 4, 5}> {
      y, z = Loop (n, "", x) <body = b (int64 i, bool c, float[?,?] u) => (bool d, float[?,?] v, float[?,?] w) {
        d = Identity (c)
        v = Max (u, a)
        w = Identity (u)
      }>
    }"""
    case = _case(text, {"x": _ones(rows, columns), "n": np.array(rounds)}, 19)
    assert "".join(peers_of(case).judges[0, 1]) == judges
    assert compared(case).kind == ("fine" if judges else "unjudged")


@pytest.mark.parametrize(("opset", "columns", "is_excused"), [(16, 0, True), (16, 5, False), (22, 0, False)])
def test_files_are_held_to_no_pool_of_nothing_that_is_rounded_down(opset: int, columns: int, is_excused: bool) -> None:
    pool = "MaxPool <kernel_shape = [1, 1], strides = [3, 2], ceil_mode = 1>"
    text = f"(float[N,2,6,M] x) => (float[?,?,?,?] y) {{ y = {pool} (x) }}"
    case = _case(text, {"x": _ones(0, 2, 6, columns)}, opset)
    theirs = peers_of(case)
    assert theirs.runtime[0][0].shape == (0, 2, 2, (columns + 1) // 2)
    assert theirs.pools_nothing(0, 0) is is_excused
    assert compared(case).kind == "fine"


def test_what_onnx_refuses_as_well_is_invalid() -> None:
    nodes = "y = ReduceLogSumExp <keepdims = 0, axes = [0, 1]> (x) z = Trilu (y, k)"
    text = f"() => (float[?,?] y) <float[0,2,3] x = {{}}, int64 k = {{0}}> {{ {nodes} }}"
    assert compared(_case(text, {}, 17)).kind == "invalid"
    assert (
        compared(_case(text.replace("(float[?,?] y)", "(float[?] y)").split("z =")[0] + "}", {}, 17)).kind != "invalid"
    )
