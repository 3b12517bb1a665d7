"""Evaluations of single nodes, exact and padded, which try to refute what is claimed of their results."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from ....ir.analysis import input_symbols
from ....ir.attrs import AttrValue, is_tuple
from ....ir.constant import Array
from ....ir.dims import Dim, evaluate, symbol, symbols
from ....ir.errors import ShapeError
from ....ir.evaluate import FAILURES, as_results, bound_attrs
from ....ir.graph import Graph, Node, Value
from ....ir.ops.bounded import PREFIX
from ....ir.types import TensorType, type_symbols
from .rules.facts import Fact, Number, Same
from .samples import NoCall, Pair, Refuted, Trial, drawn, refutation, symbols_of

PADDED = 4
"""The padded size at which facts are tried, where that is admitted."""
OTHER_SIZES = (2, 3, 5)
MANY_ELEMENTS = 1 << 14
"""Above this many elements the static sizes of operands and results are tried in small first."""
TOO_MANY_ELEMENTS = 1 << 27
SMALL_SIZES = (5, 7, 11, 13, 17, 19, 23)


@dataclass(frozen=True)
class Certificate:
    """A proof as plain data: what is claimed of each value of `graph` when `symbol` is padded up to `largest`.

    `together` has the producers with which the claims about a node hold, beyond their own. `fills` are the inputs whose
    padding holds a number; sizes of inputs are at least `least`. `real_size` names the input that holds the real size,
    where there is one.
    """

    graph: Graph
    symbol: str
    facts: Mapping[Value, Fact]
    fills: Mapping[str, Number]
    together: Mapping[Node, Sequence[Node]] = field(default_factory=dict[Node, Sequence[Node]])
    real_size: str | None = None
    largest: int | None = None
    least: int = 0


# ---- a node and what its claims hold with


def _in_order(node: Node, together: frozenset[Node]) -> list[Node]:
    """A node behind those of `together` that it depends on, each once."""
    found: dict[Node, None] = {}
    for value in node.operands:
        if value.producer in together:
            found.update(dict.fromkeys(_in_order(value.producer, together)))
    return [*found, node]


class ClaimedPart:
    """A node with the producers that its claims hold with, and the values that these take from outside."""

    def __init__(self, node: Node, together: Sequence[Node]) -> None:
        inner = {value for each in together for value in each.outputs}
        self.node = node
        self.nodes = _in_order(node, frozenset(together))
        given = (value for each in self.nodes for value in each.operands if value not in inner)
        self.operands = list(dict.fromkeys(given))

    def makes(self, name: str) -> bool:
        """Whether the node itself tells the real size of a dim, by a count that is its last result."""
        return self.node.op.name.startswith(PREFIX) and self.node.attrs["size"] == symbol(name)

    def wiring(self) -> tuple[object, ...]:
        """Ops, attributes and how results are passed on."""
        numbers = {value: index for index, value in enumerate(self.operands)}
        for node in self.nodes:
            for value in node.outputs:
                numbers[value] = len(numbers)
        return tuple(
            (node.op, node.attrs, *(None if value is None else numbers[value] for value in node.inputs))
            for node in self.nodes
        )


# ---- sizes that are tried


def trials(certificate: Certificate, values: Sequence[Value], padded: int) -> Iterator[Trial]:
    """Calls of each size, with two poisons and styles."""
    has_integers = any(map(_is_integer, values))
    for call in calls(certificate, values, padded):
        for poison in (0, 1):
            for style in (0, 1, 3) if has_integers else (poison,):
                yield replace(call, poison=poison, style=style)


def calls(certificate: Certificate, values: Sequence[Value], padded: int) -> Iterator[Trial]:
    """Real sizes from the least on; other dims small, and once as small as they may be."""
    symbol, least = certificate.symbol, certificate.least
    of_calls = sizes_of_calls(certificate)
    facts = (symbols_of(certificate.facts[value]) for value in values)
    names = sorted(frozenset[str]().union(of_calls, *(type_symbols(value.type) for value in values), *facts))
    sizes = dict(zip((name for name in names if name != symbol), (OTHER_SIZES[i % 3] for i in count()), strict=False))
    smallest = {name: least if name in of_calls else size for name, size in sizes.items()}
    reals = dict.fromkeys((least, 1, padded - 1, padded))
    pairs = [(sizes, real) for real in reals if least <= real <= padded]
    if smallest != sizes:
        pairs += [(smallest, real) for real in (least, padded - 1)]
    for others, real in pairs:
        sizes = {**others, symbol: real}
        if _is_call(certificate.graph, sizes):
            yield Trial(sizes, {**others, symbol: padded}, 0, 0, certificate.fills)


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_integer


def _is_call(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Whether inputs can have these sizes."""
    types = (value.type for value in graph.inputs)
    try:
        return all(evaluate(dim, sizes) >= 0 for ty in types if isinstance(ty, TensorType) for dim in ty.shape or ())
    except ShapeError:
        return False


