"""`torch.compile(model, backend="capgraph")`, and the decorator `capgraph.compile`."""

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from ..executors.base import is_cuda
from ..frontends.torch.decompositions import aot_decompositions, composites_kept
from ..frontends.torch.dynamo.aot import AotModel, from_aot
from ..frontends.torch.memory import storage_of
from ..frontends.torch.model import gpu_of_trace
from ..frontends.torch.rounding import asked_tf32
from ..ir.analysis import all_nodes
from ..ir.analysis.contents import ROUNDS_ALL, ROUNDS_NOTHING
from ..ir.dims import evaluate, symbols
from ..ir.errors import UnsupportedError
from ..ir.notices import Notices
from ..ir.op import Trait
from ..ir.ops.known import CONSTANT
from ..ir.types import TensorType
from ..optimization import Choices
from ..sources import LoadedModel
from .program import TorchProgram, as_tensor
from .weights import HeldWeights, addresses_equal

OPTIONS = tuple(Choices.__dataclass_fields__)
"""What `torch.compile(..., options={...})` takes: the options of `capgraph.optimize`."""

_GRADIENTS = (
    "capgraph is for inference, but gradients would be recorded here",
    "call the compiled function under torch.no_grad() or torch.inference_mode()",
)
_TURNED_ON = (
    "capgraph is for inference, but the function turns gradients on",
    "leave torch.enable_grad out of what is compiled, or call requires_grad_(False)",
)


def backend(module: Any, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: Any = None) -> Any:
    """The function that Dynamo calls in the stead of a graph that it has captured.

    Raises `UnsupportedError` where gradients are to be recorded, and for an unknown option.
    """
    choices = _choices(options or {}, mode)
    _refuse_gradients(module, examples)
    _fix_negative_numbers(examples)
    fixed = _fixed_arguments(module, examples)

    def compile_forward(forward: Any, arguments: Sequence[Any]) -> Any:
        with _disable_current_modes():  # weights are real tensors, which tracing would refuse
            known = fixed if len(arguments) == len(examples) else {}
            return CompiledFunction(forward, known, choices)

    with composites_kept(module):
        compiler = aot_autograd(
            fw_compiler=compile_forward, decompositions=aot_decompositions(), keep_inference_input_mutations=True
        )
        return compiler(module, examples)


def _refuse_gradients(module: Any, examples: Sequence[Any]) -> None:
    """A function that turns gradients off for what it does, as under the decorator `torch.no_grad()`, is no such."""
    if not any(_wants_gradient(example) for example in examples) or not _records_gradients(module):
        return
    message, remedy = _GRADIENTS if torch.is_grad_enabled() else _TURNED_ON
    raise UnsupportedError(message, remedy=remedy)


def _wants_gradient(example: Any) -> bool:
    return isinstance(example, torch.Tensor) and example.requires_grad


def _records_gradients(module: Any) -> bool:
    """Whether a result, or what an argument becomes, takes part in gradients, which Dynamo has traced.

    A leaf is what it was before, and what is cut off again or gives no floats needs none.
    """
    steps = [node for node in module.graph.nodes if node.op.startswith("call_")]
    if not any("example_value" in node.meta for node in steps):  # nothing is known
        return bool(torch.is_grad_enabled())
    leaves = [leaf for node in module.graph.find_nodes(op="placeholder") for leaf in _traced(node)]
    arguments = {storage_of(leaf) for leaf in leaves} - {None}
    results = {*module.graph.output_node().all_input_nodes}
    found = [(node in results, leaf) for node in steps for leaf in _traced(node)]
    return any(
        _wants_gradient(leaf) and not leaf.is_leaf and (is_result or storage_of(leaf) in arguments)
        for is_result, leaf in found
    )


def _traced(node: Any) -> Iterator[Any]:
    """What Dynamo has found a node to give."""
    yield from tree_leaves(node.meta.get("example_value"))


def _fix_negative_numbers(examples: Sequence[Any]) -> None:
    """Makes PyTorch compile anew for each number below 0 among the arguments: a dim, which others become, is none."""
    for example in examples:
        if isinstance(example, torch.SymInt) and example.node.has_hint() and not example >= 0:
            int(example)


def _choices(options: Mapping[str, Any], mode: Any) -> "BackendChoices":
    unknown = [name for name in options if name not in OPTIONS]
    if unknown or mode is not None:
        what = f"option {unknown[0]!r}" if unknown else f"mode {mode!r}"
        raise UnsupportedError(
            f"the backend capgraph has no {what}", remedy=f"give options={{...}} of these: {', '.join(OPTIONS)}"
        )
    return BackendChoices(options)


