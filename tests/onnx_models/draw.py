"""A random ONNX model in the making: its values with what they hold, its nodes, and choices drawn from ONNX's schemas.

Nothing here knows of capgraph. Each node runs once when it is made, in onnx's reference evaluator or else in ONNX
Runtime, so that the recipes see real shapes and contents, and a node that neither runs is left out.
"""

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, defs, helper

from tests.onnx_models.peers import run_reference, run_runtime

ELEMENTS: dict[str, Any] = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    "bool": np.bool_,
    "string": np.object_,
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
WEIGHTS = {"float": 8, "int64": 4, "double": 2.5, "float16": 2.5, "int32": 2.5, "bool": 1.5, "string": 0.7}
RARE = 0.25
USUAL = frozenset(name for name in ELEMENTS if name not in {"bfloat16", "int4", "uint4", "string"} and "8e" not in name)
"""What NumPy and every runtime can be handed as an input."""
FLOATS = frozenset({"float", "double", "float16", "bfloat16"})
MOST_ELEMENTS = 4096
NAMES = {np.dtype(given): name for name, given in ELEMENTS.items()}
WORDS = ("", "a", "b", "A", "ab", "aB c", "x y z", "1", "-2.5", "the", "Straße", "é")


class Unrunnable(Exception):
    """Neither of the runners takes what was drawn."""


@dataclass
class Value:
    """A value with what it holds: an array, a list of them, or None of an optional that is empty."""

    name: str
    content: Any
    kind: str = "tensor"  # or sequence, optional
    element: str = "float"
    inner: str = "tensor"  # of an optional

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(self.content.shape)

    @property
    def rank(self) -> int:
        """The rank of a tensor."""
        return self.content.ndim

    def type_proto(self, shape: Sequence[Any] | None = None) -> onnx.TypeProto:
        """The type, of a tensor with `shape` where one is given."""
        number = number_of(self.element)
        tensor = helper.make_tensor_type_proto(number, shape)
        kind = self.inner if self.kind == "optional" else self.kind
        found = helper.make_sequence_type_proto(tensor) if kind == "sequence" else tensor
        return helper.make_optional_type_proto(found) if self.kind == "optional" else found


@dataclass
class Source:
    """A value that no node gives: an input of the model or an initializer, with what makes its content anew."""

    value: Value
    role: str
    make: Callable[[tuple[int, ...]], Any] | None


def number_of(element: str) -> int:
    """The number of an element type in `TensorProto`."""
    return TensorProto.DataType.Value(element.upper())


def tensor_proto(content: np.ndarray, name: str, element: str) -> TensorProto:
    """An array as a tensor proto."""
    if element == "string":
        return helper.make_tensor(name, TensorProto.STRING, content.shape, [str(x).encode() for x in content.ravel()])
    return onnx.numpy_helper.from_array(np.ascontiguousarray(content).reshape(content.shape), name)


def value_of(name: str, content: Any) -> Value:
    """The value of what a runner gave. Raises `Unrunnable` for what has no type that we know."""
    if isinstance(content, np.generic | int | float | bool | str):
        content = np.asarray(content)
    if isinstance(content, np.ndarray):
        if content.dtype.kind in "US":
            content = content.astype(object)
        element = NAMES.get(content.dtype)
        if element is None or content.size > MOST_ELEMENTS:
            raise Unrunnable(f"{content.dtype}{content.shape}")
        return Value(name, content, "tensor", element)
    if isinstance(content, list | tuple) and content and all(isinstance(each, np.ndarray) for each in content):
        parts = [value_of(name, each) for each in content]
        return Value(name, [part.content for part in parts], "sequence", parts[0].element)
    raise Unrunnable(f"a result of type {type(content).__name__}")


@dataclass
class Shared:
    """What a model and its bodies share."""

    rng: random.Random
    numbers: np.random.Generator
    opset: int
    has_specials: bool
    is_strict: bool = False
    """Whether ONNX Runtime has to run each node."""
    count: int = 0
    functions: list[FunctionProto] = field(default_factory=list)
    settled: set[str] = field(default_factory=set)
    """Inputs whose sizes are not left open, as attributes say the same."""

    def name(self) -> str:
        """A name that was not given yet."""
        self.count += 1
        return f"v{self.count}"