def sizes_of_calls(certificate: Certificate) -> tuple[str, ...]:
    """The symbols whose sizes callers choose."""
    return input_symbols(certificate.graph)


def _padded_sizes(certificate: Certificate, part: ClaimedPart) -> list[int]:
    """Sizes to pad to: a small one, and where indices have bounds one at which these are as great as they get."""
    largest = certificate.largest
    if part.makes(certificate.symbol) and largest is not None:
        mapping = _mapping(part, PADDED, certificate.symbol)
        return [max(1, min(largest, _elements(part.operands, PADDED, certificate.symbol, mapping)))]
    sizes = [PADDED if largest is None else max(1, min(PADDED, largest))]
    facts = [certificate.facts[value] for value in part.operands]
    columns = [column for fact in facts for column in (fact, *fact.columns, *fact.rows)]
    if any(fact.natural and fact.most is not None and certificate.symbol in symbols(fact.most) for fact in columns):
        first = part.operands[0].type
        static = [dim for dim in first.dims if isinstance(dim, int)] if isinstance(first, TensorType) else []
        sizes.append(largest or max(static, default=0) + 1)
    return sizes


# ---- evaluations


def tried(certificate: Certificate, part: ClaimedPart) -> str:
    """Tries a node at all sizes: in small first where its operands or results are large."""
    for padded in _padded_sizes(certificate, part):
        mapping = _mapping(part, padded, certificate.symbol)
        problem = _Attempt(certificate, part, mapping).problem(padded)
        if problem and mapping:
            problem = _Attempt(certificate, part, {}).problem(padded)
        if problem:
            return problem
    return ""


def _mapping(part: ClaimedPart, padded: int, symbol: str) -> dict[int, int]:
    """Small sizes for large static ones; empty where all are small, without operands, and for nodes with bodies."""
    values = (*part.operands, *part.node.outputs)
    is_exact = not part.operands or any(node.regions for node in part.nodes)
    if is_exact or _elements(values, padded, symbol, {}) <= MANY_ELEMENTS:
        return {}
    dims = {dim for value in values for dim in value.shape if isinstance(dim, int)}
    return dict(zip(sorted(dim for dim in dims if dim > SMALL_SIZES[-1]), SMALL_SIZES, strict=False))


def _elements(values: Sequence[Value], padded: int, symbol: str, mapping: Mapping[int, int]) -> int:
    """How many elements values have when all dims have the padded size."""
    sizes = dict.fromkeys(frozenset[str]().union({symbol}, *(type_symbols(value.type) for value in values)), padded)
    shapes = ([evaluate(dim, sizes) for dim in _mapped(value, mapping)] for value in values)
    return sum(math.prod(shape) for shape in shapes)


def _mapped(value: Value, mapping: Mapping[int, int]) -> list[Dim]:
    return [mapping.get(dim, dim) if isinstance(dim, int) else dim for dim in value.shape]


def names_values(fact: Fact) -> bool:
    """Whether a fact speaks of other values by name."""
    return any(tail and isinstance(tail.fill, Same) for tail in fact.tails)


