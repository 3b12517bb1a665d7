import numpy as np
import pytest
from capgraph.frontends.onnx import backend
from capgraph.ir.errors import InputError
from onnx import numpy_helper
from onnx.backend.base import Backend

from tests.frontends.onnx.sample_models import parsed

MODEL = parsed(
    "net (float[N] x, float[N] w) => (float[N] sum, float[N] product) { sum = Add(x, w) product = Mul(x, w) }"
)
ONES, TWOS = np.ones(2, np.float32), np.full(2, 2, np.float32)


def with_default():
    model = parsed(
        "net (float[2] w, float[2] x) => (float[2] sum, float[2] product) { sum = Add(x, w) product = Mul(x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(TWOS, "w"))
    return model


@pytest.mark.parametrize("inputs", [[ONES, TWOS], (ONES, TWOS), {"w": TWOS, "x": ONES}])
def test_inputs_in_order_or_by_name(inputs):
    found = backend.run_model(MODEL, inputs)
    assert found["sum"].tolist() == [3, 3]
    assert found[1].tolist() == [2, 2]


@pytest.mark.parametrize("inputs", [[ONES], ONES, {"x": ONES}, [TWOS, ONES]])
def test_inputs_with_a_default_may_be_left_out(inputs):
    assert backend.prepare(with_default()).run(inputs)["sum"].tolist() == [3, 3]


@pytest.mark.parametrize(("inputs", "message"), [([ONES], "w is missing"), ([ONES] * 3, "takes 2 inputs, not 3")])
def test_inputs_that_do_not_fit(inputs, message):
    with pytest.raises(InputError, match=message):
        backend.run_model(MODEL, inputs)


def test_numpy_s_own_text_is_taken():
    model = parsed("net (string[N] a, string[N] b) => (bool[N] c) { c = Equal(a, b) }")
    assert backend.run_model(model, [np.array(["a", "b"]), np.array(["a", "c"])])[0].tolist() == [True, False]


def test_devices():
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    assert issubclass(backend.CapgraphBackend, Backend)
    with pytest.raises(InputError, match="does not run on CUDA"):
        backend.prepare(MODEL, "CUDA")
