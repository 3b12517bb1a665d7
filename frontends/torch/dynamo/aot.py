"""From what torch.compile hands to a backend: a graph of ATen calls by AOT autograd, its weights known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import SyntheticBaseAOTInput

from ....ir.dims import Dim, SymDim, symbols
from ....ir.errors import UnsupportedError
from ....ir.graph import Graph, Value
from ....ir.types import DType, TensorType, type_symbols
from ....ir.verify import verify
from ..call import Call
from ..dtypes import dtype_of
from ..exported import RESULTS, add_input, add_typed_input, output_value, parts_of
from ..guards import environment_of, guards_in
from ..importer import FxImporter, unneeded_nodes
from ..memory import ResultView, dense_order
from ..model import TorchModel, gpu_of_trace
from ..ops.complex_numbers import Pairs, pairs_of
from ..origins import origin_of
from ..sizes import Sizes
from ..tensors import SharedConstants
from .result_views import ResultViews, Tellers


@dataclass
class AotModel:
    """A graph, and how its inputs and outputs stand for the arguments and results of a compiled function.

    `model.inputs` has the name of each argument, None for one that is not asked for: a weight, or a size that other
    arguments tell. `written` are the arguments that the function writes to, by the name of the output that is their new
    content; `model.states` are those among them that are always the same tensor. `memories` are inputs that are
    elements of the memory of an argument: its position, how many they are, and whether from its own first or the first
    of all. `bases` are arguments that AOT autograd makes of the memory of several, by their position, and how much of
    it tracing knows: a caller may have more. `orders` has the orders of axes in which arguments are row-major, of those
    that are not as they come: their inputs are in that order. `views` are the results, by position, that lie in the
    memory of an argument or of an output in another way than that does; `spread` are outputs whose memory has gaps, and
    how they lie there; `contents` are outputs that begin in their memory where an argument, by its position, does.
    `same` are the results, by position, that are one tensor with an earlier result: what changes the shape of one
    changes the other. `sizes` says for each symbol which argument's shape tells it, or which output's, and at which
    axis (None: the argument is a number, and tells it itself).
    """

    model: TorchModel
    written: dict[str, int] = field(default_factory=dict)
    memories: dict[str, tuple[int, Dim, bool]] = field(default_factory=dict)
    bases: dict[int, Dim] = field(default_factory=dict)
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    views: dict[int, ResultView] = field(default_factory=dict)
    spread: dict[str, ResultView] = field(default_factory=dict)
    contents: dict[str, int] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    sizes: Tellers = field(default_factory=dict)


def from_aot(module: Any, fixed: Mapping[int, Any]) -> AotModel:
    """Imports a functional graph of ATen calls, whose last nodes may copy to its inputs.

    `fixed` are arguments, by their position, that are the same tensor in every call: sizes that their shapes tell are
    numbers. Raises `UnsupportedError` for what cannot be imported.
    """
    return _AotImport(module, fixed).run()


class _AotImport:
    def __init__(self, module: Any, fixed: Mapping[int, Any]) -> None:
        self.module = module
        self.fixed = fixed
        self.graph = Graph("compiled")
        environment = environment_of(module)
        self.sizes = Sizes(environment=environment, guards=guards_in(environment))
        self.importer = FxImporter(self.graph, self.sizes, SharedConstants())
        self.result = AotModel(TorchModel(self.graph))
        self.placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.written = self._written()

    def _written(self) -> dict[Any, Any]:
        """Placeholders that the graph copies to, and the node that is copied there last."""
        copies = [node for node in self.module.graph.nodes if str(node.target) == "aten.copy_.default"]
        return {node.args[0]: node.args[1] for node in copies}

    def run(self) -> AotModel:
        for position, tensor in self.fixed.items():
            self.sizes.fix(self.placeholders[position].meta["val"].shape, tensor.shape)
        for node in self.placeholders:
            value = node.meta.get("val")
            self.sizes.bind_input(value.shape if isinstance(value, torch.Tensor) else [value])
        for position, node in enumerate(self.placeholders):
            self.importer.known[node] = self._argument(position, node)
            self._learn_sizes(position, node.meta.get("val"))
        self._add_sizes()
        results: Sequence[Any] = ()
        unneeded = unneeded_nodes(self.module.graph)
        for node in self.module.graph.nodes:
            if node.op == "output":
                results = self.importer.operand(node.args[0])
            elif str(node.target) == "aten.copy_.default":
                self.importer.known[node] = self.importer.known[node.args[1]]
            elif str(node.target).startswith("aten.set_."):
                raise UnsupportedError(
                    "the function gives an argument other memory (x.data = y, x.set_(y))",
                    where=str(origin_of(node)),
                    remedy="copy into it instead: x.copy_(y)",
                )
            elif node.op != "placeholder" and node not in unneeded:
                self.importer.known[node] = self.importer.import_node(self.module, node)
        self._set_outputs(results)
        verify(self.graph)
        return self.result

    def _argument(self, position: int, node: Any) -> Any:
        value = node.meta.get("val")
        model = self.result.model
        model.fixed.append(None)
        if _is_token(node):
            model.inputs.append(None)
            return None
        if isinstance(value, torch.SymInt) and value.node.is_nested_int():
            raise UnsupportedError(
                "a nested tensor cannot be imported", remedy="pad it outside: .to_padded_tensor(0.0), with a mask"
            )
        if not isinstance(value, torch.Tensor):
            model.inputs.append(None)
            return self.sizes.dim(value) if isinstance(value, int | torch.SymInt) else value
        tensor = self.fixed.get(position)
        if tensor is not None and node not in self.written and not tensor.is_inference():
            model.inputs.append(None)
            return self.importer.constant(tensor, node.name)
        model.inputs.append(node.name)
        self.importer.around[node] = partial(self._around, position, value)
        if node in self.written:
            self.importer.placed.add(node)
            if tensor is not None:
                model.states[node.name] = tensor
        if isinstance(node.meta.get("desc"), SyntheticBaseAOTInput):
            self.result.bases[position] = self.sizes.dim(value.shape[0])
        model.note_input(node.name, value)
        order = None if node in self.written or value.is_complex() else dense_order(value, self.sizes)
        if order is not None and order != tuple(range(len(order))):
            return self._turned(position, node.name, value, order)
        given = add_input(self.importer, node.name, value)
        if isinstance(given, Pairs):
            model.pairs.add(node.name)
        return given

    def _turned(self, position: int, name: str, fake: Any, order: Sequence[int]) -> Value:
        """An argument whose input has its axes in the order of memory, so that nothing has to be copied for it."""
        self.result.orders[position] = tuple(order)
        given = parts_of(add_input(self.importer, name, fake.permute(order)))
        perm = sorted(range(len(order)), key=order.__getitem__)
        return Call(self.graph, self.sizes, name, (), None).transpose(given, perm)

    def _around(self, position: int, fake: Any, count: Dim, from_own: bool) -> Value:
        """So many elements of the memory of an argument, from its first or from the first of all."""
        name = self.graph.unused_name(f"{self.placeholders[position].name}_memory")
        self.result.memories[name] = position, count, from_own
        given = add_typed_input(self.importer, name, dtype_of(fake.dtype), (count,))
        if isinstance(given, Pairs):
            self.result.model.pairs.add(name)
        return parts_of(given)

    def _learn_sizes(self, position: int, value: Any) -> None:
        told = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
        for axis, size in told:
            dim = self.sizes.dim(size) if isinstance(size, int | torch.SymInt) else None
            if isinstance(dim, SymDim) and str(dim) in dim.symbols:
                self.result.sizes.setdefault(str(dim), (position, axis))

    def _add_sizes(self) -> None:
        """Inputs for the sizes that no tensor's shape tells: of such an input nothing but its length counts."""
        told = frozenset[str]().union(*(type_symbols(value.type) for value in self.graph.inputs))
        for position, node in enumerate(self.placeholders):
            size = self.importer.known[node]
            if isinstance(size, SymDim) and not symbols(size) <= told:
                told |= symbols(size)
                self.graph.add_input(node.name, TensorType(DType.BOOL, (size,)))
                self.result.model.inputs[position] = node.name

    def _set_outputs(self, results: Sequence[Any]) -> None:
        model = self.result.model
        call = Call(self.graph, self.sizes, "output", (), None)
        outputs: dict[str, Value] = {}
        gpu = gpu_of_trace(self.module.graph)
        nodes = self._output_nodes()
        shared = ResultViews(self.importer, nodes, self.placeholders, self.result.sizes, self.written)
        views = self.result.views = shared.find()
        self.result.spread, self.result.contents = shared.spread, shared.contents
        self.result.same = _same(nodes)
        for name, (node, given) in shared.outputs.items():
            model.note_output(name, node, gpu)
            outputs[name] = output_value(call, model, name, given)
        for index, (node, result) in enumerate(zip(nodes, results, strict=True)):
            if index in views or not isinstance(result, RESULTS):
                model.outputs.append(None)
                model.plain.append(None if index in views else result)
                continue
            name = f"out{index}"
            model.note_output(name, node, gpu)
            outputs[name] = output_value(call, model, name, result)
            if isinstance(node.meta["val"], torch.SymInt | torch.SymFloat | torch.SymBool):
                model.numbers.add(name)
            model.outputs.append(name)
            model.plain.append(None)
        pairs = []
        for target, source in self.written.items():
            pairs.append((parts_of(self.importer.known[target]).index, len(outputs)))
            name = f"{target.name}_next"
            if isinstance(self.importer.known[target], Pairs):
                model.pairs.add(name)
            outputs[name] = self._content(call, target, source)
            model.state_outputs[target.name] = name
            self.result.written[name] = self.placeholders.index(target)
        model.checks = self.importer.checks.add_output(call, outputs)
        self.graph.set_outputs(list(outputs.values()), list(outputs))
        self.graph.set_states(pairs)

    def _output_nodes(self) -> Sequence[Any]:
        """What the graph returns: nodes, and plain values."""
        output = next(node for node in self.module.graph.nodes if node.op == "output")
        return tuple(output.args[0])

    def _content(self, call: Call, target: Any, source: Any) -> Value:
        """What is copied to an input, in its type."""
        held = parts_of(self.importer.known[target])
        content = self.importer.operand(source)
        if isinstance(self.importer.known[target], Pairs):
            content = pairs_of(call, content, held.tensor.dtype).value
        return call.expand(call.value(content, held.tensor.dtype), held.shape)


def _same(nodes: Sequence[Any]) -> dict[int, int]:
    """The outputs, by position, that are a tensor that was an output before, and where it was first."""
    firsts: dict[Any, int] = {}
    for index, node in enumerate(nodes):
        if isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor):
            firsts.setdefault(node, index)
    repeated = [index for index, node in enumerate(nodes) if isinstance(node, torch.fx.Node)]
    return {index: firsts[nodes[index]] for index in repeated if firsts.get(nodes[index], index) != index}


def _is_token(node: Any) -> bool:
    """Whether an argument only keeps operators with effects in order."""
    return bool(node.users) and all(getattr(user.target, "__name__", "") == "with_effects" for user in node.users)
