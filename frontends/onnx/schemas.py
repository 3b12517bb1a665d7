"""What the installed onnx says of its operators: which version takes which operands, attributes and element types."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cache
from types import MappingProxyType

import onnx
from onnx.defs import OpSchema

from ...ir.types import Type
from .tensors import type_text


@cache
def schema_of(op_type: str, version: int, domain: str) -> OpSchema | None:
    """The schema of an operator at an opset version, None when the installed onnx has none."""
    try:
        return onnx.defs.get_schema(op_type, max_inclusive_version=version, domain=domain)
    except onnx.defs.SchemaError:
        return None


@cache
def _histories() -> Mapping[tuple[str, str], tuple[int, ...]]:
    found: dict[tuple[str, str], set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    return MappingProxyType({key: tuple(sorted(versions)) for key, versions in found.items()})


def versions_of(op_type: str, domain: str) -> tuple[int, ...]:
    """The opset versions in which the operator changed, oldest first; empty for an unknown operator."""
    return _histories().get((domain, op_type), ())


def unchanged_span(op_type: str, version: int, domain: str) -> tuple[int, int | None] | None:
    """The first and last opset version with the same definition as at `version` (None: no end); None when unknown."""
    history = versions_of(op_type, domain)
    since = max((v for v in history if v <= version), default=None)
    if since is None:
        return None
    following = [v for v in history if v > since]
    return since, (following[0] - 1 if following else None)


class Use:
    """How a node wants to use an operator: what `problem_with` compares with the schema of a version."""

    __slots__ = ("attributes", "domain", "inputs", "op_type", "outputs")

    def __init__(
        self,
        op_type: str,
        domain: str,
        inputs: Sequence[Type | None],
        outputs: Sequence[Type | None],
        attributes: Sequence[str],
    ) -> None:
        self.op_type = op_type
        self.domain = domain
        self.inputs = tuple(type_text(ty) for ty in inputs)
        self.outputs = tuple(type_text(ty) for ty in outputs)
        self.attributes = frozenset(attributes)

    def without(self, attributes: Iterable[str]) -> "Use":
        """The same use without some attributes."""
        fewer = copy(self)
        fewer.attributes = self.attributes - frozenset(attributes)
        return fewer

    def problem_with(self, version: int) -> str:
        """Why the operator of opset `version` cannot be used so; empty when it can, or when nothing is known of it."""
        if not versions_of(self.op_type, self.domain):
            return ""
        return _problem(self.op_type, self.domain, version, self.inputs, self.outputs, self.attributes)

    def first_fit(self, above: int) -> int | None:
        """The lowest opset version above `above` whose operator can be used so, None when there is none."""
        later = (version for version in versions_of(self.op_type, self.domain) if version > above)
        return next((version for version in later if not self.problem_with(version)), None)


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
    return _refused(schema.inputs, inputs, "takes") or _refused(schema.outputs, outputs, "gives")


def _refused(formal: Sequence[OpSchema.FormalParameter], types: Sequence[str], verb: str) -> str:
    for position, text in enumerate(types):
        parameter = formal[min(position, len(formal) - 1)]
        if text and parameter.types and text not in parameter.types:
            return f"{verb} no {text} as {parameter.name}"
    return ""
