"""Whether two graphs are the same but for names that mean nothing.

The same are graphs whose nodes, in order, apply the same ops to the same operands and attributes and give the same
types. Names of values, origins, metadata and the name of a graph do not count; names of inputs and outputs do, for
callers use them (those of a region do not). Symbols that the inputs bind keep their names; the others, which running
makes, may be called otherwise in the other graph, one for one, and so may a region's own.
"""

from itertools import zip_longest

from .attrs import is_tuple
from .dims import Dim, SymDim, bind, symbol
from .errors import InvalidGraphError
from .graph import Graph, Node, Value
from .text.printer import print_node
from .types import OptionalType, SequenceType, TensorType, Type, type_symbols


def equal(a: Graph, b: Graph) -> bool:
    """Whether `a` and `b` are the same in the sense of this module."""
    return first_difference(a, b) is None


def assert_equal(a: Graph, b: Graph) -> None:
    """Raises `InvalidGraphError` naming the first difference."""
    difference = first_difference(a, b)
    if difference is not None:
        raise InvalidGraphError(f"the graphs differ: {difference}")


def first_difference(a: Graph, b: Graph) -> str | None:
    """The first difference in words, with both sides; None when there is none."""
    inputs = (*a.inputs, *b.inputs)
    fixed = frozenset[str]().union(*(type_symbols(value.type) for value in inputs))
    return _signature_difference(a, b) or _body_difference(a, b, _Renaming(fixed, {}, set()))


def equal_bodies(a: Graph, b: Graph) -> bool:
    """Whether two regions of one node do the same; what their inputs and outputs are called does not count."""
    fixed = frozenset[str]().union(*(type_symbols(value.type) for value in (*a.inputs, *b.inputs)))
    return _body_difference(a, b, _Renaming(fixed, {}, set())) is None


def _signature_difference(a: Graph, b: Graph) -> str | None:
    left, right = [value.name for value in a.inputs], [value.name for value in b.inputs]
    if left != right:
        return f"the inputs are called {left} and {right}"
    for name in left:
        if a.defaults.get(name) != b.defaults.get(name):
            return f"the defaults of input %{name} differ"
    if a.output_names != b.output_names:
        return f"the outputs are called {list(a.output_names)} and {list(b.output_names)}"
    return None


