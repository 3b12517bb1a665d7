"""From an fx graph of ATen calls, with PyTorch's fake tensors on its nodes, to nodes of a graph.

Each call is tried in this order: control flow and calls of submodules; the lowering of its operator; a foreign node,
which runs the operator in PyTorch. Sizes are followed as dims, so that arithmetic on them leaves no nodes.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ...ir.analysis.contents import SIGNS_READ
from ...ir.constant import Constant
from ...ir.dims import Dim, Truth
from ...ir.errors import CapgraphError, InternalError, TypeRuleError, UnsupportedError
from ...ir.graph import Graph, Node, Value
from ...ir.ops import native
from ...ir.types import TensorType, compatible
from . import control_flow, foreign
from .call import Call, NoLowering, SourceMemory
from .checks import Checks, is_check, is_number
from .dtypes import dtype_of
from .memory import owners, storage_of
from .numbers import NUMBER_CALLS, number_result
from .ops import LOWERINGS, complex_numbers
from .ops.complex_numbers import PART_TYPES, Pairs, content_pairs
from .ops.strided import written_in_memory
from .origins import origin_of
from .sizes import Sizes, UnknownSizeError
from .tensors import SharedConstants


class FxImporter:
    """Imports the nodes of one fx graph into `graph`. Those of a region share `sizes` and `constants`."""

    def __init__(self, graph: Graph, sizes: Sizes, constants: SharedConstants) -> None:
        self.graph = graph
        self.sizes = sizes
        self.constants = constants
        self.known: dict[Any, Any] = {}
        self.around: dict[Any, Callable[[Dim, bool], Value]] = {}  # the memory around an argument, by placeholder
        self.placed: set[Any] = set()  # placeholders of arguments that begin in memory where their fakes do
        self._constant_values: dict[int, Value] = {}
        self.numbers: dict[str, Value] = {}  # symbols of PyTorch's whose value a node computes
        self.checks = Checks(self)
        self._bits_read: dict[Any, bool] = {}  # by fx graph

    # ---- names

    def constant(self, tensor: Any, name: str | None = None) -> Value | Pairs:
        """The value of a weight or another tensor that the model brings; one for each content."""
        content = self.constants.of(tensor)
        found = self._constant_values.get(id(content))
        if found is None:
            plain = Constant(content_pairs(content.array)) if content.dtype in PART_TYPES else content
            found = self._constant_values[id(content)] = self._constant_node(plain, name)
        return Pairs(found) if content.dtype in PART_TYPES else found

    def _constant_node(self, content: Constant, name: str | None) -> Value:
        return self.graph.append(native("constant"), (), {"value": content}, names=(name,)).output

    def operand(self, given: Any) -> Any:
        """What an argument of an fx node stands for: values, dims, plain data, lists of them."""
        if isinstance(given, torch.fx.Node):
            return self.known[given]
        if isinstance(given, Mapping):
            return {name: self.operand(item) for name, item in given.items()}
        if isinstance(given, list | tuple):
            return [self.operand(item) for item in given]
        if isinstance(given, slice):
            return slice(*(self.operand(item) for item in (given.start, given.stop, given.step)))
        return given

    # ---- nodes

    def import_module(self, module: Any, inputs: Sequence[Any]) -> Any:
        """Imports the graph of `module` with `inputs` for its placeholders, and gives what it returns."""
        given = iter(inputs)
        self.checks.begin()
        unneeded = unneeded_nodes(module.graph)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.known[node] = next(given)
            elif node.op == "output":
                return self.operand(node.args[0])
            elif node not in unneeded:
                self.known[node] = self.import_node(module, node)
        return None

    def import_node(self, module: Any, node: Any) -> Any:
        """What a node of an fx graph, neither placeholder nor output, gives."""
        try:
            return self._import_node(module, node)
        except CapgraphError as error:
            error.located(str(origin_of(node)))
            raise

    def _import_node(self, module: Any, node: Any) -> Any:
        if node.op == "get_attr":
            return self._attribute(module, node.target)
        if node.op == "call_module":
            return FxImporter.import_module(self, _attribute_of(module, node.target), self.operand(node.args))
        if node.op != "call_function":
            raise UnsupportedError(
                f"an fx graph with {node.op} of {node.target} is not one of ATen calls",
                remedy="use from_fx with example inputs, which traces it first",
            )
        if node.target is operator.getitem:
            return self.operand(node.args[0])[node.args[1]]
        rule = control_flow.RULES.get(getattr(node.target, "__name__", ""))
        if rule is not None:
            return rule(self, node, self.operand(node.args), self.operand(node.kwargs))
        if is_check(node):
            return self.checks.add(node)
        if node.target in NUMBER_CALLS or is_number(node.meta.get("val")):
            return number_result(self, node)
        return self._operator(node)

    def _attribute(self, module: Any, target: str) -> Any:
        found = _attribute_of(module, target)
        return self.constant(found, target.replace(".", "_")) if isinstance(found, torch.Tensor) else found

    def _operator(self, node: Any) -> Any:
        args, kwargs = self.operand(node.args), self.operand(node.kwargs)
        return self.operator_result(node, node.target, args, kwargs, _results_of(node.meta.get("val")))

    def operator_result(
        self, node: Any, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[Any]
    ) -> Any:
        """What the operator `target` gives for imported arguments; `results` are PyTorch's fake tensors for it."""
        if str(target) == "auto_functionalized_v2":
            return self._writing_operator(node, args[0], kwargs)
        if not isinstance(target, torch._ops.OpOverload):
            raise UnsupportedError(
                f"the higher-order operator {target} cannot be imported",
                remedy="write it with torch.cond, while_loop, scan or map, or without an operator that takes functions",
            )
        tensors = _tensor_nodes(node, target)
        call = Call(
            self.graph,
            self.sizes,
            str(target),
            results,
            origin_of(node),
            _unread(node),
            {name: each.meta.get("val") for name, each in tensors.items()},
            lambda name: self._memory_of(tensors[name]),
            reads_bits=self._reads_bits(node.graph),
        )
        arguments = bound_arguments(target, args, kwargs)
        is_complex = any(each is not None and each.is_complex() for each in results) or _holds_pairs(arguments)
        table = complex_numbers.RULES if is_complex else LOWERINGS
        lowering = table.get(call.name) or table.get(call.name.rpartition(".")[0])
        mark = self.graph.last
        if lowering is not None:
            try:
                given = lowering(call, *arguments.values())
            except (NoLowering, TypeRuleError, UnknownSizeError) as error:
                self._take_back(mark)
                if isinstance(error, TypeRuleError):
                    foreign.check_dtypes(call, target, arguments, {name: call.fake(name) for name in tensors})
            else:
                return self._checked(call, given)
        given = foreign.import_foreign(self, call, target, _without_pairs(self, call, arguments))
        return self._checked(call, _with_pairs(self, call, given))

    def _reads_bits(self, graph: Any) -> bool:
        if graph not in self._bits_read:
            self._bits_read[graph] = any(map(_reads_signs, graph.nodes))
        if self._bits_read[graph]:
            self.graph.metadata[SIGNS_READ] = "yes"
        return self._bits_read[graph]

    def _memory_of(self, node: Any) -> SourceMemory:
        """What made the memory that the tensor of a node lies in."""
        fake = node.meta["val"]
        owner = owners(node.graph)[storage_of(fake) or 0]
        base, value = owner.meta["val"], self.known.get(owner)
        alike = (fake.dtype, fake.is_conj(), fake.is_neg()) == (base.dtype, base.is_conj(), base.is_neg())
        if not alike or not isinstance(value, Value | Pairs):
            raise UnsupportedError("strides over bits of another dtype", remedy="take them of the tensor itself")
        is_written = owner.target is _SCATTER and _written_first(owner) in self.around
        around = partial(self._scattered, owner) if is_written else self.around.get(owner)
        placed = is_written or owner in self.placed
        return SourceMemory(value.value if isinstance(value, Pairs) else value, base, around, placed)

    def _scattered(self, node: Any, count: Dim, _from_own: bool) -> Value:
        """So many elements, or more, of the memory of an argument, with what as_strided_scatter writes to it."""
        memory = self._memory_of(node.args[0])
        call = Call(self.graph, self.sizes, str(node.target), [node.meta["val"]], origin_of(node))
        _, source, *where = bound_arguments(node.target, self.operand(node.args), self.operand(node.kwargs)).values()
        if isinstance(self.known[node], Pairs):
            source = complex_numbers.pairs_of(call, source, memory.value.tensor.dtype).value
        return written_in_memory(call, memory, source, count, *where)

    def _writing_operator(self, node: Any, target: Any, arguments: Mapping[str, Any]) -> list[Any]:
        """What a custom operator gives that writes to its arguments, and their new content."""
        metas = node.meta["val"]
        bases = metas[len(metas) - len(arguments["_all_bases"]) :]
        if any(name.endswith("_stride") for name in arguments) and not all(base.is_contiguous() for base in bases):
            raise UnsupportedError(
                f"{target} writes to a part of a tensor that is not contiguous", remedy="make it .contiguous() first"
            )
        call = Call(self.graph, self.sizes, str(target), [each for each in metas if each is not None], origin_of(node))
        values = iter(self._checked(call, list(foreign.import_writing(self, call, target, arguments))))
        return [None if each is None else next(values) for each in metas]

    def _take_back(self, mark: Node | None) -> None:
        for node in self.graph.reversed_nodes:
            if node is mark:
                return
            self.graph.erase(node)

    def _checked(self, call: Call, given: Any) -> Any:
        """`given`, once it is found to have the types that PyTorch says. Learns new sizes from it."""
        values = given if isinstance(given, list | tuple) else [given]
        found = list(values)
        for index, (value, expected) in enumerate(zip(values, call.results, strict=len(call.results) > 1)):
            if isinstance(value, Value | Pairs) and expected is not None:
                self._check_type(call, value, expected)
                found[index] = self._with_guarded_ones(call, value, expected)
        return found if isinstance(given, list | tuple) else found[0]

    def _with_guarded_ones(self, call: Call, value: Value | Pairs, expected: Any) -> Value | Pairs:
        """`value` with the sizes as 1 that PyTorch has found to be 1 in all calls, where its shape does not say so."""
        if not isinstance(value, Value) or all(isinstance(size, int) for size in expected.shape):
            return value
        try:
            wanted = self.sizes.dims(expected.shape)
        except UnknownSizeError:
            return value
        are_ones = [new == 1 and old != 1 for old, new in zip(value.shape, wanted, strict=True)]
        if not any(are_ones):
            return value
        shape = [1 if is_one else old for is_one, old in zip(are_ones, value.shape, strict=True)]
        return call.reshape(value, shape)

    def _check_type(self, call: Call, given: Value | Pairs, expected: Any) -> None:
        value = given.value if isinstance(given, Pairs) else given
        if isinstance(given, Pairs):
            expected = torch.view_as_real(expected.resolve_conj())
        ty = value.tensor
        if len(expected.shape) == ty.rank:
            self.sizes.bind_result(expected.shape, value)
        try:
            wanted = TensorType(dtype_of(expected.dtype), self.sizes.dims(expected.shape))
        except UnknownSizeError:
            return  # computed from the content of tensors: checked when it runs
        if compatible(ty, wanted) is Truth.NO:
            raise InternalError(
                f"{call.name} was imported as {ty}, but PyTorch gives {wanted}",
                remedy="please report it; until then, keep the operator out of the model",
            )