class _Attempt:
    """Evaluations of one node with its static sizes as `mapping` says."""

    def __init__(self, certificate: Certificate, part: ClaimedPart, mapping: Mapping[int, int]) -> None:
        self._certificate = certificate
        self._part = part
        self._mapping = mapping
        self._facts = {value: certificate.facts[value] for value in part.operands}

    def problem(self, padded: int) -> str:
        """What is refuted, or why nothing can be said; empty where no trial refutes anything."""
        name, part = self._certificate.symbol, self._part
        if _elements(part.operands, padded, name, self._mapping) > TOO_MANY_ELEMENTS:
            return "its operands are too large to be tried"
        succeeded = False
        for trial in trials(self._certificate, (*part.operands, *part.node.outputs), padded):
            if not part.operands and (trial.poison, trial.style) != (0, 0):
                continue  # they are of operands alone
            try:
                succeeded |= self._try(trial) and (trial.real[name] > 0 or part.makes(name))
            except NoCall:
                continue
            except Refuted as problem:
                return f"{problem} ({trial.real[name]} of {padded} real)"
        return "" if succeeded else "no operands were found that it takes"

    def _try(self, trial: Trial) -> bool:
        """Whether the exact call ran. Raises `Refuted` where the padded one differs."""
        for style in dict.fromkeys((trial.style, 1, 2)):
            styled = replace(trial, style=style)
            given = self._drawn(styled)
            if self._part.makes(self._certificate.symbol):
                styled = self._counted(given, styled)
            exact = self._ran(given, 0, styled.real)
            if exact is not None:
                self._compare(given, exact, styled)
                return True
            is_last = style == 2
            is_certain = all(_is_bounded(fact, value) for value, fact in self._facts.items())
            if (is_last or is_certain) and self._ran(given, 1, trial.padded) is not None:
                raise Refuted("it fails on the real elements alone, and padding hides that")
        return False

    def _counted(self, given: Mapping[Value, Pair], trial: Trial) -> Trial:
        """With the real size that a node gives which makes the dim: its last result."""
        padded = self._ran(given, 1, trial.padded)
        symbol = self._certificate.symbol
        if padded is None or not 0 <= int(padded[-1]) <= trial.padded[symbol]:
            raise NoCall
        return replace(trial, real={**trial.real, symbol: int(padded[-1])})

    def _drawn(self, trial: Trial) -> dict[Value, Pair]:
        """Operands, those first that others may name."""
        made: dict[Value, Pair] = {}
        named: dict[str, Pair] = {}
        for seed, value in enumerate(sorted(self._facts, key=lambda each: names_values(self._facts[each]))):
            dtype, dims = value.tensor.dtype.numpy, _mapped(value, self._mapping)
            number = 7 * seed + 101 * sum(trial.real.values()) + trial.style
            made[value] = drawn(dims, dtype, self._facts[value], trial, named, number)
            named[value.name] = made[value]
        return made

    def _ran(self, given: Mapping[Value, Pair], side: int, sizes: Mapping[str, int]) -> list[Array] | None:
        """The results of the node; None when it fails."""
        arrays = {value: pair[side] for value, pair in given.items()}
        for node in self._part.nodes:
            operands = [arrays[value] if value is not None else None for value in node.inputs]
            try:
                with np.errstate(all="ignore"):
                    attrs = bound_attrs(node, dict(sizes))
                    attrs = {name: self._small(value, node.attrs[name]) for name, value in attrs.items()}
                    results = as_results(node, node.op.meaning(*operands, **attrs))
            except FAILURES:
                return None
            for value, result in zip(node.outputs, results, strict=True):
                arrays[value] = np.asarray(result, value.tensor.dtype.numpy)
        return [arrays[value] for value in self._part.node.outputs]

    def _small(self, value: AttrValue, written: AttrValue) -> AttrValue:
        """An attribute with small sizes; what was a symbolic dim stays."""
        if is_tuple(value) and is_tuple(written):
            return tuple(map(self._small, value, written))
        if not isinstance(value, int) or isinstance(value, bool) or not isinstance(written, int):
            return value
        return self._mapping.get(value, value)

    def _compare(self, given: Mapping[Value, Pair], exact: Sequence[Array], trial: Trial) -> None:
        padded = self._ran(given, 1, trial.padded)
        if padded is None:
            raise Refuted("padding makes it fail")
        others = {value.name: pair for value, pair in given.items()}
        others |= {f"source {self._facts[value].source}": pair for value, pair in given.items()}
        for value, *pair in zip(self._part.node.outputs, exact, padded, strict=True):
            if not value.has_uses:
                continue
            problem = refutation(self._certificate.facts[value], Pair(*pair), trial, others)
            if problem:
                raise Refuted(f"of %{value.name} {problem}")


def _is_bounded(fact: Fact, value: Value) -> bool:
    """Whether all that an operand can hold was drawn, so that failing is not up to a caller's indices."""
    if not value.tensor.dtype.is_integer or fact.columns or fact.rows:
        return all(_is_bounded(part, value) for part in (*fact.columns, *fact.rows))
    is_known = fact.number is not None or fact.real_extent is not None or fact.counts
    return is_known or (fact.natural and fact.most is not None)
