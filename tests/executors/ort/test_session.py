from pathlib import Path

import numpy as np
import pytest
from capgraph.executors.ort import session as module
from capgraph.executors.ort.executor import OrtExecutor
from capgraph.executors.ort.session import RunFailure, Session, first_line
from capgraph.ir.errors import ResourceError, UnsupportedError
from capgraph.ir.text.parser import parse
from google.protobuf.message import EncodeError

F32 = np.float32
AFFINE = """graph @main(%x: f32[B, 2]) {
  %w: f32[2, 2] = constant() {value = dense<f32[2, 2]: [1.0, 2.0, 3.0, 4.0]>}
  %y: f32[B, 2] = matmul(%x, %w)
  return %y
}"""
LOST = "{\n  %a: f32[B, 2] = example.double(%x)\n"
"""A node that no session runs, so that others are in segments."""


def test_inputs_and_outputs_have_the_order_of_the_graph() -> None:
    graph = parse(
        "graph @main(%x: f32[2], %y: f32[2]) { %d: f32[2] = sub(%x, %y) %s: f32[2] = add(%x, %y) return %s, %d }"
    )
    total, difference = Session(graph).run([np.array([3, 4], F32), np.array([1, 1], F32)])
    assert total.tolist() == [4, 5]
    assert difference.tolist() == [2, 3]


def test_outputs_belong_to_the_caller() -> None:
    graph = parse(
        "graph @main(%x: f32[2]) { %c: f32[2] = constant() {value = dense<f32[2]: [1.0, 2.0]>} return %c, %x, %x }"
    )
    session, x = Session(graph), np.array([5, 6], F32)
    first = session.run([x])
    for array in first:
        np.add(array, 1, out=array)
    assert x.tolist() == [5, 6]
    assert [array.tolist() for array in session.run([x])] == [[1, 2], [5, 6], [5, 6]]
    assert [array.tolist() for array in first] == [[2, 3], [6, 7], [6, 7]]


def test_a_model_over_the_limit_goes_through_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "MAX_INLINE_BYTES", 8)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session = Session(parse(AFFINE))
    assert list(tmp_path.iterdir()) == []
    assert session.run([np.ones((3, 2), F32)])[0].tolist() == [[4, 6]] * 3


@pytest.mark.parametrize("text", [AFFINE, AFFINE.replace("matmul(%x, %w)", "matmul(%a, %w)").replace("{\n", LOST, 1)])
def test_without_a_temporary_folder_a_model_over_the_limit_is_not_run_by_numpy_in_silence(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_INLINE_BYTES", 8)
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent")
    with pytest.raises(ResourceError, match="no temporary folder") as caught:
        OrtExecutor().compile(parse(text))
    assert "TMPDIR" in (caught.value.remedy or "")
    assert "16 B" in (caught.value.remedy or "")


def test_a_model_over_two_gigabytes_beside_its_weights_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class TooLarge:
        def SerializeToString(self) -> bytes:
            raise EncodeError("Failed to serialize proto")

    monkeypatch.setattr(module, "export_model", lambda *_args, **_options: TooLarge())
    with pytest.raises(ResourceError, match="over 2 GB beside its weights"):
        Session(parse(AFFINE))


def test_types_that_its_interface_lacks_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="%x is bf16"):
        Session(parse("graph @main(%x: bf16[2]) { %y: bf16[2] = neg(%x) return %y }"))
    with pytest.raises(UnsupportedError, match="only tensors go in and out"):
        Session(parse("graph @main(%s: seq(f32[2])) { return %s }"))


def test_types_that_its_interface_lacks_may_stand_inside() -> None:
    graph = parse(
        "graph @main(%x: f32[2]) { %b: bf16[2] = cast(%x) {to = bf16} %y: f32[2] = cast(%b) {to = f32} return %y }"
    )
    assert Session(graph).run([np.array([1.001, 2], F32)])[0].tolist() == [1, 2]


def test_a_model_that_is_refused_says_why() -> None:
    with pytest.raises(UnsupportedError, match=r"ONNX Runtime refuses the model: .*ArgMin"):
        Session(parse("graph @main(%x: u32[T]) { %y: i64[1] = argmin(%x) {axis = 0} return %y }"))


def test_a_run_that_fails_names_the_node() -> None:
    graph = parse("graph @main(%x: i32[2], %y: i32[2]) { %quotient: i32[2] = div(%x, %y) return %quotient }")
    with pytest.raises(RunFailure, match="division by zero") as caught:
        Session(graph).run([np.ones(2, np.int32), np.zeros(2, np.int32)])
    assert caught.value.node_name == "quotient"
    assert caught.value.where == "quotient in graph main"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : no Shape(25)\nmore", "no Shape(25)"),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Div node. Name:'a\nb' "
            "Status Message: zero",
            "zero",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: /src/core/attention.cc:233 "
            "a::B<T>::B(const a::Info&) [with T = float] scale_ > 0 was false. scale must be positive",
            "Exception during initialization: scale_ > 0 was false. scale must be positive",
        ),
        ("/src/conv.cc:5 virtual a::Status a::C::D(a::E*) const it (x) failed", "it (x) failed"),
        ("plain", "plain"),
        ("", "ValueError"),
    ],
)
def test_the_first_line_of_an_error(text: str, line: str) -> None:
    assert first_line(ValueError(text)) == line


def test_threads_are_bounded() -> None:
    assert module._options(3).intra_op_num_threads == 3
    assert module._options(None).intra_op_num_threads == 0


def test_the_fusion_that_is_slow_on_the_cpu_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, object] = {}

    class Package:
        SessionOptions = module.onnxruntime().SessionOptions

        @staticmethod
        def InferenceSession(_model: bytes, _options: object, **arguments: object) -> None:
            seen.update(arguments)

    monkeypatch.setattr(module, "onnxruntime", Package)
    Session(parse(AFFINE))
    assert seen == {
        "providers": ["CPUExecutionProvider"],
        "disabled_optimizers": {"SkipLayerNormFusion"},
        "enable_fallback": 0,  # to another provider, in silence
    }
