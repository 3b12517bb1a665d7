"""Exported programs made functional without tracing them again, where they write to whole tensors only.

`ExportedProgram.run_decompositions` traces a program again to take operators apart and to make writes functional: of
the export of a Llama of 16 layers that is two thirds of the time. Most programs consist of operators that have a
lowering as they are, and write to buffers whole: `cache.index_copy_(...)`. Here such a write becomes its functional
operator in a copy of the graph, and what reads the buffer afterwards reads the result.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import graph_signature

from .decompositions import updates_statistics
from .lean_tracing import code_when_called
from .memory import storage_of
from .ops import LOWERINGS

_Input, _Output = graph_signature.InputKind, graph_signature.OutputKind

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float)

_WRITTEN_AS = {_Input.BUFFER: _Output.BUFFER_MUTATION, _Input.USER_INPUT: _Output.USER_INPUT_MUTATION}


@dataclass(frozen=True)
class FunctionalProgram:
    """What the importer reads of an exported program, named as PyTorch's own class names it."""

    graph_module: Any
    graph_signature: Any
    call_spec: Any
    module_call_graph: Any
    state_dict: Mapping[str, Any]
    constants: Mapping[str, Any]
    range_constraints: Mapping[Any, Any]

    @property
    def graph(self) -> Any:
        """The graph of its module."""
        return self.graph_module.graph


def functional(program: Any) -> FunctionalProgram | None:
    """A functional program of the same operators; None where PyTorch has to take some apart, or to follow views."""
    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    graph.output(graph.graph_copy(program.graph, copies))
    for node, other in copies.items():
        other.meta = dict(node.meta)
        other.name = node.name  # also one that Python has a meaning for, such as `input`
    try:
        specs = _Functional(graph, program).run()
    except _NotSimpleError:
        return None
    signature = copy(program.graph_signature)
    signature.output_specs = specs
    with code_when_called():
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return FunctionalProgram(
        module,
        signature,
        program.call_spec,
        program.module_call_graph,
        program.state_dict,
        program.constants,
        program.range_constraints,
    )


class _NotSimpleError(Exception):
    """The program has to be traced again."""


class _Functional:
    """Goes through a graph once.

    A tensor is known by its first node, its root. `_latest` has the node with its present content, where it was written
    to. Views know how many writes there had been when they were made: one that is read after another write is stale.
    """

    def __init__(self, graph: Any, program: Any) -> None:
        self._graph = graph
        self._program = program
        self._roots: dict[Any, Any] = {}
        self._latest: dict[Any, Any] = {}
        self._writes: dict[Any, int] = {}
        self._made_at: dict[Any, int] = {}

    def run(self) -> list[Any]:
        """Rewrites the graph, and gives the specs of its outputs."""
        for node in list(self._graph.nodes):
            if node.op == "output":
                return self._outputs(node)
            if node.op == "call_function":
                self._take(node)
            elif node.op != "placeholder":
                raise _NotSimpleError
        raise _NotSimpleError

    def _take(self, node: Any) -> None:
        is_operator = isinstance(node.target, torch._ops.OpOverload)
        writes = is_operator and node.target._schema.is_mutable
        if not node.users and not writes:
            return  # a check, which is not imported
        if not (writes or node.target is operator.getitem or _is_known(node)):
            raise _NotSimpleError
        node.args = self._now(node.args)
        node.kwargs = self._now(node.kwargs)
        if writes:
            self._write(node)
            return
        base = next(_bases_of(node), None)
        if base is not None and _is_itself(node, base):
            node.replace_all_uses_with(base)
            self._graph.erase_node(node)
        elif base is not None:
            self._roots[node] = root = self._roots.get(base, base)
            self._made_at[node] = self._writes.get(root, 0)

    def _now(self, given: Any) -> Any:
        return torch.fx.node.map_arg(given, self._present)

    def _present(self, node: Any) -> Any:
        """The node to be read for one that was read where writes were in place."""
        root = self._roots.get(node, node)
        if node not in self._made_at:
            return self._latest.get(root, node)
        if self._made_at[node] != self._writes.get(root, 0):
            raise _NotSimpleError
        return node

    def _write(self, node: Any) -> None:
        """Puts the functional operator in the stead of one that writes to its first argument, a whole tensor."""
        target, written = _functional_operator(node), node.args[0]
        if target is None or written in self._made_at or not _keeps_dtype(node):
            raise _NotSimpleError
        root = self._roots.get(written, written)
        with self._graph.inserting_before(node):
            made = self._graph.call_function(target, node.args, node.kwargs)
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        self._graph.erase_node(node)
        self._roots[made] = root
        self._latest[root] = made
        self._writes[root] = self._writes.get(root, 0) + 1

    # ---- outputs

    def _outputs(self, node: Any) -> list[Any]:
        """Adds the new content of the inputs and buffers that were written to."""
        signature = self._program.graph_signature
        given = self._now(node.args[0])
        inputs = dict(
            zip((each for each in self._graph.nodes if each.op == "placeholder"), signature.input_specs, strict=True)
        )
        written = [root for root in self._latest if root in inputs]
        if written and len(signature.output_specs) != len(signature.user_outputs):
            raise _NotSimpleError
        self._check_own_memory([inputs[root] for root in written])
        specs = [self._spec_of(inputs[root], self._latest[root]) for root in written]
        node.args = ((*(self._latest[root] for root in written), *given),)
        return [*specs, *signature.output_specs]

    def _spec_of(self, spec: Any, content: Any) -> Any:
        kind = _WRITTEN_AS.get(spec.kind)
        if kind is None:
            raise _NotSimpleError
        target = spec.target if spec.kind is _Input.BUFFER else spec.arg.name
        return graph_signature.OutputSpec(kind, graph_signature.TensorArgument(name=content.name), target)

    def _check_own_memory(self, written: Sequence[Any]) -> None:
        """Refuses writes to memory that several buffers or parameters share."""
        if not written:
            return
        tensors = {**self._program.state_dict, **self._program.constants}
        held: dict[int, int] = {}
        for tensor in tensors.values():
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                where = tensor.untyped_storage().data_ptr()
                held[where] = held.get(where, 0) + 1
        for spec in written:
            tensor = tensors.get(spec.target) if spec.kind is _Input.BUFFER else None
            if tensor is not None and held.get(tensor.untyped_storage().data_ptr(), 0) > 1:
                raise _NotSimpleError