_SIGN_READERS = frozenset(
    (torch.ops.aten.signbit.default, torch.ops.aten.copysign.Tensor, torch.ops.aten.atan2.default)
)


def _reads_signs(node: Any) -> bool:
    """Whether a node tells -0.0 from 0."""
    if node.target is torch.ops.aten.view.dtype:
        return bool(node.args[0].meta["val"].dtype.is_floating_point or node.args[0].meta["val"].is_complex())
    return node.target in _SIGN_READERS


def _holds_pairs(given: Any) -> bool:
    if isinstance(given, Mapping):
        return any(map(_holds_pairs, given.values()))
    return any(map(_holds_pairs, given)) if isinstance(given, list | tuple) else isinstance(given, Pairs)


def _without_pairs(importer: FxImporter, call: Call, given: Any) -> Any:
    """Arguments of a foreign operator, complex tensors as PyTorch has them."""
    if isinstance(given, Mapping):
        return {name: _without_pairs(importer, call, item) for name, item in given.items()}
    if isinstance(given, list | tuple):
        return [_without_pairs(importer, call, item) for item in given]
    return foreign.complex_value(importer.graph, given.value) if isinstance(given, Pairs) else given


def _with_pairs(importer: FxImporter, call: Call, given: Any) -> Any:
    """Results of a foreign operator, complex tensors as pairs."""
    if isinstance(given, list | tuple):
        return [_with_pairs(importer, call, item) for item in given]
    if isinstance(given, Value) and given.tensor.dtype in PART_TYPES:
        return Pairs(foreign.real_value(importer.graph, given))
    return given


