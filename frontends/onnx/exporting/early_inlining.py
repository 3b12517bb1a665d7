"""A function that nobody calls, which makes ONNX Runtime write out operators before it optimizes.

ONNX Runtime runs an operator without a kernel, such as Swish, as the body that the standard gives it. It puts the body
in place before its optimizations if the model has functions of its own, and else after them: then a cast and a product
with `alpha` are left in every Swish, and nothing is fused with it. EfficientNet-B0 takes 1.4 times as long that way.

Nodes are not touched, so that the model consists of standard operators still, for whoever reads it.
"""

from onnx import ModelProto
from onnx.helper import make_function, make_node, make_opsetid

DOMAIN = "capgraph"
_NAME = "InlineBeforeOptimizing"
_WHY = "Not called. ONNX Runtime inlines operators that it has no kernel for early only in models with functions."


def ask_for_early_inlining(model: ModelProto) -> None:
    """Gives `model` the function."""
    opset = next(entry for entry in model.opset_import if entry.domain == "")
    body = [make_node("Identity", ["x"], ["y"])]
    model.functions.append(make_function(DOMAIN, _NAME, ["x"], ["y"], body, [opset], doc_string=_WHY))
    if all(entry.domain != DOMAIN for entry in model.opset_import):
        model.opset_import.append(make_opsetid(DOMAIN, 1))