def _is_known(node: Any) -> bool:
    """Whether an operator has a lowering as it is, and gives real tensors; numbers are followed by themselves."""
    if isinstance(node.meta.get("val"), _NUMBERS):
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = str(node.target)
    if name == "aten.as_strided.default" or updates_statistics(node):  # it reads around its operand, or writes
        return False
    has_lowering = name in LOWERINGS or name.rpartition(".")[0] in LOWERINGS
    return has_lowering and all(isinstance(each, torch.Tensor) and not each.is_complex() for each in _results(node))


def _results(node: Any) -> list[Any]:
    value = node.meta.get("val")
    return list(value) if isinstance(value, list | tuple) else [value]


def _bases_of(node: Any) -> Iterator[Any]:
    """The operands that a result may be a view of: those that the schema says, and those in the same memory."""
    if node.target is operator.getitem:
        yield node.args[0]
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    schema = node.target._schema
    if any(each.alias_info is not None for each in schema.returns):
        for argument, given in zip(schema.arguments, node.args, strict=False):
            if argument.alias_info is not None and isinstance(given, torch.fx.Node):
                yield given
    memories = {storage_of(each) for each in _results(node)} - {None}
    for operand in node.all_input_nodes:
        if not memories.isdisjoint(map(storage_of, _results(operand))):
            yield operand


def _is_itself(node: Any, base: Any) -> bool:
    """Whether a node gives its operand as it is, as `.to` its own device does; it may be written to as that."""
    found, given = node.meta.get("val"), base.meta.get("val")
    if not isinstance(found, torch.Tensor) or not isinstance(given, torch.Tensor):
        return False
    if any(user.op == "output" for user in node.users) or storage_of(found) is None:
        return False
    if not all(type(number) is int for each in (found, given) for number in _numbers(each)):
        return False  # comparing sizes that vary would fix them
    places = [(storage_of(each), each.dtype, *_numbers(each)) for each in (found, given)]
    return places[0] == places[1]


def _numbers(tensor: Any) -> tuple[Any, ...]:
    return (*tensor.shape, *tensor.stride(), tensor.storage_offset())


def _functional_operator(node: Any) -> Any:
    """The operator that gives what `node` writes to its first argument; None where there is none with a lowering."""
    schema = node.target._schema
    namespace, _, name = schema.name.partition("::")
    written = [each for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    if namespace != "aten" or not name.endswith("_") or written != schema.arguments[:1]:
        return None
    packet = getattr(torch.ops.aten, name[:-1], None)
    found = getattr(packet, node.target._overloadname, None) if packet is not None else None
    if found is None or (str(found) not in LOWERINGS and str(found).rpartition(".")[0] not in LOWERINGS):
        return None
    return None if found._schema.is_mutable else found


def _keeps_dtype(node: Any) -> bool:
    """Whether the functional operator gives the dtype of the tensor that is written to: nothing is promoted."""
    own = node.args[0].meta["val"].dtype
    values = [each for operand in node.all_input_nodes for each in _results(operand) if isinstance(each, torch.Tensor)]
    return all(each.dtype is own or not (each.is_floating_point() or each.is_complex()) for each in values)