_LIVE: "WeakSet[Any]" = WeakSet()
_NUMBERS = itertools.count()


def note_live(compiled: Any) -> None:
    """Has `live_programs` give the `programs` of something behind those of what was made before."""
    compiled.number = next(_NUMBERS)
    _LIVE.add(compiled)


def live_programs() -> list[TorchProgram]:
    """The programs of what is compiled by this backend at the time, to ask for what they report.

    By captured graph, the oldest first; those of one graph by their latest call, the latest last.
    """
    return [program for each in sorted(_LIVE, key=lambda each: each.number) for program in each.programs]


class BackendChoices:
    """The options of the backend. `buckets` and `dynamic` may be given without names: for every dim that varies."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)

    def of(self, model: AotModel, device: str) -> Choices:
        """The choices for one captured graph, by the names of its dims; its tensors lie on `device`."""
        given = dict(self._options)
        if is_cuda(device):
            given = {"device": device, "executor": "graph", **given}
        if _records(given):
            given |= _for_every_size(given, sorted(_input_symbols(model)))
        chosen = Choices(**given)
        chosen.check()
        return chosen


def _records(options: Mapping[str, Any]) -> bool:
    executor = options.get("executor")
    return executor == "graph" or (executor == "ort" and is_cuda(options.get("device", "auto")))


def _for_every_size(options: Mapping[str, Any], varying: Sequence[str]) -> dict[str, Any]:
    """`buckets`, `dynamic` and `capture`, where the former without names hold for each size that varies."""
    buckets, dynamic = options.get("buckets"), options.get("dynamic")
    if buckets is not None and not isinstance(buckets, Mapping):
        sizes = _integers("buckets", buckets)
        buckets = dict.fromkeys(varying, sizes)
        dynamic = dynamic or (min(sizes), max(sizes))
    if dynamic is not None and not isinstance(dynamic, Mapping):
        dynamic = dict.fromkeys(varying, _integers("dynamic", dynamic))
    capture = options.get("capture")
    if capture is None and dynamic is None and options["executor"] == "graph":
        capture = {"beyond": "exact"}
    return {"buckets": buckets, "dynamic": dynamic, "capture": capture}


def _integers(name: str, given: Any) -> tuple[int, ...]:
    """The sizes of an option without names."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = (1, given) if name == "dynamic" else (given,)
    found = tuple(given) if isinstance(given, Sequence | range) else ()
    is_range = name == "buckets" or len(found) == 2
    if not found or not is_range or any(isinstance(each, bool) or not isinstance(each, int) for each in found):
        example = {"buckets": "buckets=[1, 2, 4, 8]", "dynamic": "dynamic=(1, 64), the least and the greatest size"}
        raise UnsupportedError(f"{name}={given!r} lists no sizes", remedy=f"{example[name]}, or a dict by dim")
    return found


def _input_symbols(model: AotModel) -> frozenset[str]:
    types = (value.type for value in model.model.graph.inputs)
    dims = (dim for ty in types if isinstance(ty, TensorType) for dim in ty.dims)
    return frozenset[str]().union(*map(symbols, dims))


def _fixed_arguments(module: Any, examples: Sequence[Any]) -> dict[int, Any]:
    """Parameters and buffers among the arguments, by position: Dynamo marks them as always the same tensors."""
    nodes = [node for node in module.graph.nodes if node.op == "placeholder"]
    return {
        position: example
        for position, (node, example) in enumerate(zip(nodes, examples, strict=True))
        if isinstance(example, torch.Tensor)
        and not isinstance(example, torch._subclasses.FakeTensor)
        and "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})
    }


