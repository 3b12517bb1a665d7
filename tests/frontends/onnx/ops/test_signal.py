"""Spectra in and out of ONNX: lengths, steps and axes that are operands there."""

import numpy as np
import onnx
import pytest
from capgraph.frontends.onnx.exporting.exporter import export_model
from capgraph.ir.builder import Builder
from capgraph.ir.errors import ExecutionError, UnsupportedError

from tests.frontends.onnx.ops.operator_cases import Case, hold, model_of, number
from tests.frontends.onnx.ops.there_and_back import compare, evaluated, feeds_of, imported, op_names, reference
from tests.ir.ops.onnx_oracle import random

SIGNAL = random(1, 2, 6, 1)
SPECTRUM = random(2, 2, 4, 2)
WAVE = random(3, 2, 20, 1)

CASES = [
    Case("DFT", 17, (SIGNAL,), ("dft",)),
    Case("DFT", 17, (SIGNAL, number(8)), ("dft",), {"axis": 1, "onesided": 1}, constants={1}),
    Case("DFT", 20, (SIGNAL,), ("dft",)),
    Case("DFT", 20, (SIGNAL, None, number(0)), ("dft",), constants={2}),
    Case("DFT", 20, (SPECTRUM, number(5), number(-2)), ("dft",), {"inverse": 1}, constants={1, 2}),
    Case("STFT", 17, (WAVE, number(4), None, number(8)), ("stft",), constants={1, 3}),
    Case("STFT", 17, (WAVE, number(4), random(4, 8)), ("stft",), {"onesided": 0}, constants={1}),
    Case("STFT", 17, (WAVE, number(4), random(4, 8), number(8)), ("stft",), constants={1, 2, 3}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_spectra_there_and_back(case: Case) -> None:
    hold(case)


@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[5]], ids=str)
def test_spectra_of_symbolic_sizes(case: Case) -> None:
    model = model_of(case)
    for axis in (0, 1):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"n{axis}"
    graph = imported(model)
    feeds = feeds_of(case.inputs[0])
    wanted = reference(model, feeds)
    compare(evaluated(graph, feeds), wanted)
    compare(reference(export_model(graph), feeds), wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_mel_weights_there_and_back(dtype: type) -> None:
    rate, low, high = number(8192, dtype), number(0, np.float32), number(4096, np.float32)
    inputs = (number(8, dtype), number(16, dtype), rate, low, high)
    hold(Case("MelWeightMatrix", 17, inputs, ("mel_weight_matrix",), {"output_datatype": 11}, constants={0, 1}))


def test_what_only_running_tells_stays_foreign() -> None:
    for operator, inputs in (("DFT", (SIGNAL, number(8))), ("STFT", (WAVE, number(4), None, number(8)))):
        case = Case(operator, 17, inputs, (f"onnx.{operator}",))
        assert op_names(imported(model_of(case), native=False)) == [f"onnx.{operator}"]


@pytest.mark.parametrize(("window", "length"), [(1, 8), (3, 8), (8, 3), (0, 0)])
def test_a_window_that_is_no_frame_is_refused(window: int, length: int) -> None:
    model = model_of(Case("STFT", 17, (WAVE, number(4), random(4, 8), number(8)), ("onnx.STFT",)))
    model.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "n"
    graph = imported(model, native=False)
    feeds = feeds_of(WAVE, number(4), random(4, 8), number(length))
    feeds[model.graph.input[2].name] = np.ones(window, np.float32)
    with pytest.raises(ExecutionError, match=r"as long as a frame|length of frames is 0"):
        evaluated(graph, feeds)


def test_spectra_of_frames_that_only_running_tells() -> None:
    for inputs in ((WAVE, number(4), random(4, 8), number(8)), (WAVE, number(4), None, number(8))):
        model = model_of(Case("STFT", 17, inputs, ("onnx.STFT",)))
        feeds = feeds_of(*inputs)
        compare(evaluated(imported(model, native=False), feeds), reference(model, feeds))


def test_export_to_opset_19_keeps_the_axis_as_attribute() -> None:
    graph = imported(model_of(Case("DFT", 20, (SIGNAL, None, number(0)), ("dft",), constants={2})))
    (node,) = export_model(graph, opset=19).graph.node
    assert {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}["axis"] == 0
    compare(reference(export_model(graph, opset=19), feeds_of(SIGNAL)), evaluated(graph, feeds_of(SIGNAL)))


@pytest.mark.parametrize(("parts", "inverse"), [(2, False), (1, True)])
def test_a_one_sided_transform_of_the_other_kind_of_numbers_has_no_operator(parts: int, inverse: bool) -> None:
    builder = Builder()
    x = builder.input("x", f"f32[B, 8, {parts}]")
    with pytest.raises(UnsupportedError, match="one-sided"):
        export_model(builder.finish({"y": builder.op("dft", x, inverse=inverse, onesided=True)}))
