"""Attributes: the compile-time arguments of a node. Kinds, schemas, and the frozen mapping that a node holds."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np

from .constant import Constant
from .dims import SymDim
from .errors import TypeRuleError
from .types import DType, OpaqueType, OptionalType, SequenceType, TensorType

if TYPE_CHECKING:
    from .graph import Graph

AttrValue = Any
"""None, bool, int, float, str, bytes, DType, SymDim, Constant, a type, a Graph, or a tuple of these."""


def is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    """Whether an attribute's value is of a plural kind."""
    return isinstance(value, tuple)


class AttrKind(Enum):
    """What an attribute holds. The plural kinds are tuples. DIM and DIMS admit symbolic sizes, GRAPH is a region."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    STRING = "string"
    DIM = "dim"
    DTYPE = "dtype"
    CONSTANT = "constant"
    GRAPH = "graph"
    TYPE = "type"
    INTS = "ints"
    FLOATS = "floats"
    STRINGS = "strings"
    DIMS = "dims"
    ANY = "any"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Attribute:
    """One entry of an op's schema. A default of None makes it optional; the rule then sees None.

    `choices` lists the allowed strings of a STRING attribute.
    """

    name: str
    kind: AttrKind
    default: AttrValue = REQUIRED
    choices: tuple[str, ...] = ()

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    def normalize(self, value: AttrValue) -> AttrValue:
        """`value` in the one form that nodes hold (lists become tuples, NumPy scalars Python ones).

        Raises `TypeRuleError` when it is not of this kind.
        """
        if value is None and not self.is_required:
            return None
        normalized = _NORMALIZERS[self.kind](value)
        if normalized is None:
            raise TypeRuleError(f"attribute {self.name} takes {self.kind.value}, not {value!r}")
        if self.choices and normalized not in self.choices:
            raise TypeRuleError(f"attribute {self.name} is {value!r}, not one of {', '.join(self.choices)}")
        return normalized


class Attrs(Mapping[str, AttrValue]):
    """An immutable, hashable mapping of attribute names to values, in schema order."""

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, AttrValue]) -> None:
        self._values = dict(values)
        self._hash: int | None = None

    def __getitem__(self, name: str) -> AttrValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def as_kwargs(self) -> dict[str, AttrValue]:
        """The underlying dict, for `f(**attrs)`; do not write to it."""
        return self._values

    def replaced(self, **changes: AttrValue) -> "Attrs":
        """A copy with some values changed."""
        return Attrs({**self._values, **changes})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attrs):
            return NotImplemented
        return self is other or _exact(self._values) == _exact(other._values)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(_exact(self._values).items()))
        return self._hash

    def __repr__(self) -> str:
        return f"Attrs({self._values!r})"


NO_ATTRS: Final = Attrs({})


def _exact(values: Mapping[str, AttrValue]) -> dict[str, object]:
    return {name: _exact_value(value) for name, value in values.items()}


def _exact_value(value: object) -> object:
    """A key that tells 1 from 1.0 and True, and 0.0 from -0.0, and makes NaN equal to itself."""
    if is_tuple(value):
        return tuple(_exact_value(item) for item in value)
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, bool):
        return ("bool", value)
    return value


# Guards rather than isinstance alone: they keep NumPy's own type parameters out of the narrowed types.


def _is_bool(value: object) -> TypeGuard[bool]:
    return isinstance(value, bool | np.bool_)


def _is_integer(value: object) -> TypeGuard[int]:
    return not _is_bool(value) and isinstance(value, int | np.integer)


def _is_real(value: object) -> TypeGuard[float]:
    return not _is_bool(value) and isinstance(value, int | float | np.integer | np.floating)


def _is_listed(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and bool(value.ndim))


def _is_scalar(value: object) -> TypeGuard["np.generic[Any]"]:
    return isinstance(value, np.generic)


def _int(value: AttrValue) -> int | None:
    return int(value) if _is_integer(value) else None


def _float(value: AttrValue) -> float | None:
    return float(value) if _is_real(value) else None


def _string(value: AttrValue) -> str | None:
    return value if isinstance(value, str) else None


def _dim(value: AttrValue) -> int | SymDim | None:
    return value if isinstance(value, SymDim) else _int(value)


def _instance(*classes: type) -> Callable[[AttrValue], AttrValue]:
    return lambda value: value if isinstance(value, classes) else None


def _dtype(value: AttrValue) -> DType | None:
    return DType.of(value) if isinstance(value, DType | str | np.dtype | type) else None


def _tuple_of(element: Callable[[AttrValue], AttrValue]) -> Callable[[AttrValue], AttrValue]:
    def check(value: AttrValue) -> AttrValue:
        if not _is_listed(value):
            return None
        items = tuple(element(item) for item in value)
        return None if any(item is None for item in items) else items

    return check


def _graph(value: AttrValue) -> "Graph | None":
    return value if getattr(value, "is_graph", False) else None


def _any(value: AttrValue) -> AttrValue:
    if _is_listed(value):
        return tuple(_any(item) for item in value)
    return value.item() if _is_scalar(value) else value


_NORMALIZERS: dict[AttrKind, Callable[[AttrValue], AttrValue]] = {
    AttrKind.INT: _int,
    AttrKind.FLOAT: _float,
    AttrKind.BOOL: lambda value: bool(value) if _is_bool(value) else None,
    AttrKind.STRING: _string,
    AttrKind.DIM: _dim,
    AttrKind.DTYPE: _dtype,
    AttrKind.CONSTANT: _instance(Constant),
    AttrKind.GRAPH: _graph,
    AttrKind.TYPE: _instance(TensorType, SequenceType, OptionalType, OpaqueType),
    AttrKind.INTS: _tuple_of(_int),
    AttrKind.FLOATS: _tuple_of(_float),
    AttrKind.STRINGS: _tuple_of(_string),
    AttrKind.DIMS: _tuple_of(_dim),
    AttrKind.ANY: _any,
}
