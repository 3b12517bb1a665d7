"""Calls that take graphs: torch.cond, while_loop, scan and map, and regions that only change how PyTorch traces."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.graph import Graph, Value
from ...ir.ops import native
from ...ir.types import DType, TensorType
from .call import Call
from .flex_attention import import_flex_attention
from .origins import origin_of
from .region_checks import CODE, adopt, failed_in, may_check, none_failed

if TYPE_CHECKING:
    from .importer import FxImporter

Rule = Callable[["FxImporter", Any, Sequence[Any], Mapping[str, Any]], Any]


def _as_value(call: Call, given: Any) -> Value:
    """An operand or a result of control flow as a tensor."""
    if isinstance(given, Value):
        return given
    dtype = DType.F64 if isinstance(given, float) else DType.BOOL if isinstance(given, bool) else DType.I64
    return call.value(given, dtype)


def _call(importer: "FxImporter", node: Any) -> Call:
    return Call(importer.graph, importer.sizes, str(node.target), (), origin_of(node))


def _region(importer: "FxImporter", name: str) -> "FxImporter":
    """An importer of a region's body: its constants are its own, sizes are shared."""
    return type(importer)(Graph(name, symbols=importer.graph.symbols), importer.sizes, importer.constants)


def _body_inputs(body: "FxImporter", given: Sequence[Any]) -> list[Any]:
    """An input of the region for every value; numbers and sizes are the same inside."""
    inputs: list[Any] = []
    for index, operand in enumerate(given):
        inputs.append(body.graph.add_input(f"in{index}", operand.type) if isinstance(operand, Value) else operand)
    return inputs


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else [results]


# ---- cond


