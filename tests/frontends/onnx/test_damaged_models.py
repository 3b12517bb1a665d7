"""Whatever is done to a model, importing it gives a valid graph or one clear error, soon and in little memory."""

import random
import resource
import sys
from collections.abc import Iterator

import onnx
import pytest
from capgraph.frontends.onnx.importing.importer import import_model
from capgraph.ir.errors import CapgraphError, InternalError
from capgraph.ir.verify import verify
from onnx import ModelProto

from tests.counted_work import calls_in
from tests.frontends.onnx import sample_models
from tests.frontends.onnx.mutations import mutated_bytes, mutated_fields

ROUNDS = 1_000
MAX_CALLS = 1_000_000
"""How many calls an import may make; these models need some thousands."""

MAX_BYTES = 512 << 20
"""How much all of these imports may raise the highest resident set."""


@pytest.fixture(scope="module", autouse=True)
def _in_little_memory() -> Iterator[None]:
    before = highest_resident_set()
    yield
    assert highest_resident_set() - before < MAX_BYTES


def highest_resident_set() -> int:
    """In bytes, which Linux counts in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def outcome(source: bytes | ModelProto) -> str:
    """The kind of outcome; a graph must be valid, and an error must say what to do."""
    found: list[tuple[str, str]] = []
    calls_in(lambda: found.append(_imported(source)), at_most=MAX_CALLS)
    ((kind, remedy),) = found
    assert remedy
    return kind


def _imported(source: bytes | ModelProto) -> tuple[str, str]:
    try:
        verify(import_model(source).graph)
    except InternalError:
        raise
    except CapgraphError as error:
        return type(error).__name__, error.remedy or ""
    return "graph", "valid"


@pytest.mark.parametrize("make", sample_models.ALL)
def test_the_models_are_valid_to_begin_with(make):
    model = make()
    onnx.checker.check_model(model)
    assert outcome(model) == "graph"


def test_changed_bytes():
    data = [make().SerializeToString() for make in sample_models.ALL]
    found = [outcome(mutated_bytes(data[seed % len(data)], random.Random(seed))) for seed in range(ROUNDS)]
    assert {"graph", "ModelError"} <= set(found)


def test_changed_fields():
    models = [make() for make in sample_models.ALL]
    found = [outcome(mutated_fields(models[seed % len(models)], random.Random(seed))) for seed in range(ROUNDS)]
    assert {"graph", "ModelError"} <= set(found)


@pytest.mark.parametrize("make", sample_models.ALL)
def test_every_prefix_of_a_file(make):
    data = make().SerializeToString()
    for length in range(0, len(data), 7):
        outcome(data[:length])


def test_random_bytes():
    draw = random.Random(0)
    assert {outcome(draw.randbytes(draw.randrange(1, 400))) for _ in range(300)} == {"ModelError"}


def test_a_name_in_a_body_that_onnx_writes_into_the_text_of_a_function():
    """What FlexAttention means onnx writes as text with the names of the body in it, and then parses."""
    score = onnx.parser.parse_graph(
        "score (float[B, H, L, S] s) => (float[B, H, L, S] y) <float two = {2}> { y = Mul (s, two) }"
    )
    sizes = [2, 2, 4, 8]
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sizes) for name in "qkv"]
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, sizes)
    node = onnx.helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", score_mod=score)
    opsets = [onnx.helper.make_opsetid("", 26), onnx.helper.make_opsetid("ai.onnx.preview", 1)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", inputs, [result]), opset_imports=opsets, ir_version=13
    )
    assert outcome(model) == "graph"
    body = model.graph.node[0].attribute[0].g
    body.initializer[0].name = body.node[0].input[1] = "a.b"
    assert outcome(model) == "ModelError"
