"""A random model of a seed, with one or two calls of it."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import ValueInfoProto, helper, shape_inference

from tests.onnx_models import containers, control, indexing, layout, networks, pointwise, reductions, windows
from tests.onnx_models.control import attempt, call_function, draw_node
from tests.onnx_models.draw import USUAL, Draw, Shared, Source, Unrunnable, Value, names_read, number_of, tensor_proto
from tests.onnx_models.registry import ALONE, RECIPES

FAMILIES = (containers, control, indexing, layout, networks, pointwise, reductions, windows)
ALONE |= {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
LOWEST, HIGHEST = 7, 24
SINGLE_SHARE = 0.4
STRICT_SHARE = 0.75
"""Of graphs, those in which ONNX Runtime runs every node: one that it does not run leaves the other peer alone."""


@dataclass
class Case:
    """A model, the inputs of its calls, and how large its symbols may become."""

    seed: int
    model: onnx.ModelProto
    calls: list[dict[str, Any]]
    is_random: bool = False
    symbols: dict[str, int] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        """The version of the default domain."""
        return int(self.model.opset_import[0].version)


def drawn_case(seed: int, operator: str | None = None) -> Case | None:
    """The model of a seed; None where nothing that was drawn runs. `operator` makes it one of a single node."""
    rng = random.Random(seed)
    shared = Shared(rng, np.random.default_rng(seed), rng.randint(LOWEST, HIGHEST), rng.random() < 0.08)
    d = Draw(shared)
    is_single = operator is not None or rng.random() < SINGLE_SHARE
    is_random = False
    if is_single:
        op = operator or rng.choice([name for name in RECIPES if d.has(name)])
        is_random = op in ALONE
        if not d.has(op) or not any(attempt(d, op) for _ in range(5)):
            return None
    else:
        shared.is_strict = rng.random() < STRICT_SHARE
        try:
            _draw_graph(d)
        except Unrunnable:
            return None
    try:
        return _assembled(d, seed, is_random) if d.nodes else None
    except Unrunnable:  # a cast of a result
        return None


def _draw_graph(d: Draw) -> None:
    for _ in range(d.whole(1, 3)):  # some inputs first, that several nodes share
        d.new(
            d.rng.choices(sorted(USUAL), [8 if n == "float" else 1 for n in sorted(USUAL)])[0], d.shape(), role="input"
        )
    count = d.whole(2, 15)
    while len(d.nodes) < count:
        if d.chance(0.03) and d.opset >= 15:
            call_function(d)
        elif d.chance(0.06):
            attempt(d, d.pick("If", "Loop", "Scan"))
        else:
            draw_node(d)


def _assembled(d: Draw, seed: int, is_random: bool) -> Case:
    d.shared.is_strict = False
    outputs = _outputs(d)
    inputs = [source for source in d.sources if source.role == "input"]
    shapes, symbols = _symbolic_shapes(d, inputs)
    infos = [ValueInfoProto(name=s.value.name, type=s.value.type_proto(shapes[s.value.name])) for s in inputs]
    initializers = [
        tensor_proto(s.value.content, s.value.name, s.value.element) for s in d.sources if s.role != "input"
    ]
    is_told = not symbols and d.chance(0.5)
    declared = [ValueInfoProto(name=value.name, type=value.type_proto(_declared(value, is_told))) for value in outputs]
    graph = helper.make_graph(d.nodes, "drawn", infos, declared, initializers)
    model = d.model(graph)
    if d.chance(0.1):
        model.ir_version = max(8, model.ir_version - 2) if d.opset < 21 else model.ir_version
    if d.chance(0.2):
        model = _with_types(model)
    calls = [{s.value.name: s.value.content for s in inputs}]
    other = _other_call(d, inputs, shapes, symbols)
    if other is not None:
        calls.append(other)
    return Case(seed, model, calls, is_random, dict.fromkeys(symbols, 8))


def _declared(value: Value, is_told: bool) -> list[int | None] | None:
    """The shape that an output is declared with: its sizes, or only its rank."""
    if value.kind != "tensor":
        return None
    return [size if is_told else None for size in value.shape]


def _outputs(d: Draw) -> list[Value]:
    """What no node reads, most of it, and some other results; of types that runners hand out."""
    read = {name for node in d.nodes for name in names_read(node)}
    made = [d.values[name] for node in d.nodes for name in node.output if name and name in d.values]
    tensors = [value for value in made if value.kind != "optional"]
    last = [value for value in tensors if value.name not in read]
    chosen = [value for value in last if len(last) == 1 or d.chance(0.85)] or last[:1] or tensors[-1:]
    chosen += [value for value in tensors if value not in chosen and d.chance(0.1)]
    if not chosen:
        chosen = [_asked(d, made[-1])]
    return [_plain(d, value) for value in chosen]


def _asked(d: Draw, value: Value) -> Value:
    """Of an optional value, whether it is there."""
    return d.node("OptionalHasElement", [value])[0]


def _plain(d: Draw, value: Value) -> Value:
    """The value, cast where NumPy has no such type."""
    if value.element in USUAL or value.element == "string" or value.kind != "tensor":
        return value
    return d.node("Cast", [value], {"to": number_of("float")})[0]


def _symbolic_shapes(d: Draw, inputs: list[Source]) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """The declared shapes: sizes, symbols (equal sizes often share one), or nothing."""
    is_symbolic = d.chance(0.6)
    symbols: dict[str, int] = {}
    shapes: dict[str, list[Any]] = {}
    for source in inputs:
        declared: list[Any] = []
        for size in source.value.shape:
            if not is_symbolic or source.value.name in d.shared.settled or d.chance(0.5):
                declared.append(size)
                continue
            if d.chance(0.06):
                declared.append(None)
                continue
            known = [name for name, own in symbols.items() if own == size]
            if known and d.chance(0.65):
                declared.append(d.pick(*known))
            else:
                name = f"s{len(symbols)}"
                symbols[name] = size
                declared.append(name)
        shapes[source.value.name] = declared
    return shapes, symbols


def _other_call(
    d: Draw, inputs: list[Source], shapes: dict[str, list[Any]], symbols: dict[str, int]
) -> dict[str, Any] | None:
    """Inputs of other sizes, or of other numbers where there are no symbols."""
    sizes = {name: d.pick(0, 1, 1, 2, 3, 4, 5) if d.chance(0.7) else size for name, size in symbols.items()}
    found = {}
    for source in inputs:
        declared, value = shapes[source.value.name], source.value
        shape = tuple(
            sizes[dim] if isinstance(dim, str) else value.shape[axis] if dim is None else dim
            for axis, dim in enumerate(declared)
        )
        if source.make is None:
            if shape != value.shape:
                return None
            found[value.name] = value.content
        else:
            found[value.name] = source.make(shape)
    return found


def _with_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """With the types of all values, as exporters write them, where onnx infers them."""
    try:
        return shape_inference.infer_shapes(model, strict_mode=True)
    except Exception:  # noqa: BLE001  # it has no one error
        return model
