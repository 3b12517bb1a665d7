"""Every version of an operator, and ONNX Runtime's own operators, to hold each of them to ONNX Runtime."""

from collections.abc import Iterable

import onnx
import pytest
from capgraph.frontends.onnx.schemas import versions_of

NEWEST_OFFICIAL = 26
"""The last opset that ONNX Runtime runs without being told to take unreleased ones."""


def every_version(operators: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrizes a test by (`operator`, `opset`): 7, where import begins, and each later version of the operator."""
    rows = [
        (operator, opset)
        for operator in operators
        for opset in sorted({max(7, version) for version in versions_of(operator, "")})
        if opset <= NEWEST_OFFICIAL
    ]
    return pytest.mark.parametrize(("operator", "opset"), rows)


def of_onnx_runtime(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its node moved to ONNX Runtime's own domain."""
    model.graph.node[0].domain = "com.microsoft"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model