class _Renaming:
    """What the symbols of one graph are called in the other. Those in `fixed` keep their names."""

    def __init__(self, fixed: frozenset[str], forward: dict[str, Dim], taken: set[str]) -> None:
        self._fixed = fixed
        self._forward = forward
        self._taken = taken

    def inside(self) -> "_Renaming":
        """The renaming to start a region with: what is found there does not count outside."""
        return _Renaming(self._fixed, dict(self._forward), set(self._taken))

    def same_type(self, a: Type, b: Type) -> bool:
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            return a.dtype is b.dtype and self._same_shape(a.shape, b.shape)
        if isinstance(a, SequenceType) and isinstance(b, SequenceType):
            return self.same_type(a.element, b.element)
        if isinstance(a, OptionalType) and isinstance(b, OptionalType):
            return self.same_type(a.element, b.element)
        return a == b

    def same_dim(self, a: Dim, b: Dim) -> bool:
        """Whether `a` reads as `b` in the other graph. A symbol that is new on both sides gets its name here."""
        if isinstance(a, SymDim) and isinstance(b, SymDim):
            self._match_new(a, b)
            return bind(a, self._forward) == b and not (a.symbols - self._fixed - self._forward.keys())
        return isinstance(a, int) and isinstance(b, int) and a == b

    def _same_shape(self, a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> bool:
        if a is None or b is None:
            return a is b
        return len(a) == len(b) and all(map(self.same_dim, a, b))

    def _match_new(self, a: SymDim, b: SymDim) -> None:
        new_here = a.symbols - self._fixed - self._forward.keys()
        new_there = b.symbols - self._fixed - self._taken
        if new_here != new_there and not len(new_here) == len(new_there) == 1:
            return  # several at once, and called otherwise: which is which cannot be told
        for here, there in zip(sorted(new_here), sorted(new_there), strict=True):
            self._forward[here] = symbol(there)
            self._taken.add(there)


def _body_difference(a: Graph, b: Graph, renaming: _Renaming) -> str | None:
    """The first difference in anything but the names of inputs and outputs."""
    if len(a.inputs) != len(b.inputs):
        return f"{a.name} has {len(a.inputs)} inputs, {b.name} {len(b.inputs)}"
    for left, right in zip(a.inputs, b.inputs, strict=True):
        if not renaming.same_type(left.type, right.type):
            return f"input {left!r} is {right!r}"
    same = dict(zip(a.inputs, b.inputs, strict=True))
    for one, other in zip_longest(a.nodes, b.nodes):
        if one is None or other is None:
            longer, node = (a, one) if other is None else (b, other)
            return f"{longer.name} goes on with\n    {print_node(node)}" if node is not None else None
        problem = _node_difference(one, other, same, renaming)
        if problem:
            return f"{problem}\n    {print_node(one)}\n    {print_node(other)}"
        same.update(zip(one.outputs, other.outputs, strict=True))
    return _return_difference(a, b, same)


def _return_difference(a: Graph, b: Graph, same: dict[Value, Value]) -> str | None:
    if len(a.outputs) != len(b.outputs):
        return f"{a.name} has {len(a.outputs)} outputs, {b.name} {len(b.outputs)}"
    for index, (left, right) in enumerate(zip(a.outputs, b.outputs, strict=True)):
        if same[left] is not right:
            return f"output {index} is %{left.name}, and not the same as %{right.name}"
    if sorted(a.states) != sorted(b.states):
        return f"the states are {sorted(map(tuple, a.states))} and {sorted(map(tuple, b.states))}"
    return None


def _node_difference(a: Node, b: Node, same: dict[Value, Value], renaming: _Renaming) -> str | None:
    if a.op is not b.op:
        return f"one node is {a.op.name}, the other {b.op.name}"
    if len(a.inputs) != len(b.inputs):
        return f"one node has {len(a.inputs)} operands, the other {len(b.inputs)}"
    for index, (left, right) in enumerate(zip(a.inputs, b.inputs, strict=True)):
        if (None if left is None else same[left]) is not right:
            return f"operand {index} differs"
    problem = _attrs_difference(a, b, renaming)
    if problem:
        return problem
    if len(a.outputs) != len(b.outputs):
        return f"one node has {len(a.outputs)} results, the other {len(b.outputs)}"
    for index, (left, right) in enumerate(zip(a.outputs, b.outputs, strict=True)):
        if not renaming.same_type(left.type, right.type):
            return f"result {index} is {left.type} and {right.type}"
    return None


def _attrs_difference(a: Node, b: Node, renaming: _Renaming) -> str | None:
    if a.attrs.keys() != b.attrs.keys():
        return f"the attributes are {sorted(a.attrs)} and {sorted(b.attrs)}"
    for name, left in a.attrs.items():
        right = b.attrs[name]
        if isinstance(left, Graph) and isinstance(right, Graph):
            problem = _body_difference(left, right, renaming.inside())
            if problem:
                return f"in region {name}, {problem}"
        elif not _same_value(left, right, renaming):
            return f"attribute {name} differs"
    return None


def _same_value(a: object, b: object, renaming: _Renaming) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, SymDim) and isinstance(b, SymDim):
        return renaming.same_dim(a, b)
    if isinstance(a, _TYPES) and isinstance(b, _TYPES):
        return renaming.same_type(a, b)
    if is_tuple(a) and is_tuple(b):
        return len(a) == len(b) and all(_same_value(left, right, renaming) for left, right in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return a.hex() == b.hex()  # tells 0.0 from -0.0 and finds NaN equal to itself
    return a == b


_TYPES = (TensorType, SequenceType, OptionalType)
