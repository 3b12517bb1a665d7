"""An op: everything that is known of an operation, in one frozen object.

An op carries its operands, its attribute schema, its type rule, its meaning in NumPy, and its traits. Drivers
(verifier, evaluator, passes, planners) read these and never name an op. The native ops stand in tables, one file a
family, in `ir/ops/`; a row reads

    op("softmax", "x: T", T=FLOATS, attrs=(Attribute("axis", INT, -1),), infer=same_type, meaning=softmax)

Rule and meaning are plain functions with one positional parameter per operand and one keyword parameter per attribute:

    def infer(x: TensorType, *, axis: int) -> TensorType
    def meaning(x: Array, *, axis: int) -> Array

An absent optional operand is None; a variadic operand comes last and is spread over the remaining positions. Operands
are checked against the signature before the rule runs, so a rule speaks of shapes only. The meaning gets bound
attributes: symbolic dims are integers by then, and a region is a callable that takes and gives tuples of arrays. It
must not write to its operands and may return views of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import cache, cached_property
from typing import Any

from .attrs import Attribute, AttrKind, Attrs, AttrValue
from .dims import Dim, SymDim, symbol
from .errors import TypeRuleError
from .scalar import Scalar
from .types import DType, Kind, OpaqueType, OptionalType, SequenceType, TensorType, Type

Infer = Callable[..., Type | Sequence[Type]]
Meaning = Callable[..., Any]
Flops = Callable[[Sequence[Type | None], Sequence[Type], Attrs], Dim]
Symbolic = Callable[[Sequence[Type | None], Sequence[Any], Attrs], Any]

FRESH: SymDim = symbol("?")
"""The size that a rule gives when only running the node can tell; each use becomes a new symbol of the graph."""

DTypes = frozenset[DType]
BOOLS: DTypes = frozenset({DType.BOOL})
UINTS: DTypes = frozenset(d for d in DType if d.kind is Kind.UINT and d.bits >= 8)
SIGNED: DTypes = frozenset(d for d in DType if d.kind is Kind.INT and d.bits >= 8)
INTEGERS: DTypes = UINTS | SIGNED
FLOATS: DTypes = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
FLOAT8: DTypes = frozenset(d for d in DType if d.kind is Kind.FLOAT and d.bits == 8)
SUB_BYTE: DTypes = frozenset(d for d in DType if d.bits < 8)
COMPLEX: DTypes = frozenset({DType.C64, DType.C128})
NUMBERS: DTypes = INTEGERS | FLOATS
STRINGS: DTypes = frozenset({DType.STRING})
ANY: DTypes = frozenset(DType)
INDICES: DTypes = frozenset({DType.I32, DType.I64})
I64: DTypes = frozenset({DType.I64})


class Trait(Flag):
    """Facts that drivers rely on. An op with no trait is pure and opaque to rewrites that need to know more."""

    NONE = 0
    IMPURE = auto()  # gives other results on the next call; never folded or merged
    COMMUTATIVE = auto()  # its two operands may be swapped
    ELEMENTWISE = auto()  # operands broadcast as in NumPy; each result element depends on one element of each operand
    REDUCTION = auto()  # reduces axes to one value
    VIEW = auto()  # the first result holds the first operand's elements unchanged, in another shape or order
    DATA_DEPENDENT = auto()  # result sizes depend on element values: not capturable
    READS_HOST = auto()  # an operand's values steer the launch itself: not capturable
    CONTROL_FLOW = auto()  # owns regions that run zero or more times
    FOREIGN = auto()  # not native: opaque, result types stand on the node, runs eagerly
    JOINS = auto()  # the result is the operands one behind another along the axis that attribute `axis` names
    SEQUENTIAL = auto()  # a recurrence over an axis (recurrent cells, cumulative sums)
    ROWWISE = (
        auto()
    )  # the result has the first operand's shape; each row along `axis` (to the last) depends on that row
    GROUPWISE = (
        auto()
    )  # the result has the first operand's shape; a group of channels depends on that group of a sample
    ANCHOR = auto()  # a matmul or a convolution: heavy work, which is never done twice and begins a fused region
    SEGMENTS = auto()  # sums over segments of rows: heavy work, with elementwise work before and behind it
    LOOKUP = auto()  # each result element is the element of the first operand where indices in the second say
    DRAWS = auto()  # a result element depends on its place, the elements there, and the state that is the last operand
    RESHAPES = auto()  # a view with the elements in the same order
    KEEPS_AXES = auto()  # axes of the result are those of the first operand, in any order in memory
    BROADCASTS = auto()  # elementwise on two or more operands, any of which may be the one that is repeated
    COMPARES = auto()  # elementwise: a bool that says how two elements stand to each other
    ACTIVATION = auto()  # elementwise: a continuous function of one element that follows a layer
    INVOLUTION = auto()  # applied twice, it gives its operand
    IDEMPOTENT = auto()  # applied to its own result (of one operand), or to equal operands (of two), it changes nothing
    UNROUNDED = auto()  # elementwise, and results in floats are exact
    UP_TO_F32 = auto()  # runtimes have no kernels of it in f64
    CONTRACTION = auto()  # a matmul, or a batch of them
    CONVOLUTION = auto()  # a product of a kernel with the windows of images
    POOLING = auto()  # reduces the windows of images
    RECURRENT = auto()  # a cell of a recurrent network, run over a sequence
    SPECTRAL = auto()  # a Fourier transform of rows
    GATHERS = auto()  # elements of the first operand where indices in the second say, in any of its forms
    WRITES = auto()  # the first operand with some elements written over
    SIZES = auto()  # reads sizes only, no elements
    REFUSES_EMPTY = auto()  # may be an error where the first operand has no elements


@dataclass(frozen=True, slots=True)
class Operand:
    """One entry of a signature: `name: T`, `name: T?` (optional), `*name: T` (variadic, zero or more, last).

    `name: T!` is an operand whose values say how large results are, or along which axes they are made. `var` names the
    dtype variable; operands with the same variable have the same dtype, one of `dtypes`.
    """

    name: str
    var: str
    dtypes: DTypes
    is_optional: bool = False
    is_variadic: bool = False
    is_shaping: bool = False


def symbolic_by(function: Callable[..., Any]) -> Symbolic:
    """The symbolic meaning of an op whose NumPy meaning also works on object arrays: needs every operand known."""

    def rule(_types: Sequence[Type | None], operands: Sequence[Any], attrs: Attrs) -> Any:
        if any(operand is None for operand in operands):
            return None
        return function(*operands, **attrs.as_kwargs())

    return rule


def _no_flops(_inputs: Sequence[Type | None], _outputs: Sequence[Type], _attrs: Attrs) -> Dim:
    return 0


def flops_per_element(count: int = 1) -> Flops:
    """The cost rule of elementwise work: `count` operations for each element of the first result."""

    def rule(_inputs: Sequence[Type | None], outputs: Sequence[Type], _attrs: Attrs) -> Dim:
        first = outputs[0]
        return first.size * count if isinstance(first, TensorType) else 0

    return rule


@dataclass(frozen=True, eq=False)
class Op:
    """A native or foreign operation; compared by identity. Use `op` (native tables) or `foreign` to make one.

    `aliases` lists (result, operand) pairs: that result may be written into that operand's buffer when the operand is
    not used afterwards. `flops` counts arithmetic operations (a multiply-add is two). `symbolic`, where there is one,
    is the meaning on small integer tensors whose elements are dims: it gets operand types, object arrays of dims (None
    where not known) and attributes, and gives the first result as an object array (or all, as a tuple), or None when it
    cannot tell. `scalar` is what an op of one operand computes in terms of other elementwise ops, where it is told.
    """

    name: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Attribute]
    infer: Infer
    meaning: Meaning
    traits: Trait = Trait.NONE
    aliases: tuple[tuple[int, int], ...] = ()
    flops: Flops = _no_flops
    symbolic: Symbolic | None = None
    doc: str = ""
    scalar: Scalar | None = None
    bound_attrs: tuple[str, ...] = field(init=False, default=())
    may_have_regions: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        symbolic = {AttrKind.DIM, AttrKind.DIMS, AttrKind.GRAPH}
        names = tuple(name for name, attribute in self.attrs.items() if attribute.kind in symbolic)
        object.__setattr__(self, "bound_attrs", names)
        has_graphs = any(attribute.kind is AttrKind.GRAPH for attribute in self.attrs.values())
        object.__setattr__(self, "may_have_regions", has_graphs or self.is_foreign)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def has(self, trait: Trait) -> bool:
        """Whether the op has (one of) these traits."""
        return self.traits._value_ & trait._value_ != 0  # `&` of flags takes ten times as long

    @cached_property
    def is_pure(self) -> bool:
        """Whether equal operands give equal results, so that it may be folded and merged (any unused op may go)."""
        return not self.traits & (Trait.IMPURE | Trait.FOREIGN)

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the IR does not know the op natively."""
        return bool(self.traits & Trait.FOREIGN)

    @cached_property
    def is_capturable(self) -> bool:
        """Whether the op by itself allows recording: fixed result sizes, no operand read on the host, not foreign."""
        blocking = Trait.DATA_DEPENDENT | Trait.READS_HOST | Trait.FOREIGN | Trait.CONTROL_FLOW
        return not self.traits & blocking

    @property
    def domain(self) -> str:
        """The ecosystem of a foreign op: `onnx` of `onnx.Foo`; empty for a native op."""
        return self.name.split(".", 1)[0] if self.is_foreign else ""

    def complete_attrs(self, given: Mapping[str, AttrValue]) -> Attrs:
        """`given` normalized, with defaults filled in, in schema order. Raises `TypeRuleError` for a bad attribute."""
        if self.is_foreign:
            return Attrs({name: _ANY.normalize(value) for name, value in given.items()})
        unknown = [name for name in given if name not in self.attrs]
        if unknown:
            known = ", ".join(self.attrs) or "none"
            raise TypeRuleError(f"{self.name} has no attribute {unknown[0]}", remedy=f"its attributes: {known}")
        return Attrs({name: self._attr(attribute, given) for name, attribute in self.attrs.items()})

    def _attr(self, attribute: Attribute, given: Mapping[str, AttrValue]) -> AttrValue:
        if attribute.name in given:
            return attribute.normalize(given[attribute.name])
        if attribute.is_required:
            raise TypeRuleError(f"{self.name} needs attribute {attribute.name} ({attribute.kind.value})")
        return attribute.default

    def check_operands(self, types: Sequence[Type | None]) -> None:
        """Raises `TypeRuleError` when number, presence or dtypes of operands do not fit the signature."""
        self._check_count(len(types))
        bound: dict[str, DType] = {}
        for position, ty in enumerate(types):
            self._check_operand(self.operand_at(position), ty, bound)

    def operand_at(self, position: int) -> Operand:
        """The signature entry of input `position` (the variadic one serves all positions from its own on)."""
        return self.operands[min(position, len(self.operands) - 1)]

    def _check_count(self, count: int) -> None:
        variadic = bool(self.operands) and self.operands[-1].is_variadic
        least = sum(not operand.is_variadic for operand in self.operands)
        if count == least or (variadic and count >= least):
            return
        expected = f"at least {least}" if variadic else str(least)
        raise TypeRuleError(f"{self.name} takes {expected} operands (absent ones included), not {count}")

    def _check_operand(self, operand: Operand, ty: Type | None, bound: dict[str, DType]) -> None:
        if ty is None:
            if operand.is_optional:
                return
            raise TypeRuleError(f"{self.name}: operand {operand.name} is required")
        if not isinstance(ty, TensorType):
            raise TypeRuleError(f"{self.name}: operand {operand.name} must be a tensor, not {ty}")
        if ty.shape is None:
            raise TypeRuleError(f"{self.name}: the rank of operand {operand.name} must be known")
        if ty.dtype not in operand.dtypes:
            allowed = ", ".join(sorted(dtype.value for dtype in operand.dtypes))
            raise TypeRuleError(f"{self.name}: operand {operand.name} cannot be {ty.dtype}", remedy=f"one of {allowed}")
        if operand.var and bound.setdefault(operand.var, ty.dtype) is not ty.dtype:
            raise TypeRuleError(
                f"{self.name}: operand {operand.name} is {ty.dtype}, but must be {bound[operand.var]} like the others",
                remedy="insert a cast",
            )

    def result_types(self, types: Sequence[Type | None], attrs: Attrs) -> tuple[Type, ...]:
        """The rule's answer for these operand types and completed attributes. Raises `TypeRuleError`, `ShapeError`."""
        if self.is_foreign:
            raise TypeRuleError(f"{self.name} is foreign: its result types must be given")
        self.check_operands(types)
        inferred = self.infer(*types, **attrs.as_kwargs())
        return (inferred,) if isinstance(inferred, _TYPES) else tuple(inferred)