def unneeded_nodes(graph: Any) -> frozenset[Any]:
    """The nodes of a functional graph that nothing reads, and numbers that only checks read, which compute them."""
    unread: set[Any] = set()
    of_checks: set[Any] = set()
    for node in reversed(graph.nodes):
        if node.op in ("placeholder", "output") or str(node.target) == "aten.copy_.default" or is_check(node):
            continue
        readers = [user for user in node.users if user not in unread]
        if not readers:
            unread.add(node)
        elif is_number(node.meta.get("val")) and all(user in of_checks or is_check(user) for user in readers):
            of_checks.add(node)
    return frozenset(unread | of_checks)


def _written_first(node: Any) -> Any:
    """What the first of some as_strided_scatter, one after the other, writes to; another node itself."""
    while node.target is _SCATTER:
        node = node.args[0]
    return node


_SCATTER = torch.ops.aten.as_strided_scatter.default


def bound_arguments(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an ATen operator by name, in the order of its schema, defaults filled in."""
    bound: dict[str, Any] = {}
    for position, argument in enumerate(target._schema.arguments):
        if position < len(args):
            bound[argument.name] = args[position]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        else:
            bound[argument.name] = argument.default_value if argument.has_default_value() else None
    return bound


def _tensor_nodes(node: Any, target: Any) -> dict[str, Any]:
    """The nodes of an operator's arguments that are tensors."""
    if node.target is not target:
        return {}
    given = bound_arguments(target, node.args, node.kwargs)
    return {name: each for name, each in given.items() if isinstance(each, torch.fx.Node)}


def _unread(node: Any) -> frozenset[int]:
    """The results of an operator with several that nothing reads."""
    if not isinstance(node.meta.get("val"), list | tuple):
        return frozenset()
    read = {user.args[1] for user in node.users if user.target is operator.getitem}
    return frozenset(range(len(node.meta["val"]))) - read


def _attribute_of(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part)
    return module


def _results_of(meta: Any) -> list[Any]:
    """The fake tensors that a node gives; None for a result that is none."""
    given = meta if isinstance(meta, list | tuple) else [meta]
    return [each if isinstance(each, torch.Tensor) else None for each in given]
