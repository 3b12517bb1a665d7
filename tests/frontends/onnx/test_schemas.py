import onnx
import pytest
from capgraph.frontends.onnx.schemas import OperatorUse, schema_of, signature_problem, unchanged_span, versions_of

F32, BF16 = "tensor(float)", "tensor(bfloat16)"


def test_a_schema_is_that_of_the_newest_version_not_above():
    found = schema_of("Softmax", 12, "")
    assert found is not None
    assert found.since_version == 11
    assert schema_of("Softmax", 2**40, "") is not None
    assert schema_of("Softmax", -1, "") is None
    assert schema_of("NoSuch", 20, "") is None


def test_versions():
    assert versions_of("Softmax", "")[:3] == (1, 11, 13)
    assert versions_of("NoSuch", "") == ()


@pytest.mark.parametrize(
    ("operator", "version", "span"),
    [
        ("Relu", 13, (6, None)),  # newer versions only take more types
        ("Softmax", 11, (1, 12)),  # the default axis changed
        ("Softmax", 20, (13, None)),
        ("Squeeze", 11, (1, 12)),  # axes became an operand
        ("Dropout", 9, (7, 9)),  # the mask became bool
        ("GroupNormalization", 18, (18, 20)),  # scales went from groups to channels
        ("NoSuch", 3, None),
    ],
)
def test_the_span_in_which_an_operator_means_the_same(operator, version, span):
    assert unchanged_span(operator, version, "") == span


@pytest.mark.parametrize(
    ("operator", "version", "given", "span"),
    [
        ("ReduceMin", 11, {"keepdims"}, (1, None)),  # without axes
        ("ReduceMin", 11, {"axes"}, (1, 17)),
        ("ReduceSum", 7, set(), (1, None)),
        ("Split", 11, {"axis"}, (2, None)),
        ("Softmax", 11, {"axis"}, (1, 12)),
        ("DFT", 17, set(), (17, 19)),  # the default axis changed as it became an operand
    ],
)
def test_attributes_that_went_matter_to_nodes_that_have_them(operator, version, given, span):
    assert unchanged_span(operator, version, "", frozenset(given)) == span


@pytest.mark.parametrize(
    ("use", "version", "problem"),
    [
        (OperatorUse("Neg", "", [F32], [F32], []), 6, ""),
        (OperatorUse("Neg", "", [BF16], [BF16], []), 6, "takes no tensor(bfloat16) as X"),
        (OperatorUse("Neg", "", [F32, F32], [F32], []), 13, "has only 1 inputs"),
        (OperatorUse("Neg", "", [F32], [F32], ["alpha"]), 13, "has no attribute alpha"),
        (OperatorUse("Swish", "", [F32], [F32], []), 13, "does not exist"),
        (OperatorUse("Upsample", "", [F32], [F32], []), 13, "does not exist"),
        (OperatorUse("Anything", "com.example", [BF16], [F32], ["x"]), 1, ""),
        (OperatorUse("Concat", "", [F32, F32, BF16], [""], ["axis"]), 4, "takes no tensor(bfloat16) as inputs"),
    ],
)
def test_how_an_operator_can_be_used(use, version, problem):
    assert use.problem_with(version) == problem


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (OperatorUse("Add", "", [BF16, ""], [""], []), BF16),
        (OperatorUse("Add", "", ["", ""], [""], []), ""),
        (OperatorUse("Less", "", [F32, F32], [""], []), "tensor(bool)"),
        (OperatorUse("Shape", "", [F32], [""], []), "tensor(int64)"),
        (OperatorUse("Cast", "", [F32], [""], ["to"]), ""),
        (OperatorUse("Anything", "com.example", [F32], [""], []), ""),
    ],
)
def test_the_type_of_a_result_as_far_as_operands_tell(use, text):
    assert use.result_type(21, 0) == text


def test_the_first_version_that_fits():
    assert OperatorUse("Neg", "", [BF16], [BF16], []).first_fit(6) == 13
    assert OperatorUse("Neg", "", [F32], [F32], ["alpha"]).first_fit(6) is None
    assert OperatorUse("Neg", "", [F32], [F32], ["alpha"]).without(["alpha"]).first_fit(6) == 7


@pytest.mark.parametrize(
    ("operator", "attributes", "inputs", "outputs", "problem"),
    [
        ("Neg", {}, 1, 1, ""),
        ("Neg", {"left_behind": 1}, 1, 1, ""),
        ("Neg", {}, 2, 1, "has 2 inputs, not 1"),
        ("Neg", {}, 1, 2, "has 2 outputs, not 1"),
        ("Gather", {}, 1, 1, "has 1 inputs, not 2"),
        ("Cast", {}, 1, 1, "lacks the attribute to"),
        ("Cast", {"to": 1.5}, 1, 1, "has an attribute to that is no INT"),
    ],
)
def test_what_does_not_belong_to_an_operator(operator, attributes, inputs, outputs, problem):
    schema = schema_of(operator, 21, "")
    assert schema is not None
    protos = {name: onnx.helper.make_attribute(name, value) for name, value in attributes.items()}
    assert signature_problem(schema, protos, inputs, outputs) == problem
