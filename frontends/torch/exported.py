"""From modules and exported programs to graphs, through torch.export."""

import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import graph_signature

from ...ir.analysis import all_nodes
from ...ir.dims import Dim, SymDim
from ...ir.errors import CapgraphError, UnsupportedError
from ...ir.graph import Graph, Value
from ...ir.types import DType, TensorType
from ...ir.verify import verify
from .call import Call
from .checks import Checks
from .decompositions import decompositions, states_of_lstms
from .dtypes import dtype_of
from .dynamic_shapes import by_signature, stated_least, symbol_names, with_dims
from .functional import functional
from .guards import environment_of, guards_in, guards_of
from .importer import FxImporter
from .lean_tracing import code_when_called, matmuls_by_shape, short_notes
from .model import TorchModel, gpu_of_trace
from .ops.complex_numbers import PART_TYPES, Pairs
from .refusals import refused
from .sizes import Sizes
from .tensors import SharedConstants, require_dense

_Input, _Output = graph_signature.InputKind, graph_signature.OutputKind
_NUMBERS = (graph_signature.SymIntArgument, graph_signature.SymFloatArgument, graph_signature.SymBoolArgument)


def from_torch(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> TorchModel:
    """Imports a module as torch.export sees it on example inputs.

    `dynamic_shapes` is that of torch.export, in which a name may stand for a `Dim` of that name. Raises
    `UnsupportedError` where torch.export refuses the module, with PyTorch's error as cause.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(
            f"{type(module).__name__} is TorchScript, which torch.export does not take",
            remedy="pass the module that it was made from",
        )
    signature = inspect.signature(module.forward)
    dynamic_shapes = by_signature(signature, len(args), dynamic_shapes)
    dims = with_dims(dynamic_shapes)
    try:
        with torch.no_grad(), quiet(), code_when_called(), matmuls_by_shape(), _gradients_off_once():
            given, named = _each_its_own(args, kwargs or {})
            program = torch.export.export(module, given, named, dynamic_shapes=dims, strict=False)
    except CapgraphError:
        raise
    except Exception as error:  # torch.export raises errors of many kinds, RuntimeError not a base of all
        raise refused(type(module).__name__, error) from error
    stated = signature, dynamic_shapes
    known = symbol_names(program, *stated), stated_least(program, *stated), type(module).__name__
    model = _without_tracing(program, *known)
    if model is None:
        names, least, name = known
        model = from_exported(program, names=names, least=least, name=name)
    model.signature = signature
    return model


def gpu_of(model: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> str:
    """The GPU that a tensor of a module or exported program, or of its examples, lies on; "" where none does."""
    given = (args, kwargs, getattr(model, "example_inputs", None))
    leaves = (*_held(model), *torch.utils._pytree.tree_leaves(given))
    return next((str(each.device) for each in leaves if isinstance(each, torch.Tensor) and each.is_cuda), "")


def _held(model: Any) -> Iterable[Any]:
    """The weights of a module or exported program."""
    held: Mapping[str, Any] = {}
    if isinstance(model, torch.export.ExportedProgram):
        held = model.state_dict
    elif isinstance(model, torch.nn.Module):
        held = model.state_dict()
    return held.values()


def _each_its_own(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, a tensor that comes a second time copied: PyTorch would take both for one in every call."""
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.clone()

    leaves, structure = torch.utils._pytree.tree_flatten((tuple(args), dict(kwargs)))
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            require_dense(leaf, f"example input {place}")
    owned = [own(leaf) for leaf in leaves]
    if all(leaf is other for leaf, other in zip(leaves, owned, strict=True)):
        return tuple(args), dict(kwargs)
    return torch.utils._pytree.tree_unflatten(owned, structure)  # type: ignore[no-any-return]


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps to itself what PyTorch's tracing warns and notes for its own developers, and types LSTMs as they run."""
    with warnings.catch_warnings(), states_of_lstms(), short_notes():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings(
            "ignore", r"The tensor attributes? self\.([\w.]+\.)?_flat_weights"
        )  # of its own recurrent layers
        yield


@contextmanager
def _gradients_off_once() -> Iterator[None]:
    """Within it `torch.no_grad()` does nothing where gradients are off already.

    torch.export would note it, and split the graph there to put it together again: rotary embeddings do it in each
    model of transformers.
    """
    kept = torch.no_grad.__enter__, torch.no_grad.__exit__

    def enter(self: Any) -> None:
        self.prev = torch.is_grad_enabled()
        if self.prev:
            torch.set_grad_enabled(False)

    def leave(self: Any, *_error: Any) -> None:
        if self.prev:
            torch.set_grad_enabled(True)

    torch.no_grad.__enter__, torch.no_grad.__exit__ = enter, leave
    try:
        yield
    finally:
        torch.no_grad.__enter__, torch.no_grad.__exit__ = kept


# ---- exported programs


def from_exported(
    program: Any,
    *,
    names: Mapping[str, str] | None = None,
    least: Mapping[str, int] | None = None,
    name: str = "exported",
) -> TorchModel:
    """Imports an `ExportedProgram` as a graph called `name`.

    `names` renames its symbolic sizes; `least` gives, by PyTorch's names, those whose minimum the user has stated.
    Weights become constants over the same memory. Buffers, and inputs, that the module writes to become states. Raises
    `ModelError` for a program that is not functional, `UnsupportedError` for what cannot be imported.
    """
    try:
        with quiet():
            core = program.run_decompositions(decompositions(program.graph))
    except CapgraphError:
        raise
    except Exception as error:
        raise _not_decomposed(program, name, error) from error
    return _Importing(core, Sizes(names, guards=guards_in(environment_of(core))), least or {}, name).model()


def _without_tracing(program: Any, names: Mapping[str, str], least: Mapping[str, int], name: str) -> TorchModel | None:
    """The model of a program whose operators are native as they are; None where PyTorch has to take some apart.

    It must be exported in this process: one from a file gets its guards when it is traced again.
    """
    plain = functional(program)
    if plain is None:
        return None
    try:
        model = _Importing(plain, Sizes(names, guards=guards_in(environment_of(plain))), least, name).model()
    except CapgraphError:
        return None  # whoever traces it again says what is wrong
    return None if any(node.op.is_foreign for node in all_nodes(model.graph)) else model


def _not_decomposed(program: Any, name: str, error: BaseException) -> UnsupportedError:
    regions = (node for node in program.graph.nodes if str(node.target) == "wrap_with_set_grad_enabled")
    if any(node.args[0] for node in regions):
        return UnsupportedError(
            f"capgraph is for inference, but {name} turns gradients on",
            remedy="leave torch.enable_grad out of forward, or call module.requires_grad_(False)",
        )
    return refused(name, error)


def _signature_of(program: Any) -> inspect.Signature | None:
    """How an exported program is called, without defaults; None where it does not tell."""
    calls = program.module_call_graph
    names = getattr(calls[0].signature, "forward_arg_names", None) if calls else None
    if not names or not all(name.isidentifier() for name in names):
        return None
    return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])