class Draw:
    """A graph in the making; with `outer` it is a body, which sees the values around it."""

    def __init__(self, shared: Shared, outer: "Draw | None" = None) -> None:
        self.shared = shared
        self.rng = shared.rng
        self.opset = shared.opset
        self.outer = outer
        self.sources: list[Source] = []
        self.nodes: list[NodeProto] = []
        self.values: dict[str, Value] = {}

    # ---- choices

    def chance(self, share: float) -> bool:
        """True in so many of all cases."""
        return self.rng.random() < share

    def pick(self, *given: Any) -> Any:
        """One of what is given."""
        return self.rng.choice(given)

    def whole(self, low: int, high: int) -> int:
        """An integer, both ends included."""
        return self.rng.randint(low, high)

    def real(self, low: float = -2.0, high: float = 2.0) -> float:
        """A float that ONNX keeps exactly."""
        return float(
            np.float32(self.pick(0.0, 1.0, 0.5, low, high) if self.chance(0.3) else self.rng.uniform(low, high))
        )

    def size(self) -> int:
        """A size: small, seldom 0, sometimes 1."""
        return self.rng.choices((0, 1, 2, 3, 4, 5, 7), (0.5, 3, 5, 5, 3, 1, 0.5))[0]

    def shape(self, low: int = 0, high: int = 4, least: int = 0) -> tuple[int, ...]:
        """A shape of a rank in between, with sizes of at least `least`."""
        return tuple(max(self.size(), least) for _ in range(self.whole(low, high)))

    def axis(self, rank: int, *, negative: bool = True) -> int:
        """An axis, from the end in a third of the cases where operators of this opset take that."""
        axis = self.whole(0, rank - 1)
        return axis - rank if negative and self.chance(0.35) else axis

    def axes(self, rank: int, *, least: int = 0, negative: bool | None = None) -> list[int]:
        """Some axes, each at most once, in any order."""
        negative = self.opset >= 11 if negative is None else negative
        chosen = self.rng.sample(range(rank), self.whole(min(least, rank), rank))
        return [axis - rank if negative and self.chance(0.35) else axis for axis in chosen]

    # ---- schemas

    def schema(self, op: str) -> Any:
        """The schema of an operator at this opset."""
        return defs.get_schema(op, self.opset, "")

    def has(self, op: str) -> bool:
        """Whether the operator is there at this opset."""
        try:
            return not self.schema(op).deprecated
        except defs.SchemaError:
            return False

    def elements(self, op: str, param: str) -> list[str]:
        """The element types that a type parameter allows, or a formal input by its name."""
        schema = self.schema(op)
        texts = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == param), None)
        if texts is None:
            texts = [f.type_str for f in (*schema.inputs, *schema.outputs) if f.name == param]
            if texts and not texts[0].startswith("tensor"):
                return self.elements(op, texts[0])
        inner = {text.replace("seq(", "").replace("optional(", "").replace("tensor(", "").rstrip(")") for text in texts}
        return sorted(inner & ELEMENTS.keys())

    def element(self, op: str, param: str, among: Sequence[str] | None = None) -> str:
        """One of these types, the usual ones more often."""
        given = [name for name in self.elements(op, param) if among is None or name in among]
        if not given:
            raise Unrunnable(f"{op} has no such type for {param}")
        return self.rng.choices(given, [WEIGHTS.get(name, RARE) for name in given])[0]

    def attributes(self, op: str, **choices: Any) -> dict[str, Any]:
        """Of these attributes those that the operator has at this opset, optional ones in two thirds of the cases."""
        known = self.schema(op).attributes
        return {
            name: value
            for name, value in choices.items()
            if name in known and value is not None and (known[name].required or self.chance(0.67))
        }

    # ---- contents

    def array(self, element: str, shape: Sequence[int], low: float | None = None, high: float | None = None) -> Any:
        """Random content of a type and shape; between `low` and `high` where they are given."""
        shape, numbers = tuple(shape), self.shared.numbers
        dtype = np.dtype(ELEMENTS[element])
        if element == "string":
            return np.array([self.pick(*WORDS) for _ in range(int(np.prod(shape)))], object).reshape(shape)
        if element == "bool":
            return np.asarray(numbers.random(shape) < 0.5)
        if element in FLOATS or "8e" in element:
            return self._floats(dtype, shape, low, high)
        info = ml_dtypes.iinfo(dtype)
        first = max(int(info.min), int(-5 if low is None else np.ceil(low)))
        last = min(int(info.max), int(5 if high is None else np.floor(high)))
        found = numbers.integers(first, max(first, last) + 1, shape)
        if low is None and high is None and self.chance(0.1):
            extremes = np.array([info.min, info.max, 0, 1, int(info.max) // 2], object)
            return np.asarray(numbers.choice(extremes, shape)).astype(dtype)
        return np.asarray(found).astype(dtype)

    def _floats(self, dtype: Any, shape: tuple[int, ...], low: float | None, high: float | None) -> Any:
        numbers = self.shared.numbers
        if low is not None or high is not None:
            first = -3.0 if low is None else low
            return np.asarray(numbers.uniform(first, max(first, 3.0 if high is None else high), shape)).astype(dtype)
        style = self.rng.random()
        found = np.asarray(numbers.normal(size=shape))
        if style < 0.25:
            found = np.round(found * 2) / 2  # with ties and zeros
        elif style < 0.3:
            found = found * 30
        if self.shared.has_specials:
            specials = numbers.choice([np.nan, np.inf, -np.inf, -0.0], shape)
            found = np.where(numbers.random(shape) < 0.15, specials, found)
        return np.asarray(found).astype(dtype)

    # ---- values

    def visible(self) -> list[Value]:
        """All values that a node here can read."""
        return [*self.values.values(), *(self.outer.visible() if self.outer is not None else [])]

    def find(self, name: str) -> Value | None:
        """The value of that name here or around."""
        found = self.values.get(name)
        return found if found is not None or self.outer is None else self.outer.find(name)

    def given(self, content: Any, element: str, role: str = "any", make: Any = None) -> Value:
        """A value of that content: an input, an initializer or the result of a Constant node."""
        content = np.asarray(content, ELEMENTS[element])
        roles = ("input",) * 3 + ("initializer",) * 2 + ("constant",)
        if role == "any":
            role = self.pick(*roles)
        elif role == "settled":  # by the model, in most cases
            role = self.pick("initializer", "initializer", "constant", "constant", "input")
        elif role == "fixed":
            role = self.pick("initializer", "constant")
        if role == "input" and element not in USUAL and element != "string":
            role = "initializer"
        if self.outer is not None and (role == "input" or self.chance(0.2)):
            return self.outer.given(content, element, role, make)
        value = Value(self.shared.name(), content, "tensor", element)
        if role == "constant" and self._is_constant(value):
            return value
        self.values[value.name] = value
        self.sources.append(Source(value, "input" if role == "input" else "initializer", make))
        return value

    def _is_constant(self, value: Value) -> bool:
        """Makes the value by a Constant node, in one of its forms."""
        content, element = value.content, value.element
        forms = ["value"]
        if self.opset >= 12 and content.ndim < 2:
            names = {"float": "float", "int64": "int", "string": "string"}
            if element in names:
                forms.append(f"value_{names[element]}{'s' if content.ndim else ''}")
        form = self.pick(*forms)
        given: Any = tensor_proto(content, "", element) if form == "value" else content.tolist()
        node = helper.make_node("Constant", [], [value.name])
        kinds = {"value": AttributeProto.TENSOR}
        node.attribute.append(helper.make_attribute(form, given, attr_type=kinds.get(form) or self._kind(form)))
        if element == "bfloat16" and self.opset < 13:
            return False
        self.nodes.append(node)
        self.values[value.name] = value
        return True

    def _kind(self, form: str) -> int:
        return int(self.schema("Constant").attributes[form].type)

    def new(
        self,
        element: str,
        shape: Sequence[int],
        low: float | None = None,
        high: float | None = None,
        role: str = "any",
    ) -> Value:
        """A new value of drawn content."""

        def make(other: tuple[int, ...]) -> Any:
            return self.array(element, other, low, high)

        return self.given(make(tuple(shape)), element, role, make)

    def like(self, element: str, shape: Sequence[int], low: float | None = None, high: float | None = None) -> Value:
        """A value of that type and shape: one that is there, or a new one. Those with a range are always new."""
        if low is None and high is None and self.chance(0.4):
            known = [
                v for v in self.visible() if v.kind == "tensor" and v.element == element and v.shape == tuple(shape)
            ]
            if known:
                return self.pick(*known)
        return self.new(element, shape, low, high)

    def some(
        self, op: str, param: str, low: int = 0, high: int = 4, among: Sequence[str] | None = None, least: int = 0
    ) -> Value:
        """A tensor of a type that the parameter allows and a rank in between: one that is there, or a new one."""
        if self.chance(0.75):
            allowed = set(self.elements(op, param))
            known = [
                v
                for v in self.visible()
                if v.kind == "tensor"
                and v.element in allowed
                and (among is None or v.element in among)
                and low <= v.rank <= high
                and min(v.shape, default=9) >= least
            ]
            if known:
                return self.pick(*known[:6], *known)
        return self.new(self.element(op, param, among), self.shape(low, high, least))

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with this one, in either direction now and then."""
        found = [1 if self.chance(0.25) else size for size in shape]
        if self.chance(0.3):
            found = found[self.whole(0, len(found)) :]
        elif self.chance(0.15) and len(found) < 4:
            found = [self.whole(1, 3), *found]
        return tuple(self.size() if size == 1 and self.chance(0.1) else size for size in found)

    def ints(self, content: Sequence[int] | int, element: str = "int64", role: str = "settled") -> Value:
        """Integers that an operator reads as shape, axes or the like; sometimes through a node that changes nothing."""
        value = self.given(np.asarray(content, ELEMENTS[element]), element, role, None)
        if self.chance(0.06):
            return self.node("Identity", [value])[0]
        return value

    # ---- nodes

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any] | None = None,
        outputs: Sequence[bool] = (True,),
        domain: str = "",
    ) -> list[Value]:
        """A node that was run: its results, those that `outputs` wants. Raises `Unrunnable`."""
        names = [value.name if value is not None else "" for value in inputs]
        while names and not names[-1]:
            names.pop()
        results = [self.shared.name() if wanted else "" for wanted in outputs]
        while results and not results[-1]:
            results.pop()
        node = helper.make_node(op, names, results, domain=domain)
        known = self.schema(op).attributes if not domain else {}
        for key, value in (attributes or {}).items():
            kind = int(known[key].type) if key in known else None
            node.attribute.append(helper.make_attribute(key, value, attr_type=kind))
        found = self.run(node)
        self.nodes.append(node)
        made = [value for value in found if value.name]
        self.values |= {value.name: value for value in made}
        return made

    def run(self, node: NodeProto) -> list[Value]:
        """The results of a node on what its operands hold. Raises `Unrunnable`."""
        feeds = {name: value for name in names_read(node) if (value := self.find(name)) is not None}
        return run_node(node, feeds, self.model, is_strict=self.shared.is_strict)

    def model(self, graph: GraphProto) -> onnx.ModelProto:
        """A model of the graph, with the functions that there are."""
        imports = [helper.make_opsetid("", self.opset)]
        if self.shared.functions:
            imports.append(helper.make_opsetid("local", 1))
        version = 10 if self.opset < 23 else 11 if self.opset < 24 else 12
        made = helper.make_model(graph, opset_imports=imports, ir_version=version)
        made.functions.extend(self.shared.functions)
        return made


def run_node(
    node: NodeProto,
    feeds: Mapping[str, Value],
    model_of: Callable[[GraphProto], onnx.ModelProto],
    prefers_reference: Callable[[onnx.ModelProto, Mapping[str, Value]], bool] | None = None,
    *,
    is_strict: bool = False,
) -> list[Value]:
    """The results of a node alone: of ONNX Runtime, whose shapes are more often right, else of the reference evaluator.

    The other way round where `prefers_reference` says so. Raises `Unrunnable`.
    """
    inputs = [ValueInfoProto(name=name, type=value.type_proto()) for name, value in feeds.items()]
    wanted = [name for name in node.output if name]
    model = model_of(helper.make_graph([node], "node", inputs, [ValueInfoProto(name=name) for name in wanted]))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = None
        if prefers_reference is not None and prefers_reference(model, feeds):
            found = _of_reference(model, feeds)
        if found is None:
            found = _results(model, feeds, is_strict)
    return [value_of(name, content) for name, content in zip(wanted, found, strict=True)]


def _of_reference(model: onnx.ModelProto, feeds: Mapping[str, Value]) -> list[Any] | None:
    """What the reference evaluator gives; None where it fails, or gives other types than ONNX Runtime."""
    try:
        found = run_reference(model, {name: value.content for name, value in feeds.items()})
        types = [value_of("", each).element for each in found]
    except Exception:  # noqa: BLE001  # whatever it raises, there is the other one
        return None
    try:
        others = [value_of("", each).element for each in _results(model, feeds, is_strict=True)]
    except Unrunnable:
        return found
    return found if types == others else None


def _results(model: onnx.ModelProto, feeds: Mapping[str, Value], is_strict: bool) -> list[Any]:
    contents = {name: value.content for name, value in feeds.items()}
    if all(v.kind != "tensor" or v.element in USUAL or v.element == "string" for v in feeds.values()):
        try:
            return run_runtime(model.SerializeToString(), contents)
        except Exception:  # noqa: BLE001  # whatever it raises, there is the other one
            if is_strict:
                raise Unrunnable("not by ONNX Runtime") from None
    try:
        return run_reference(model, contents)
    except Exception as error:
        raise Unrunnable(str(error)[:200]) from error


def names_read(node: NodeProto) -> list[str]:
    """What a node reads, in its bodies from around it too."""
    found = dict.fromkeys(name for name in node.input if name)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            found |= dict.fromkeys(_free_names(body))
    return list(found)


def _free_names(body: GraphProto) -> list[str]:
    own = {each.name for each in (*body.input, *body.initializer)}
    found: dict[str, None] = {}
    for node in body.node:
        found |= dict.fromkeys(name for name in names_read(node) if name not in own)
        own |= set(node.output)
    found |= dict.fromkeys(each.name for each in body.output if each.name not in own)
    return list(found)