_TYPES = (TensorType, SequenceType, OptionalType, OpaqueType)
_ANY = Attribute("any", AttrKind.ANY, None)


def op(
    name: str,
    signature: str,
    *,
    infer: Infer,
    meaning: Meaning,
    attrs: Sequence[Attribute] = (),
    traits: Trait = Trait.NONE,
    aliases: Sequence[tuple[int, int]] = (),
    flops: Flops = _no_flops,
    symbolic: Symbolic | None = None,
    doc: str = "",
    **dtypes: DTypes,
) -> Op:
    """A native op from a row of a table.

    `signature` lists operands as `Operand` says, and `dtypes` says what each VAR may be. A
    VAR with a leading underscore (`_I`) admits its dtypes at each operand independently. `doc` defaults to the
    docstring of `meaning`.
    """
    operands = tuple(_operand(part, dtypes) for part in signature.split(",") if part.strip())
    schema = {attribute.name: attribute for attribute in attrs}
    if (traits & Trait.ELEMENTWISE) and flops is _no_flops:
        flops = flops_per_element()
    text = doc or meaning.__doc__ or ""
    return Op(name, operands, schema, infer, meaning, traits, tuple(aliases), flops, symbolic, text)


def _operand(part: str, dtypes: Mapping[str, DTypes]) -> Operand:
    name, var = (piece.strip() for piece in part.split(":"))
    optional, shaping = var.endswith("?"), "!" in var
    var = var.rstrip("!?")
    shared = "" if var.startswith("_") else var
    return Operand(name.lstrip("*"), shared, dtypes[var], optional, name.startswith("*"), shaping)


def _foreign_infer(*_types: Type, **_attrs: AttrValue) -> Sequence[Type]:
    raise TypeRuleError("a foreign op's result types stand on its node")


def _foreign_meaning(*_arrays: Any, **_attrs: AttrValue) -> Any:
    raise TypeRuleError("a foreign op's meaning comes from the registry in ir.foreign")


@cache
def foreign(name: str) -> Op:
    """The foreign op `domain.Name` (the same object for the same name). Any attribute and any operand is allowed."""
    operands = (Operand("inputs", "", ANY, is_optional=True, is_variadic=True),)
    return Op(name, operands, {}, _foreign_infer, _foreign_meaning, Trait.FOREIGN, doc="A foreign op.")
