"""What bodies of control flow check: each gives the number of its check that failed first, and the graph around looks.

An output of a body is there in every iteration and in each branch, so that one number stands for all checks of a body;
it is `HOLDS` where all hold. Around the body each check is one of that graph: the number is not its own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.graph import Value
from ...ir.types import DType, TensorType
from .call import Call
from .checks import Check, is_check

if TYPE_CHECKING:
    from .importer import FxImporter

HOLDS = -1
CODE = TensorType(DType.I64, (1,))
_WITH_EFFECTS = "with_effects"


def may_check(*modules: Any) -> bool:
    """Whether modules, or those within, have nodes that check something."""
    parts = (part for module in modules for part in module.modules() if hasattr(part, "graph"))
    return any(
        is_check(node) or getattr(node.target, "__name__", "") == _WITH_EFFECTS
        for part in parts
        for node in part.graph.nodes
    )


def none_failed(call: Call) -> Value:
    """The number before anything was checked."""
    return call.constant(np.array([HOLDS], np.int64))


def failed_in(body: "FxImporter", first: int = 0, before: Value | None = None) -> Value:
    """The number i64[1] of the first check of `body` that fails, where the first has the number `first`.

    That is `before` where it says that one has failed already.
    """
    call = Call(body.graph, body.sizes, "checks", (), None)
    code = none_failed(call)
    for place, check in reversed(list(enumerate(body.checks.found, first))):
        code = call.op("where", check.condition, code, call.constant(np.array([place], np.int64)))
    if before is None:
        return code
    return call.op("where", call.op("equal", before, none_failed(call)), code, before)


def adopt(importer: "FxImporter", call: Call, checks: Sequence[Check], failed: Value) -> None:
    """Has the graph around bodies look at their checks, of which `failed` numbers the one that failed."""
    for place, check in enumerate(checks):
        holds = call.op("not_equal", failed, call.constant(np.array([place], np.int64)))
        importer.checks.adopt(Check(holds, check.message, check.where))
