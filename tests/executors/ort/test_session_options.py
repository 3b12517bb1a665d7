import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.cli import main
from capgraph.executors.ort.library import onnxruntime
from capgraph.executors.ort.session_options import (
    open_session,
    options_path,
    read_session_options,
    session_options,
    write_session_options,
)
from capgraph.frontends.onnx.context.dialect import Dialect
from capgraph.frontends.onnx.contrib import IN_FILES
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.frontends.onnx.exporting.saving import save_model
from capgraph.ir.errors import ModelError, ResourceError, UnsupportedError
from capgraph.ir.text.parser import parse

from tests.executors.ort.test_faults import RECIPROCAL

GELU = "graph @g(%x: f32[2, 4]) { %y: f32[2, 4] = gelu(%x) return %y }"
CONV = """
graph @g(%x: f16[1, 3, 8, 8], %w: f16[4, 3, 3, 3]) {
  %y: f16[1, 4, 6, 6] = conv(%x, %w, _) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  return %y
}
"""
CONV_SIGMOID = """
graph @g(%x: f32[1, 3, 8, 8], %w: f32[4, 3, 3, 3], %b: f32[4]) {
  %c: f32[1, 4, 6, 6] = conv(%x, %w, %b) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  %y: f32[1, 4, 6, 6] = sigmoid(%c)
  return %y
}
"""


def options_of(text: str, dialect: Dialect = Dialect.STANDARD) -> dict[str, Any]:
    """The options for a graph as `capgraph optimize` writes it."""
    graph = parse(text)
    return session_options(graph, export_model(graph, dialect=dialect, operators=IN_FILES))


def saved(text: str, path: Path) -> Path:
    """A model at `path` with its options."""
    graph = parse(text)
    write_session_options(session_options(graph, save_model(graph, path, dialect=Dialect.STANDARD)), path)
    return path


def test_options_are_those_of_our_own_sessions_without_what_belongs_to_the_machine():
    options = options_of(GELU)
    assert options["disabled_optimizers"] == {"CPUExecutionProvider": ["SkipLayerNormFusion"]}
    assert options["providers"]["CUDAExecutionProvider"] == {"sdpa_kernel": "3", "enable_cuda_graph": "1"}


def test_channels_last_adds_transposes_which_graph_mode_may_not_take():
    assert options_of(CONV)["providers"]["CUDAExecutionProvider"] == {"sdpa_kernel": "3", "prefer_nhwc": "1"}
    assert options_of(CONV.replace("f16", "f32"))["providers"]["CUDAExecutionProvider"]["enable_cuda_graph"] == "1"


@pytest.mark.parametrize(("dialect", "is_for_cuda"), [(Dialect.STANDARD, True), (Dialect.ORT, False)])
def test_a_model_for_the_cpu_has_no_options_for_cuda(dialect: Dialect, is_for_cuda: bool, tmp_path: Path):
    graph, path = parse(CONV_SIGMOID), tmp_path / "model.onnx"
    options = session_options(graph, save_model(graph, path, dialect=dialect))
    assert ("CUDAExecutionProvider" in options["providers"]) is is_for_cuda
    write_session_options(options, path)
    assert open_session(path).get_inputs()[0].name == "x"
    message = "has no CUDAExecutionProvider" if is_for_cuda else "on the CPU alone"
    with pytest.raises(UnsupportedError, match=message):
        open_session(path, "CUDAExecutionProvider")


@pytest.mark.parametrize(
    "graph",
    [
        "graph @g(%x: f32[B, 4]) { %y: f32[B, 4] = gelu(%x) return %y }",
        "graph @g(%x: f32[4]) { %y: i64[1, k] = non_zero(%x) return %y }",
        "graph @g(%x: f32[4, 2]) { %y: f32[2, 4] = transpose(%x) {perm = [1, 0]} return %y }",
    ],
)
def test_graph_mode_is_left_out_where_one_recording_would_not_do(graph: str):
    assert "enable_cuda_graph" not in options_of(graph)["providers"]["CUDAExecutionProvider"]


def test_optimizers_that_would_be_wrong_are_switched_off_everywhere(tmp_path: Path):
    path = saved(RECIPROCAL, tmp_path / "model.onnx")
    options = read_session_options(path)
    assert options["disabled_optimizers"]["CUDAExecutionProvider"] == ["DivMulFusion"]
    found = open_session(path).run(None, {"x": np.array([1, 2, 3, 4]), "z": np.array([7, 8, 9, 12])})
    assert found[0].tolist() == [7, 0, 0, 0]