class _Importing:
    """One import of a program of core ATen operators."""

    def __init__(self, program: Any, sizes: Sizes, least: Mapping[str, int], name: str) -> None:
        self.program = program
        self.least = least
        self.signature = program.graph_signature
        self.sizes = sizes
        self.graph = Graph(name)
        self.importer = FxImporter(self.graph, sizes, SharedConstants())
        self.importer.checks = Checks(self.importer, knows_inputs=True)
        self.model_ = TorchModel(self.graph)
        self.mutated = self._mutated()
        self.inputs: dict[str, Value | Pairs] = {}

    def _mutated(self) -> dict[str, str]:
        """The outputs that are the new content of a buffer or an input: its name by the name of the output."""
        kinds = (_Output.BUFFER_MUTATION, _Output.USER_INPUT_MUTATION, getattr(_Output, "PARAMETER_MUTATION", None))
        return {spec.arg.name: spec.target for spec in self.signature.output_specs if spec.kind in kinds}

    def model(self) -> TorchModel:
        """The finished model."""
        self._add_inputs()
        self._add_guards()
        outputs = self.importer.import_module(self.program.graph_module, self._placeholders())
        self._set_outputs(outputs)
        self.model_.guards += self.sizes.roundings.values()
        self.model_.ranges = self._ranges()
        verify(self.graph)
        return self.model_

    # ---- inputs

    def _add_inputs(self) -> None:
        in_spec = self.program.call_spec.in_spec
        self.model_.in_spec, self.model_.out_spec = in_spec, self.program.call_spec.out_spec
        self.model_.signature = _signature_of(self.program)

    def _add_guards(self) -> None:
        self.model_.guards, unchecked = guards_of(self.program, self.sizes)
        self.model_.notes += [f"PyTorch traced it for {words}, which calls are not checked for" for words in unchecked]

    def _placeholders(self) -> list[Any]:
        nodes = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        return [self._placeholder(node, spec) for node, spec in zip(nodes, self.signature.input_specs, strict=True)]

    def _placeholder(self, node: Any, spec: Any) -> Any:
        if spec.kind is _Input.USER_INPUT:
            return self._user_input(node, spec)
        if spec.kind is _Input.TOKEN:
            return None
        if spec.kind is _Input.CUSTOM_OBJ:
            raise UnsupportedError("a module with TorchScript objects cannot be imported", where=node.name)
        tensor = self._content(spec)
        if spec.target in self.mutated.values():
            return self._state(node, spec.target, tensor)
        return self.importer.constant(tensor, _plain_name(spec.target))

    def _content(self, spec: Any) -> Any:
        found = self.program.state_dict.get(spec.target)
        return found if found is not None else self.program.constants[spec.target]

    def _state(self, node: Any, target: str, tensor: Any) -> Value | Pairs:
        name = _plain_name(target)
        self.model_.states[name] = tensor
        return self._input(name, node.meta["val"])

    def _user_input(self, node: Any, spec: Any) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            name = _plain_name(node.name)
            self.model_.inputs.append(name)
            self.model_.fixed.append(None)
            return self._input(name, value)
        return self._number_input(node, spec, value)

    def _number_input(self, node: Any, spec: Any, value: Any) -> Any:
        if isinstance(value, torch.SymInt) and not value.node.expr.is_Integer:
            name = _plain_name(node.name)
            self.model_.inputs.append(name)
            self.model_.fixed.append(None)
            self.model_.sizes.add(name)
            return _size_input(self.importer, name, value)
        fixed = int(value) if isinstance(value, torch.SymInt) else getattr(spec.arg, "value", value)
        self.model_.inputs.append(None)
        self.model_.fixed.append(fixed)
        return fixed

    def _input(self, name: str, tensor: Any) -> Value | Pairs:
        require_dense(tensor, f"input {name!r}")
        self.inputs[name] = given = add_input(self.importer, self.graph.unused_name(name), tensor)
        self.model_.note_input(name, tensor)
        if isinstance(given, Pairs):
            self.model_.pairs.add(name)
        return given

    # ---- outputs

    def _set_outputs(self, outputs: Sequence[Any]) -> None:
        values: list[Value] = []
        names: list[str] = []
        pairs: list[tuple[int, int]] = []
        call = Call(self.graph, self.sizes, "output", (), None)
        gpu, nodes = gpu_of_trace(self.program.graph), self.program.graph.output_node().args[0]
        for spec, output, node in zip(self.signature.output_specs, outputs, nodes, strict=True):
            if spec.kind is _Output.TOKEN:  # it only keeps operators with effects in order
                continue
            is_state = spec.arg.name in self.mutated and spec.kind is not _Output.USER_OUTPUT
            if not is_state and not isinstance(output, RESULTS):
                self.model_.outputs.append(None)
                self.model_.plain.append(output)
                continue
            name = _free_name(f"{_plain_name(spec.target)}_next" if is_state else _plain_name(spec.arg.name), names)
            if is_state:
                held = _plain_name(spec.target)
                pairs.append((parts_of(self.inputs[held]).index, len(values)))
                self.model_.state_outputs[held] = name
            else:
                self.model_.outputs.append(name)
                self.model_.plain.append(None)
                self.model_.note_output(name, node, gpu)
                if isinstance(spec.arg, _NUMBERS):
                    self.model_.numbers.add(name)
            values.append(output_value(call, self.model_, name, output))
            names.append(name)
        results = dict(zip(names, values, strict=True))
        self.model_.checks = self.importer.checks.add_output(call, results)
        self.graph.set_outputs(list(results.values()), list(results))
        self.graph.set_states(pairs)

    def _ranges(self) -> dict[str, tuple[int, int | None]]:
        found: dict[str, tuple[int, int | None]] = {}
        for expr, bounds in self.program.range_constraints.items():
            if expr.is_Symbol and not expr.name.startswith("u"):
                least = max(_least(bounds.lower), self.least.get(expr.name, 0))
                found[self.sizes.name_of(expr.name)] = (least, _bound(bounds.upper))
        return found


