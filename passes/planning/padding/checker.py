"""The checker of padding proofs: it accepts the facts of a walk only after trying to refute them, node by node.

A proof is a fact for each value. Each is local: if the operands of a node are what their facts say, its results are
what theirs say, and their real elements do not depend on padding. The checker holds a node to that by its NumPy
meaning: on small drawn operands, exact and padded, with poison in every place that no fact speaks of, without real
elements, with one, some and all. It shares no code with the rules, so that a rule which is wrong alone does no harm.
Verdicts are kept for each (op, attributes, types, facts), since the layers of a model are alike.
"""

from collections.abc import Iterator

import numpy as np

from ....ir.analysis import ancestors
from ....ir.attrs import is_tuple
from ....ir.dims import SymDim, symbol, symbols
from ....ir.graph import Graph, Node, Value
from ....ir.op import Trait
from ....ir.types import TensorType, type_symbols
from .attempts import PADDED, calls, names_values, tried
from .claims import Certificate, ClaimedPart
from .rules.facts import Fact, Same
from .samples import NoCall, Refuted, places, shapes_of

KEPT_VERDICTS = 4096

_verdicts: dict[object, str] = {}


def refuted(certificate: Certificate) -> str:
    """Why a proof is not accepted and at which node; empty when it is."""
    graph, facts = certificate.graph, certificate.facts
    try:
        for value in graph.inputs:
            if value in facts:
                _check_input(certificate, value, facts[value])
        live = ancestors(graph.outputs)
        for node in graph.nodes:
            if node in live:
                problem = _refuted_node(certificate, node)
                if problem:
                    return f"the checker refutes it: {problem}, at {node.where()}"
        _check_outputs(certificate)
    except Refuted as problem:
        return f"the checker refutes it: {problem}"
    return ""


# ---- inputs and outputs


def _check_input(certificate: Certificate, value: Value, fact: Fact) -> None:
    """What callers give: real elements first, anything behind them."""
    if value.name == certificate.real_size:
        if fact != Fact((), real_extent=fact.real_extent, natural=True) or fact.real_extent != symbol(
            certificate.symbol
        ):
            raise Refuted(f"input %{value.name} is not the real size")
        return
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        if certificate.symbol in type_symbols(value.type):
            raise Refuted(f"input %{value.name} is no tensor")
        return
    is_natural = value.tensor.dtype.value.startswith("u")
    claimed = Fact(tuple(tail and tail.filled(None) for tail in fact.tails), natural=is_natural, source=value.name)
    if fact != claimed or any(tail is not None and tail.is_free for tail in fact.tails):
        raise Refuted(f"more is claimed of input %{value.name} than a caller grants")
    _require_first(certificate, value, fact)


def _require_first(certificate: Certificate, value: Value, fact: Fact) -> None:
    for call in calls(certificate, [value], PADDED):
        try:
            shapes = shapes_of(value.shape, call)
        except NoCall:
            continue
        for axis, where in enumerate(places(fact, *shapes, call)):
            if not np.array_equal(where, np.arange(len(where))):
                raise Refuted(f"the real elements of %{value.name} are not the first along axis {axis}")


def _check_outputs(certificate: Certificate) -> None:
    graph, facts = certificate.graph, certificate.facts
    for value in graph.outputs:
        if isinstance(value.type, TensorType) and value.type.shape is not None:
            _require_first(certificate, value, facts[value])
    for state in graph.states:
        old, new = graph.inputs[state.input], graph.outputs[state.output]
        if new is not old and any(tail and tail.fill != Same(old.name) for tail in facts[new].tails):
            raise Refuted(f"padding is written into state %{old.name}")


# ---- one node


def _refuted_node(certificate: Certificate, node: Node) -> str:
    facts = certificate.facts
    results = [facts.get(value) for value in node.outputs]
    if _is_plain(certificate, node):
        return ""
    if any(fact is None for fact in results) or not _is_evaluable(node):
        return "it cannot be evaluated"
    part = ClaimedPart(node, certificate.together.get(node, ()))
    key = _key(certificate, part)
    if key is not None and key in _verdicts:
        return _verdicts[key]
    problem = tried(certificate, part)
    if key is not None:
        if len(_verdicts) >= KEPT_VERDICTS:
            _verdicts.clear()
        _verdicts[key] = problem
    return problem


def _is_plain(certificate: Certificate, node: Node) -> bool:
    """Whether the dim does not reach a node of which nothing is claimed."""
    facts = certificate.facts
    if any(facts.get(value) != Fact((None,) * _rank(value)) for value in node.outputs):
        return False
    given = [facts[value] for value in node.operands]
    if any(tail is not None for fact in given for tail in fact.tails):
        return False
    if any(fact.real_extent is not None for fact in given):
        return False
    mentioned = frozenset[str]().union(*(type_symbols(value.type) for value in node.outputs), *_symbols_in(node))
    return certificate.symbol not in mentioned


def _rank(value: Value) -> int:
    return value.tensor.rank if isinstance(value.type, TensorType) and value.type.shape is not None else 0


def _symbols_in(node: Node) -> Iterator[frozenset[str]]:
    for name in node.op.bound_attrs:
        value = node.attrs[name]
        if isinstance(value, Graph):
            yield frozenset[str]().union(*(type_symbols(each.type) for each in value.values))
            for inner in value.nodes:
                yield from _symbols_in(inner)
        else:
            for item in value if is_tuple(value) else (value,):
                yield symbols(item) if isinstance(item, int | SymDim) else frozenset()


def _is_evaluable(node: Node) -> bool:
    tensors = (
        isinstance(value.type, TensorType) and value.type.shape is not None for value in (*node.operands, *node.outputs)
    )
    return all(tensors) and not node.op.has(Trait.IMPURE | Trait.FOREIGN)


def _key(certificate: Certificate, part: "ClaimedPart") -> object:
    """What a verdict depends on; None for nodes with bodies."""
    if any(node.regions for node in part.nodes):
        return None
    facts = tuple(certificate.facts[value] for value in part.values)
    sources = tuple((fact.source, certificate.fills.get(fact.source)) for fact in facts if fact.source)
    names = tuple(value.name for value in part.values) if any(map(names_values, facts)) else ()
    types = tuple(value.type for value in part.values)
    used = tuple(value.has_uses for value in part.node.outputs)
    chosen = (certificate.sizes_of_calls, certificate.dims_of_calls)
    scope = (certificate.symbol, certificate.largest, certificate.least, chosen)
    return (part.wiring(), types, facts, used, sources, names, scope)