def test_a_model_is_opened_with_the_options_beside_it(tmp_path: Path):
    graph, path = parse(GELU), tmp_path / "model.onnx"
    model = save_model(graph, path)
    assert write_session_options(session_options(graph, model), path) == options_path(path)
    session = open_session(path)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.run(None, {"x": np.zeros((2, 4), np.float32)})[0].shape == (2, 4)


@pytest.mark.parametrize(
    "content",
    [
        *(None, "{", "[]", '{"providers": {}}'),
        '{"providers": {"CPUExecutionProvider": []}, "disabled_optimizers": {}}',
        '{"providers": {}, "disabled_optimizers": {"CPUExecutionProvider": 5}}',
    ],
)
def test_options_that_are_not_there_or_not_readable(content: str | None, tmp_path: Path):
    model = tmp_path / "model.onnx"
    if content is not None:
        options_path(model).write_text(content)
    with pytest.raises(ModelError, match="has no options of sessions"):
        read_session_options(model)


def test_a_provider_that_is_not_there_and_a_model_that_is_refused(tmp_path: Path):
    model = tmp_path / "model.onnx"
    with pytest.raises(ModelError, match="there is no model file"):
        open_session(model)
    model.write_bytes(b"no model")
    write_session_options(options_of(GELU), model)
    with pytest.raises(UnsupportedError, match="has no CUDAExecutionProvider"):
        open_session(model, "CUDAExecutionProvider")
    with pytest.raises(UnsupportedError, match=r"refuses model\.onnx") as caught:
        open_session(model)
    assert "--for standard" in (caught.value.remedy or "")


def test_a_session_that_silently_got_another_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = saved(GELU, tmp_path / "model.onnx")
    package = onnxruntime()

    class Offering:
        """The package, as if it had one provider more."""

        SessionOptions = package.SessionOptions

        @staticmethod
        def get_available_providers() -> list[str]:
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

        @staticmethod
        def InferenceSession(path: str, options: Any, **_others: Any) -> Any:
            return package.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr("capgraph.executors.ort.session_options.onnxruntime", lambda: Offering)
    with pytest.raises(UnsupportedError, match="a session on CPUExecutionProvider instead of CUDA") as caught:
        open_session(model, "CUDAExecutionProvider")
    assert "log" in (caught.value.remedy or "")


def test_a_folder_that_cannot_be_written_to(tmp_path: Path):
    with pytest.raises(ResourceError, match="cannot be written"):
        write_session_options({}, tmp_path / "missing" / "model.onnx")


@pytest.mark.parametrize(("level", "tf32"), [("2", "0"), ("3", None)])
def test_the_command_leaves_tf32_on_at_the_level_that_allows_it(level: str, tf32: str | None, tmp_path: Path):
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    save_model(parse("graph @g(%x: f32[4, 4]) { %y: f32[4, 4] = matmul(%x, %x) return %y }"), source)
    assert main(["optimize", str(source), "-o", str(target), "--level", level, "--session-options"]) == 0
    assert read_session_options(target)["providers"]["CUDAExecutionProvider"].get("use_tf32") == tf32


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    save_model(parse(GELU), source)
    assert main(["optimize", str(source), "-o", str(target), "--session-options", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["session_options"] == str(options_path(target))
    assert open_session(target).get_inputs()[0].name == "x"


DYNAMIC = "graph @g(%x: f32[B, 4]) { %y: f32[B, 4] = relu(%x) return %y }"


def test_options_of_another_model_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first, second, target = tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "out.onnx"
    save_model(parse(GELU), first)
    save_model(parse(DYNAMIC), second)
    assert main(["optimize", str(first), "-o", str(target), "--session-options"]) == 0
    assert main(["optimize", str(second), "-o", str(target)]) == 0
    with pytest.raises(ModelError, match="belongs to another model") as caught:
        open_session(target)
    assert "--session-options" in (caught.value.remedy or "")
    assert main(["optimize", str(second), "-o", str(target), "--session-options"]) == 0
    assert open_session(target).get_inputs()[0].shape == ["B", 4]


def test_options_of_before_they_were_bound_to_a_model_are_refused(tmp_path: Path):
    model = saved(GELU, tmp_path / "model.onnx")
    found = json.loads(options_path(model).read_text())
    del found["model"]
    options_path(model).write_text(json.dumps(found))
    with pytest.raises(ModelError, match="belongs to another model"):
        open_session(model)


def test_a_model_stays_what_it_was_where_its_options_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    save_model(parse(GELU), source)
    target.write_bytes(b"what was there")
    options_path(target).mkdir()
    assert main(["optimize", str(source), "-o", str(target), "--session-options"]) == 1
    assert "out.onnx.options.json is a folder" in capsys.readouterr().err
    assert target.read_bytes() == b"what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.onnx", "out.onnx", "out.onnx.options.json"]
