"""What PyTorch checks while a graph runs: `torch._check` and asserts, of sizes that only running tells and of data.

A graph has no effects: the conditions are one more output, bool[count], and whoever runs the graph looks at it.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...ir.analysis.shape_values import DATA_SIZED, most_found
from ...ir.dims import Dim, SymDim, Truth, compare, is_at_least, symbols, upper_bound
from ...ir.dims.atoms import Ranges
from ...ir.graph import Graph, Value
from ...ir.types import DType, type_symbols
from .call import Call
from .model import CheckedOutput
from .numbers import NUMBER_CALLS, computed, number_result
from .origins import origin_of

if TYPE_CHECKING:
    from .importer import FxImporter

OPERATORS = frozenset(
    f"aten.{name}"
    for name in ("_assert_scalar.default", "_assert_async.default", "_assert_async.msg", "_functional_assert_async.msg")
)


@dataclass(frozen=True)
class Check:
    """What has to be true, else `message` is raised; `where` is the line of the model."""

    condition: Value
    message: str
    where: str

    @property
    def is_generated(self) -> bool:
        """Whether the words are PyTorch's own, not of the model."""
        return self.message.startswith("Runtime assertion failed for expression")


def is_check(node: Any) -> bool:
    """Whether a node of an fx graph checks something that is not decided yet."""
    return str(node.target) in OPERATORS and isinstance(node.args[0], torch.fx.Node)


def is_number(meta: Any) -> bool:
    """Whether a node gives a number, not a tensor."""
    return isinstance(meta, torch.SymInt | torch.SymFloat | torch.SymBool | bool | int | float)


class Checks:
    """The checks of one graph. Where `knows_inputs`, the sizes of inputs are checked elsewhere, before a call."""

    def __init__(self, importer: "FxImporter", *, knows_inputs: bool = False) -> None:
        self._importer = importer
        self._knows_inputs = knows_inputs
        self._numbers: dict[Any, Any] = {}
        self._found: dict[Any, Check] = {}

    def add(self, node: Any) -> None:
        """Notes what a node checks."""
        source = node.args[0]
        if self._is_sure(source):
            return
        message = node.args[1] if len(node.args) > 1 else "Expected Tensor with single nonzero value, but got zero"
        key = (source.target, tuple(map(self._key, source.args)))
        if key not in self._found or self._found[key].is_generated:  # the model's own words rather than PyTorch's
            call = self._call(node)
            self._found[key] = self._check(call, call.value(self._number(source), DType.BOOL), message)

    def adopt(self, check: Check) -> None:
        """Notes a check that a body of the graph has made."""
        self._found[check.condition] = check

    @property
    def found(self) -> Sequence[Check]:
        """What is checked so far, in order."""
        return list(self._found.values())

    def begin(self) -> None:
        """Forgets what nodes are worth: those of a graph that is imported again are worth something else."""
        self._numbers.clear()

    def _key(self, given: Any) -> Any:
        """Equal for what is the same number or tensor."""
        found = self._number(given)
        return found if isinstance(found, Value | SymDim | int | float) else str(given)

    def add_solved(self, node: Any, info: Value, name: str) -> None:
        """Notes that LAPACK found no matrix singular, or not positive definite: what it says of each is 0."""
        call = self._call(node)
        holds = call.op("equal", info, call.value(0, info.tensor.dtype))
        if info.tensor.rank:
            holds = call.op("reduce_min", holds, axes=tuple(range(info.tensor.rank)), keep_dims=False)
        self._found[holds] = self._check(call, holds, f"{name}: a matrix is singular, or not positive-definite")

    def _call(self, node: Any) -> Call:
        return Call(self._importer.graph, self._importer.sizes, str(node.target), (), origin_of(node))

    def _check(self, call: Call, condition: Value, message: str) -> Check:
        return Check(call.reshape(condition, (1,)), message, str(call.origin))

    def add_output(self, call: Call, outputs: dict[str, Value]) -> CheckedOutput | None:
        """Adds the conditions to the outputs as one more; None where there are none.

        Those in the model's words come first, as PyTorch says the same of some again.
        """
        checks = sorted(self._found.values(), key=lambda check: check.is_generated)
        if not checks:
            return None
        name = self._importer.graph.unused_name("checks")
        conditions = [check.condition for check in checks]
        outputs[name] = call.op("concat", *conditions, axis=0) if len(conditions) > 1 else conditions[0]
        return CheckedOutput(name, [(check.message, check.where) for check in checks])

    def _is_sure(self, node: Any) -> bool:
        """Whether a condition holds for all sizes that there are."""
        rule = _DECISIONS.get(node.target)
        operands = [self._number(each) for each in node.args] if rule is not None else []
        if rule is None or not all(_is_dim(each) for each in operands):
            return False
        if self._knows_inputs and self._of_inputs(operands):
            return True
        left, right = operands
        return rule(left, right, _ranges(self._importer.graph, symbols(left) | symbols(right))) is Truth.YES

    def _of_inputs(self, operands: Iterable[Dim]) -> bool:
        dims = [each for each in operands if isinstance(each, SymDim)]
        return Call(self._importer.graph, self._importer.sizes, "check", (), None).may_mention(dims)

    def _number(self, given: Any) -> Any:
        """A number as it is when it runs: what the graph's own shapes say it is has been found by these very checks."""
        if isinstance(given, list | tuple):
            return [self._number(each) for each in given]
        if not isinstance(given, torch.fx.Node):
            return given
        if given not in self._numbers:
            self._numbers[given] = self._computed(given)
        return self._numbers[given]

    def _computed(self, node: Any) -> Any:
        known = self._importer.known
        if node.op == "placeholder" or not is_number(node.meta.get("val")):
            return known[node]
        if str(node.target) == "aten.sym_size.int":
            tensor = known[node.args[0]]
            return tensor.shape[node.args[1]] if isinstance(tensor, Value) else number_result(self._importer, node)
        if node.target not in NUMBER_CALLS:
            return computed(self._importer, node, ())
        operands = [self._number(each) for each in node.args]
        if node.target in _OF_DIMS and all(_is_dim(each) for each in operands):
            return node.target(*operands)
        return computed(self._importer, node, operands)


