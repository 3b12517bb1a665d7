"""Evaluations of single nodes, exact and padded, which try to refute what is claimed of their results."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, product

import numpy as np

from ....ir.attrs import AttrValue, is_tuple
from ....ir.constant import Array
from ....ir.dims import Dim, evaluate, symbols
from ....ir.errors import ShapeError
from ....ir.evaluate import FAILURES, as_results, bound_attrs
from ....ir.graph import Value
from ....ir.types import TensorType, type_symbols
from .claims import Certificate, ClaimedPart
from .rules.facts import Fact, Same
from .samples import NoCall, Pair, Refuted, Trial, drawn, refutation, symbols_of

PADDED = 4
"""The padded size at which facts are tried, where that is admitted."""
OTHER_SIZES = (2, 3, 5)
MANY_ELEMENTS = 1 << 14
"""Above this many elements the static sizes of operands and results are tried in small first."""
TOO_MANY_ELEMENTS = 1 << 27
SMALL_SIZES = (5, 7, 11, 13, 17, 19, 23)


# ---- sizes that are tried


def trials(certificate: Certificate, part: ClaimedPart, padded: int) -> Iterator[Trial]:
    """Calls of each size, with the poisons and styles by which operands differ."""
    drawings = list(_drawings(certificate, part))
    for call in calls(certificate, part.values, padded):
        for poison, style in drawings:
            yield replace(call, poison=poison, style=style)


def _drawings(certificate: Certificate, part: ClaimedPart) -> Iterator[tuple[int, int]]:
    """Poisons, which stand in padding alone, and styles; one of each where there is nothing to draw."""
    has_padding = any(tail is not None for value in part.operands for tail in certificate.facts[value].tails)
    if not part.operands:
        yield 0, 0
    elif any(map(_is_integer, part.values)):
        yield from product((0, 1) if has_padding else (0,), (0, 1, 3))
    else:
        yield from ((0, 0), (1, 1))


def calls(certificate: Certificate, values: Sequence[Value], padded: int) -> Iterator[Trial]:
    """Real sizes from the least on; other dims small, and once as small as they may be."""
    symbol, least = certificate.symbol, certificate.least
    of_calls = certificate.sizes_of_calls
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
        if _is_call(certificate.dims_of_calls, sizes):
            yield Trial(sizes, {**others, symbol: padded}, 0, 0, certificate.fills)


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_integer


def _is_call(dims: Iterable[Dim], sizes: Mapping[str, int]) -> bool:
    """Whether inputs can have these sizes."""
    try:
        return all(evaluate(dim, sizes) >= 0 for dim in dims)
    except ShapeError:
        return False


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
    is_exact = not part.operands or any(node.regions for node in part.nodes)
    if is_exact or _elements(part.values, padded, symbol, {}) <= MANY_ELEMENTS:
        return {}
    dims = {dim for value in part.values for dim in value.shape if isinstance(dim, int)}
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
        for trial in trials(self._certificate, part, padded):
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
            padded = self._ran(given, 1, styled.padded)
            if self._part.makes(self._certificate.symbol):
                styled = self._counted(padded, styled)
            exact = self._ran(given, 0, styled.real)
            if exact is not None:
                self._compare(given, exact, padded, styled)
                return True
            is_last = style == 2
            is_certain = all(_is_bounded(fact, value) for value, fact in self._facts.items())
            if (is_last or is_certain) and padded is not None:
                raise Refuted("it fails on the real elements alone, and padding hides that")
        return False

    def _counted(self, padded: Sequence[Array] | None, trial: Trial) -> Trial:
        """With the real size that a node gives which makes the dim: its last result."""
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

    def _compare(
        self, given: Mapping[Value, Pair], exact: Sequence[Array], padded: Sequence[Array] | None, trial: Trial
    ) -> None:
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