def _cond(importer: "FxImporter", node: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    predicate, true_module, false_module, operands = [*args, *kwargs.values()][:4]
    call = _call(importer, node)
    if isinstance(predicate, bool):
        return _listed(importer.import_module(true_module if predicate else false_module, operands))
    condition = call.reshape(call.value(predicate, DType.BOOL), ())
    captured = [operand for operand in operands if isinstance(operand, Value)]
    branches = [_branch(importer, name, module, operands) for name, module in _named(true_module, false_module)]
    checks = [check for body, _ in branches for check in body.checks.found]
    first = 0
    for body, results in branches:
        body.graph.set_outputs([*results, *([failed_in(body, first)] if checks else [])])
        first += len(body.checks.found)
    attrs = {"then_body": branches[0][0].graph, "else_body": branches[1][0].graph}
    outputs = list(importer.graph.append(native("if"), (condition, *captured), attrs, origin=call.origin).outputs)
    if checks:
        adopt(importer, call, checks, outputs.pop())
    return outputs


def _named(true_module: Any, false_module: Any) -> list[tuple[str, Any]]:
    return [("then", true_module), ("else", false_module)]


def _branch(
    importer: "FxImporter", name: str, module: Any, operands: Sequence[Any]
) -> "tuple[FxImporter, list[Value]]":
    body = _region(importer, name)
    results = _listed(body.import_module(module, _body_inputs(body, operands)))
    call = Call(body.graph, body.sizes, name, (), None)
    return body, [_as_value(call, result) for result in results]


# ---- while_loop


def _while_loop(importer: "FxImporter", node: Any, args: Sequence[Any], _kwargs: Mapping[str, Any]) -> list[Any]:
    """The condition is asked before the first iteration, and at the end of each for the next one.

    Where something does not hold that the body checks, this iteration is the last.
    """
    cond_module, body_module, carried, more = [*args, ()][:4]
    call = _call(importer, node)
    initial = [_as_value(call, given) for given in carried]
    first = importer.import_module(cond_module, [*initial, *more])
    checks = may_check(cond_module, body_module)
    body = _region(importer, "body")
    body.graph.add_input("iteration", TensorType(DType.I64, ()))
    body.graph.add_input("goes_on", TensorType(DType.BOOL, ()))
    if checks:
        body.graph.add_input("failed", CODE)
    inside = _body_inputs(body, [*initial, *more])
    results = _listed(body.import_module(body_module, inside))
    inner = Call(body.graph, body.sizes, "body", (), None)
    updated = [inner.cast(_as_value(inner, r), i.tensor.dtype) for r, i in zip(results, initial, strict=True)]
    again = body.import_module(cond_module, [*updated, *inside[len(initial) :]])
    goes_on = inner.reshape(_as_value(inner, again), ())
    if checks:
        failed = failed_in(body)
        holds = inner.reshape(inner.op("equal", failed, none_failed(inner)), ())
        goes_on, updated = inner.op("logical_and", goes_on, holds), [failed, *updated]
    body.graph.set_outputs([goes_on, *updated])
    captured = [given for given in more if isinstance(given, Value)]
    condition = call.reshape(_as_value(call, first), ())
    carried_values = [*([none_failed(call)] if checks else []), *initial]
    attrs = {"body": body.graph, "carried": len(carried_values)}
    operands = (None, condition, *carried_values, *captured)
    outputs = list(importer.graph.append(native("loop"), operands, attrs, origin=call.origin).outputs)
    if checks:
        adopt(importer, call, body.checks.found, outputs.pop(0))
    return outputs


# ---- scan and map


def _scan(importer: "FxImporter", node: Any, args: Sequence[Any], _kwargs: Mapping[str, Any]) -> list[Any]:
    module, states, sequences, more = [*args, ()][:4]
    call = _call(importer, node)
    initial = [_as_value(call, given) for given in states]
    return _scanned(importer, call, module, initial, sequences, more)


def _scanned(
    importer: "FxImporter",
    call: Call,
    module: Any,
    initial: list[Value],
    sequences: Sequence[Value],
    more: Sequence[Any],
) -> list[Any]:
    """Along the first axis of each sequence; results are stacked along the first axis too."""
    checks = may_check(module)
    body = _region(importer, "body")
    before = body.graph.add_input("failed", CODE) if checks else None
    inputs = [body.graph.add_input(f"state{i}", value.type) for i, value in enumerate(initial)]
    for place, sequence in enumerate(sequences):
        inputs.append(body.graph.add_input(f"part{place}", sequence.tensor.with_shape(sequence.shape[1:])))
    results = _listed(body.import_module(module, [*inputs, *_body_inputs(body, more)]))
    inner = Call(body.graph, body.sizes, "body", (), None)
    failed = [] if before is None else [failed_in(body, before=before)]
    body.graph.set_outputs([*failed, *(_as_value(inner, result) for result in results)])
    captured = [given for given in more if isinstance(given, Value)]
    states = [*(none_failed(call) for _ in failed), *initial]
    attrs = {"body": body.graph, "states": len(states), "scan_inputs": len(sequences)}
    operands = (*states, *sequences, *captured)
    outputs = list(importer.graph.append(native("scan"), operands, attrs, origin=call.origin).outputs)
    if checks:
        adopt(importer, call, body.checks.found, outputs.pop(0))
    return outputs


def _map(importer: "FxImporter", node: Any, args: Sequence[Any], _kwargs: Mapping[str, Any]) -> list[Any]:
    module, sequences, more = [*args, ()][:3]
    return _scanned(importer, _call(importer, node), module, [], sequences, more)


# ---- regions that are calls


def _with_effects(importer: "FxImporter", node: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """An operator that may fail, kept in order by a token: the order of a graph is that of its operands here."""
    _token, target, *operands = args
    if str(target) == "aten._linalg_check_errors.default":
        importer.checks.add_solved(node, operands[0], operands[1])
        return [None, None]
    results = importer.operator_result(node, target, operands, kwargs, node.meta["val"][1:])
    return [None, *(results if isinstance(results, list | tuple) else [results])]


def _call_of_last(count: int) -> Rule:
    """A call of the module behind `count` settings, with the operands that follow it."""

    def rule(importer: "FxImporter", _node: Any, args: Sequence[Any], _kwargs: Mapping[str, Any]) -> Any:
        module, *operands = args[count:]
        return importer.import_module(module, operands)

    return rule


RULES: dict[str, Rule] = {
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "with_effects": _with_effects,
    "flex_attention": import_flex_attention,
    "wrap_with_set_grad_enabled": _call_of_last(1),
    "wrap_with_autocast": _call_of_last(4),
    "invoke_subgraph": lambda importer, _node, args, _kwargs: importer.import_module(args[0], args[2:]),
}
