"""What the installed onnx says of its operators: which version takes which operands, attributes and element types."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cache
from types import MappingProxyType

import onnx
from onnx import AttributeProto
from onnx.defs import OpSchema

from .attributes import attribute_kind

_NEWEST = 2**31 - 1  # the largest number that onnx takes for a version


@cache
def schema_of(op_type: str, version: int, domain: str) -> OpSchema | None:
    """The schema of an operator at an opset version, None when the installed onnx has none."""
    try:
        return onnx.defs.get_schema(op_type, max_inclusive_version=min(max(version, 0), _NEWEST), domain=domain)
    except onnx.defs.SchemaError:
        return None


@cache
def first_schema(op_type: str, version: int, domain: str) -> OpSchema | None:
    """As `schema_of`, with an operator's first schema for versions before it: ONNX Runtime had some before onnx."""
    return schema_of(op_type, max(version, min(versions_of(op_type, domain), default=0)), domain)


@cache
def _histories() -> Mapping[tuple[str, str], tuple[int, ...]]:
    found: dict[tuple[str, str], set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    return MappingProxyType({key: tuple(sorted(versions)) for key, versions in found.items()})


def versions_of(op_type: str, domain: str) -> tuple[int, ...]:
    """The opset versions in which the operator changed, oldest first; empty for an unknown operator."""
    return _histories().get((domain, op_type), ())


# Versions that gave an operator another meaning under the same signature.
_REDEFINED = {
    ("", "AveragePool", 19),
    ("", "GroupNormalization", 21),
    ("", "RoiAlign", 16),
    ("", "Scan", 9),
}


@cache
def unchanged_span(
    op_type: str, version: int, domain: str, given: frozenset[str] | None = None
) -> tuple[int, int | None] | None:
    """The first and last opset version in which the operator means what it does at `version`; None when it is unknown.

    A last version of None is no end. New element types and new attributes do not change the meaning of a node that does
    without them, nor do attributes that went, where it has just those that are `given`.
    """
    history = versions_of(op_type, domain)
    since = max((v for v in history if v <= version), default=None)
    if since is None:
        return None
    position = history.index(since)
    first = last = position
    while first > 0 and _means_the_same(op_type, domain, history[first - 1], history[first], given):
        first -= 1
    while last + 1 < len(history) and _means_the_same(op_type, domain, history[last], history[last + 1], given):
        last += 1
    return history[first], (history[last + 1] - 1 if last + 1 < len(history) else None)


def _means_the_same(op_type: str, domain: str, older: int, newer: int, given: frozenset[str] | None) -> bool:
    old, new = schema_of(op_type, older, domain), schema_of(op_type, newer, domain)
    if old is None or new is None or new.deprecated or (domain, op_type, newer) in _REDEFINED:
        return False
    kept = all(
        new.attributes[name].default_value == attribute.default_value
        if name in new.attributes
        else given is not None and name not in given and not attribute.required and not attribute.default_value.name
        for name, attribute in old.attributes.items()
    )
    return kept and _begins_with(new.inputs, old.inputs) and _begins_with(new.outputs, old.outputs)


def _begins_with(longer: Sequence[OpSchema.FormalParameter], shorter: Sequence[OpSchema.FormalParameter]) -> bool:
    added = longer[len(shorter) :]
    pairs = zip(longer, shorter, strict=False)
    same = all(a.name == b.name and a.option == b.option and a.types >= b.types for a, b in pairs)
    return (
        same and len(longer) >= len(shorter) and all(p.option == OpSchema.FormalParameterOption.Optional for p in added)
    )


def signature_problem(schema: OpSchema, attributes: Mapping[str, AttributeProto], inputs: int, outputs: int) -> str:
    """Why a node with these attributes and so many operands and results is not of this operator; empty when it is."""
    for what, count, least, most in (
        ("inputs", inputs, schema.min_input, schema.max_input),
        ("outputs", outputs, schema.min_output, schema.max_output),
    ):
        if not least <= count <= most:
            return f"has {count} {what}, not {least if count < least else most}"
    for name, formal in schema.attributes.items():
        given = attributes.get(name)
        if given is None and formal.required:
            return f"lacks the attribute {name}"
        if given is not None and given.type != attribute_kind(formal):
            wanted = AttributeProto.AttributeType.Name(attribute_kind(formal))
            return f"has an attribute {name} that is no {wanted}"
    return ""


class OperatorUse:
    """How a node wants to use an operator: what `problem_with` compares with the schema of a version.

    `inputs` and `outputs` are types as schemas write them, empty where they are not known.
    """

    __slots__ = ("attributes", "domain", "inputs", "op_type", "outputs")

    def __init__(
        self,
        op_type: str,
        domain: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Sequence[str],
    ) -> None:
        self.op_type = op_type
        self.domain = domain
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.attributes = frozenset(attributes)

    def without(self, attributes: Iterable[str]) -> "OperatorUse":
        """The same use without some attributes."""
        fewer = copy(self)
        fewer.attributes = self.attributes - frozenset(attributes)
        return fewer

    def problem_with(self, version: int) -> str:
        """Why the operator of opset `version` cannot be used so; empty when it can, or when nothing is known of it."""
        if not versions_of(self.op_type, self.domain):
            return ""
        return _problem(self.op_type, self.domain, version, self.inputs, self.outputs, self.attributes)

    def result_type(self, version: int, position: int) -> str:
        """The type of a result as far as the operator ties it to the operands' types; empty when it does not."""
        schema = schema_of(self.op_type, version, self.domain)
        if schema is None or not schema.outputs:
            return ""
        result = schema.outputs[min(position, len(schema.outputs) - 1)]
        if len(result.types) == 1:
            return next(iter(result.types))
        formal = schema.inputs
        same = (
            text for i, text in enumerate(self.inputs) if formal[min(i, len(formal) - 1)].type_str == result.type_str
        )
        return next((text for text in same if text), "")

    def first_fit(self, above: int) -> int | None:
        """The lowest opset version above `above` in which the operator can be used so, None when there is none."""
        history = versions_of(self.op_type, self.domain)
        candidates = (above + 1, *(version for version in history if version > above + 1))
        return next((version for version in candidates if not self.problem_with(version)), None)


@cache
def _problem(
    op_type: str,
    domain: str,
    version: int,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    attributes: frozenset[str],
) -> str:
    schema = schema_of(op_type, version, domain)
    if schema is None or schema.deprecated:
        return "does not exist"
    unknown = sorted(attributes - schema.attributes.keys())
    if unknown:
        return f"has no attribute {unknown[0]}"
    for count, most, what in ((len(inputs), schema.max_input, "inputs"), (len(outputs), schema.max_output, "outputs")):
        if count > most:
            return f"has only {most} {what}"
    refused = _refused(schema.inputs, inputs, "takes") or _refused(schema.outputs, outputs, "gives")
    return refused or _mixed(schema.inputs, inputs)


def _mixed(formal: Sequence[OpSchema.FormalParameter], types: Sequence[str]) -> str:
    """What is wrong where two operands have to be of one type and are not."""
    found: dict[str, tuple[str, str]] = {}
    for position, text in enumerate(types):
        parameter = formal[min(position, len(formal) - 1)]
        if not text or not parameter.is_homogeneous:
            continue
        name, other = found.setdefault(parameter.type_str, (parameter.name, text))
        if other != text:
            return f"takes no {text} as {parameter.name} beside {other} as {name}"
    return ""


def _refused(formal: Sequence[OpSchema.FormalParameter], types: Sequence[str], verb: str) -> str:
    for position, text in enumerate(types):
        parameter = formal[min(position, len(formal) - 1)]
        if text and parameter.types and text not in parameter.types:
            return f"{verb} no {text} as {parameter.name}"
    return ""