class CompiledFunction:
    """A captured graph as a function of Dynamo's arguments, compiled for each set of weights and of their sizes.

    Layers of one class share a captured graph where Dynamo compiles them one by one, and take turns in it.
    """

    _boxed_call = True
    """Tells AOT autograd that arguments come in a list."""

    def __init__(self, forward: Any, fixed: Mapping[int, Any], choices: BackendChoices) -> None:
        self._forward = forward
        self._choices = choices
        self._fixed = list(fixed)
        self._varying = _varying_axes(forward, fixed)
        self._made: dict[tuple[_Sizes, _Weights], _FixedFunction] = {}  # the one that served last is last
        self._sizes = tuple(fixed[position].shape[axis] for position, axis in self._varying)
        self._latest = _FixedFunction(forward, fixed, choices)
        self._made[self._sizes, self._latest.weights(fixed)] = self._latest
        self._notices = Notices(self.program.graph.name)
        note_live(self)

    @property
    def program(self) -> TorchProgram:
        """What served the latest call."""
        return self._latest.program

    @property
    def programs(self) -> list[TorchProgram]:
        """One for each set of weights and of sizes, the one of the latest call last."""
        return [each.program for each in self._made.values()]

    def __call__(self, arguments: list[Any]) -> list[Any]:
        sizes = tuple([arguments[position].shape[axis] for position, axis in self._varying]) if self._varying else ()
        if sizes != self._sizes or not self._latest.fits(arguments):
            self._turn_to(sizes, arguments)
        return self._latest(arguments)

    def _turn_to(self, sizes: "_Sizes", arguments: list[Any]) -> None:
        """Takes what was compiled for these weights and sizes; compiles where nothing was, or weights were written."""
        weights = self._latest.weights(arguments)
        found = self._made.pop((sizes, weights), None)
        if found is None or not found.fits(arguments):
            self._make_room(weights)
            found = _FixedFunction(self._forward, {each: arguments[each] for each in self._fixed}, self._choices)
        self._made[sizes, weights] = self._latest = found
        self._sizes = sizes

    def _make_room(self, weights: "_Weights") -> None:
        of_weights = [each for each in self._made if each[1] == weights]
        for each in of_weights[: 1 - MOST_SIZES]:
            del self._made[each]
        for each in list(self._made)[: 1 - MOST_WEIGHTS]:
            del self._made[each]
            self._notices.say(
                "weights",
                f"more than {MOST_WEIGHTS} sets of weights take turns in one captured graph: programs are made again",
                "compile the module that holds these layers, instead of each of them",
            )


_Sizes = tuple[int, ...]
_Weights = tuple[int, ...]
"""Where they lie."""
MOST_SIZES = 4
"""For how many sets of sizes of fixed tensors, such as lengths of a cache, programs are kept."""
MOST_WEIGHTS = 256
"""For how many sets of weights, such as those of a model's layers, and of sizes in all."""


def _varying_axes(forward: Any, fixed: Mapping[int, Any]) -> list[tuple[int, int]]:
    """Positions and axes of fixed tensors whose sizes Dynamo lets vary: one for each such size."""
    placeholders = [node for node in forward.graph.nodes if node.op == "placeholder"]
    found: dict[str, tuple[int, int]] = {}
    for position in fixed:
        for axis, size in enumerate(placeholders[position].meta["val"].shape):
            if isinstance(size, torch.SymInt):
                found.setdefault(str(size), (position, axis))
    return list(found.values())