def _least(limit: Any) -> int:
    """The least size. PyTorch takes sizes to be 2 or more where it was not told; what holds for 2 holds for less."""
    bound = _bound(limit)
    return 0 if bound is None or bound <= 2 else bound


RESULTS = (Value, Pairs, SymDim)
"""What can be an output of a graph; anything else is the same at every call."""


def output_value(call: Call, model: TorchModel, name: str, output: Any) -> Value:
    """The value of one of `RESULTS` as the output `name`; the model learns what it stands for."""
    if isinstance(output, Pairs):
        model.pairs.add(name)
        return output.value
    if isinstance(output, Value):
        return output
    model.numbers.add(name)
    return call.value(output, DType.I64)


def parts_of(given: Value | Pairs) -> Value:
    """The value of a tensor, real or complex."""
    return given.value if isinstance(given, Pairs) else given


def add_input(importer: FxImporter, name: str, tensor: Any) -> Value | Pairs:
    """A new input for a tensor, of which `tensor` is PyTorch's fake; a complex one has its parts along a last axis."""
    try:
        return add_typed_input(importer, name, dtype_of(tensor.dtype), importer.sizes.dims(tensor.shape))
    except UnsupportedError as error:
        error.located(f"input {name}")
        raise


def add_typed_input(importer: FxImporter, name: str, dtype: DType, shape: tuple[Dim, ...]) -> Value | Pairs:
    """A new input of this dtype and shape."""
    if dtype in PART_TYPES:
        return Pairs(importer.graph.add_input(name, TensorType(PART_TYPES[dtype], (*shape, 2))))
    return importer.graph.add_input(name, TensorType(dtype, shape))


def _bound(limit: Any) -> int | None:
    """A limit of a range; None where there is none."""
    if not getattr(limit, "is_Integer", False):
        return None
    return int(limit) if int(limit) < 1 << 31 else None


def _size_input(importer: FxImporter, name: str, size: Any) -> Dim:
    """A size that is an argument of its own: an input of which nothing but its length counts."""
    dim = importer.sizes.dim(size)
    importer.graph.add_input(name, TensorType(DType.BOOL, (dim,)))
    return dim


def _plain_name(name: str) -> str:
    """A name of PyTorch's as one of a value."""
    return "".join(each if each.isalnum() or each == "_" else "_" for each in name)


def _free_name(wish: str, taken: Sequence[str]) -> str:
    name, suffix = wish, 1
    while name in taken:
        name, suffix = f"{wish}_{suffix}", suffix + 1
    return name