def _is_dim(given: Any) -> bool:
    return isinstance(given, int | SymDim) and not isinstance(given, bool)


def _ranges(graph: Graph, names: frozenset[str]) -> Ranges:
    """The ranges of sizes, by name, that nodes of the graph find in data: PyTorch asserts these of its own."""
    left, most = set(names), dict[str, Dim]()
    for node in graph.reversed_nodes:
        if not left:
            break
        if node.op.name in DATA_SIZED:
            made = left & _symbols_of(node.outputs) - _symbols_of(node.operands)
            most.update(dict.fromkeys(made, most_found(node)))
            left |= symbols(most_found(node))
            left -= made
    ranges: dict[str, tuple[int, int | None]] = {}
    for name in reversed(most):  # each may be bounded by those before it
        ranges[name] = (0, upper_bound(most[name], ranges))
    return ranges


def _symbols_of(values: Iterable[Value]) -> frozenset[str]:
    return frozenset[str]().union(*(type_symbols(each.type) for each in values))


_OF_DIMS = (operator.add, operator.sub, operator.mul)
_NOT = {Truth.YES: Truth.NO, Truth.NO: Truth.YES, Truth.UNKNOWN: Truth.UNKNOWN}
_DECISIONS: Mapping[Any, Callable[[Dim, Dim, Ranges], Truth]] = {
    operator.ge: is_at_least,
    operator.le: lambda a, b, ranges: is_at_least(b, a, ranges),
    operator.gt: lambda a, b, ranges: is_at_least(a, b + 1, ranges),
    operator.lt: lambda a, b, ranges: is_at_least(b, a + 1, ranges),
    operator.eq: lambda a, b, _: compare(a, b),
    operator.ne: lambda a, b, _: _NOT[compare(a, b)],
}