class _FixedFunction:
    """A captured graph with its weights as constants, and buffers that it writes to as states."""

    def __init__(self, forward: Any, fixed: Mapping[int, Any], choices: BackendChoices) -> None:
        self._imported = from_aot(forward, fixed)
        model = self._imported.model
        loaded = LoadedModel(model.graph, model.notes, model)
        self._device = _device_of(forward)
        chosen = choices.of(self._imported, self._device)
        follows = chosen.follows_torch and ROUNDS_ALL.within(model.graph) != ROUNDS_NOTHING
        self._asked_tf32 = asked_tf32() if follows else None
        program = chosen.program(loaded)
        assert isinstance(program, TorchProgram)  # as the model is PyTorch's
        self.program = program
        orders = self._imported.orders
        self._asked = [
            (position, name, orders.get(position))
            for position, name in enumerate(model.inputs)
            if name is not None and name not in model.states
        ]
        constants = [position for position in fixed if model.inputs[position] is None]
        self._states = {p: name for p in fixed if (name := model.inputs[p]) is not None and name in model.states}
        self._positions = [*constants, *self._states]  # weights first
        self._weights = constants
        self._held = HeldWeights(model.graph.name, fixed, constants)
        self._addresses = [0 if each not in fixed else _ADDRESS(fixed[each]) for each in range(len(model.inputs))]
        self._written = [
            (name, position) for name, position in self._imported.written.items() if name in program.results
        ]
        self._run = program.run_plain if program.is_plain and self._asked else program.run
        self._known = self._known_results(program)
        self._alike = self._gathering(program)
        self._as_they_are = self._scattering(program)

    def weights(self, arguments: Sequence[Any] | Mapping[int, Any]) -> _Weights:
        """Where the tensors lie that are constants in it, of any arguments for the captured graph."""
        return tuple([_ADDRESS(arguments[position]) for position in self._weights])

    def fits(self, arguments: list[Any]) -> bool:
        """Whether it serves a call: weights must be the same tensors with the same content, states may have moved.

        What PyTorch asks for of TF32 must be the same too: Dynamo guards the setting of matmuls alone.
        """
        if self._asked_tf32 is not None and self._asked_tf32 != asked_tf32():
            return False
        if addresses_equal(arguments, self._addresses, self._positions):  # `.data = other` is no new version
            return self._held.are_unwritten(arguments)
        if not addresses_equal(arguments, self._addresses, self._weights):
            return False  # such as those of another layer: there is nothing to look for in its content
        if not self._held.are_unwritten(arguments):
            return False
        for position in self._states:
            self._addresses[position] = _ADDRESS(arguments[position])
        return self.program.move_states({name: arguments[position] for position, name in self._states.items()})

    def __call__(self, arguments: list[Any]) -> list[Any]:
        if self._imported.bases:
            arguments = self._with_known_bases(arguments)
        if self._alike is not None:
            found = self.program.run_alike(self._alike(arguments))
            if found is not None:
                return self._as_they_are(found) or self._as_function(self._named(found), arguments)
        if self._known is None:
            results = self._run(self._given(arguments))
        else:
            results = {name: tensor.clone() for name, tensor in self._known.items()}
        return self._as_function(results, arguments)

    def _as_function(self, results: Mapping[str, Any], arguments: Sequence[Any]) -> list[Any]:
        """What the captured graph gives where the program gives `results`."""
        model = self._imported.model
        for name, position in self._written:
            if name in results:
                with torch.no_grad():
                    arguments[position].copy_(as_tensor(results[name]))
        found = [
            plain if name is None else results[name].item() if name in model.numbers else self._tensor(name, results)
            for name, plain in zip(model.outputs, model.plain, strict=True)
        ]
        if self._imported.views:
            self._set_views(found, arguments, results)
        for index, first in self._imported.same.items():
            found[index] = found[first]
        return found

    def _with_known_bases(self, arguments: Sequence[Any]) -> list[Any]:
        """The arguments, of memory that several share only as much as the graph was traced with."""
        found, sizes = list(arguments), self._sizes(arguments, {})
        for position, count in self._imported.bases.items():
            found[position] = found[position][: evaluate(count, sizes)]
        return found

    def _named(self, found: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.program.results, found, strict=True))

    def _scattering(self, program: TorchProgram) -> Callable[[list[Any]], list[Any]]:
        """Gives what the captured graph gives, of the program's results in order; nothing where some of it is made."""
        imported, model = self._imported, self._imported.model
        names = model.outputs
        if imported.views or imported.same or self._written or model.numbers or None in names or not names:
            return lambda _found: []
        places = [program.results.index(name) for name in names if name is not None]
        if places == list(range(len(program.results))):
            return lambda found: found
        return lambda found: [found[place] for place in places]

    def _gathering(self, program: TorchProgram) -> Callable[[list[Any]], Sequence[Any]] | None:
        """Takes from the arguments what the program's `run_alike` takes; None where some of it is made in each call."""
        by_name = {name: (position, order) for position, name, order in self._asked}
        if self._known is not None or by_name.keys() != set(program.order) or not by_name:
            return None
        taken = [by_name[name] for name in program.order]
        if len(taken) > 1 and not any(order for _position, order in taken):
            return operator.itemgetter(*[position for position, _order in taken])
        return lambda arguments: [
            arguments[position] if order is None else arguments[position].permute(order) for position, order in taken
        ]

    def _given(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The inputs of the program."""
        given = {
            name: _input(arguments[position]) if order is None else arguments[position].permute(order)
            for position, name, order in self._asked
        }
        if self._imported.memories:
            sizes, written = self._sizes(arguments, {}), {*self._imported.written.values()}
            for name, (position, count, from_own) in self._imported.memories.items():
                argument = arguments[position]
                start = argument.storage_offset() if from_own else 0
                memory = argument.as_strided((evaluate(count, sizes),), (1,), start)
                given[name] = memory.clone() if position in written else memory
        return given

    def _sizes(self, arguments: Sequence[Any], sources: Mapping[str, Any]) -> dict[str, int]:
        """What the arguments, and these outputs, tell of the symbols of views."""
        return {
            symbol: _size(arguments[place] if isinstance(place, int) else sources[place], axis)
            for symbol, (place, axis) in self._imported.sizes.items()
            if isinstance(place, int) or place in sources
        }

    def _known_results(self, program: TorchProgram) -> dict[str, Any] | None:
        """All that the program gives, where it is the same in every call: constants, or what it makes of nothing.

        A call of such a program would wait for the device. None where arguments or chance decide.
        """
        model, graph = self._imported.model, program.graph
        if model.states or model.checks is not None or self._written or model.pairs:
            return None
        makers = [value.producer for value in graph.outputs]
        contents = [maker.attrs["value"] for maker in makers if maker is not None and maker.op is CONSTANT]
        if len(contents) == len(makers):
            named = zip(graph.output_names, contents, strict=True)
            return {name: self._placed(name, as_tensor(content.array)) for name, content in named}
        if graph.inputs or any(node.op.has(Trait.IMPURE | Trait.FOREIGN) for node in all_nodes(graph)):
            return None
        results = program.run({})
        return {name: self._tensor(name, results) for name in results}

    def _tensor(self, name: str, results: Mapping[str, Any]) -> Any:
        """A result where PyTorch has it: a call without tensors gets arrays in main memory."""
        found = results[name]
        return self._placed(name, as_tensor(found)) if isinstance(found, np.ndarray) else found

    def _placed(self, name: str, tensor: Any) -> Any:
        model = self._imported.model
        stays = self._device == "host" or name in model.on_host or name in model.numbers
        return tensor if stays else tensor.to(self._device)

    def _set_views(self, found: list[Any], arguments: Sequence[Any], results: Mapping[str, Any]) -> None:
        """Puts views of the arguments, and of outputs, where the function gives such."""
        views = self._imported.views
        names = {view.source for view in views.values() if isinstance(view.source, str)}
        sources = {name: as_tensor(results[name]).contiguous() for name in names}
        sizes = self._sizes(arguments, sources)
        for name, view in self._imported.spread.items():
            sources[name] = view.spread(sources[name], sizes)
        for name, position in self._imported.contents.items():
            argument, source = arguments[position], sources[name]  # complex, and pairs of parts
            start = argument.storage_offset() * argument.element_size() // source.element_size()
            sources[name] = _behind(start, source)
        for index, view in views.items():
            source = sources[view.source] if isinstance(view.source, str) else arguments[view.source]
            found[index] = view.of(source, sizes)


_ADDRESS = torch.Tensor.data_ptr
"""Where a tensor lies."""


def _behind(count: int, tensor: Any) -> Any:
    """A tensor with so many elements before it in memory."""
    if not count:
        return tensor
    memory = tensor.new_empty(count + tensor.numel())
    return memory[count:].view(tensor.shape).copy_(tensor)


def _size(argument: Any, axis: int | None) -> int:
    """The size of an axis; a number, which has none, is a size itself."""
    return int(argument if axis is None else argument.shape[axis])


def _device_of(forward: Any) -> str:
    """Where a captured graph runs: the GPU of its tensors if one of them lies there."""
    return gpu_of_trace(forward.graph) or "host"


def _input(argument: Any) -> Any:
    return np.broadcast_to(np.zeros((), np.bool_), (int(argument),)) if isinstance(argument, int) else argument


_OF_TORCH = ("fullgraph", "dynamic_shapes")
"""The options of torch.compile itself that the decorator takes."""


def compile_with(target: Any = None, **options: Any) -> Any:
    """`torch.compile` with this backend, for a function, a module, or a class of modules; also as a decorator.

        @capgraph.compile
        class Net(torch.nn.Module): ...

        @capgraph.compile(executor="graph", buckets=[1, 2, 4, 8])
        def step(x): ...

    The options are those of the backend, and `dynamic_shapes` and `fullgraph` of torch.compile. Classes that derive
    from a compiled class are compiled as it is. Inference only: call what was compiled under `torch.no_grad()`. Raises
    `UnsupportedError` for an unknown option, and for what cannot be compiled.
    """
    _choices({name: given for name, given in options.items() if name not in _OF_TORCH}, None)
    if target is None:
        return lambda given: compile_with(given, **options)
    compiler = {name: options.pop(name) for name in ("fullgraph",) if name in options}
    dynamic = options.pop("dynamic_shapes", None)
    settings = {**compiler, "dynamic": dynamic, "backend": "capgraph", "options": options}
    if isinstance(target, type):
        return _compiled_class(target, settings)
    if not callable(target):
        raise UnsupportedError(
            f"capgraph.compile takes a function or a module, not a {type(target).__name__}",
            remedy="capgraph.optimize makes programs of ONNX models",
        )
    return torch.compile(target, **settings)


def _compiled_class(target: Any, settings: Mapping[str, Any]) -> Any:
    """The class itself, whose instances compile themselves when they are made."""
    if not issubclass(target, torch.nn.Module):
        raise UnsupportedError(
            f"{target.__name__} is no class of modules", remedy="decorate a torch.nn.Module or a function"
        )
    initialize: Callable[..., None] = target.__init__

    def initialize_and_compile(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        self.compile(**settings)

    target.__init__ = initialize_and_compile
    return target
