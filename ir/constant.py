"""Constant tensors: shared by reference, loaded when first looked at, compared by content, never printed when large."""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from .errors import TypeRuleError
from .types import DType, TensorType

Array = npt.NDArray[Any]

_DIGEST_BYTES = 16


def is_array(value: object) -> TypeGuard[Array]:
    """Whether `value` is a NumPy array (a guard that keeps NumPy's own type parameters out of what checkers infer)."""
    return isinstance(value, np.ndarray)


@dataclass(frozen=True, eq=False)
class Residence:
    """Where content lies outside of main memory: at `address` of `device` ("cuda:0"), strides in bytes.

    `owner` keeps the memory, whose bytes must not change.
    """

    device: str
    address: int
    strides: tuple[int, ...]
    owner: object


@dataclass(frozen=True, eq=False)
class Derivation:
    """How content follows from that of other constants: by the native op `op` with complete attributes."""

    op: str
    attrs: Mapping[str, Any]
    operands: tuple["Constant", ...]


class Constant:
    """An immutable tensor value.

    `Constant(array)` refers to `array` without a copy; the caller must not write to it afterwards. `Constant.lazy`
    defers to a function that is called once, on first use: a memory-mapped weight costs nothing until it is read.
    Two constants are equal when dtype, shape and bytes are equal (NaN payloads and the sign of zero count). Those whose
    content is not at hand (`is_at_hand`) are not looked at: they are equal when they are the same, or derived alike.
    """

    __slots__ = ("_array", "_digest", "_load", "derivation", "is_at_hand", "residence", "type")

    def __init__(self, array: Any, dtype: DType | None = None) -> None:
        given = np.asarray(array)
        if dtype is not None and given.dtype != dtype.numpy:
            with np.errstate(all="ignore"):  # what does not fit becomes infinite, as in a cast node
                given = given.astype(dtype.numpy)
        self.type = TensorType(DType.of(given.dtype), given.shape)
        self._array: Array | None = _frozen(given, self.type.dtype)
        self._load: Callable[[], Array] | None = None
        self._digest: str | None = None
        self.is_at_hand = True
        self.residence: Residence | None = None
        self.derivation: Derivation | None = None

    @classmethod
    def lazy(cls, ty: TensorType, load: Callable[[], Array]) -> "Constant":
        """A constant of type `ty` (static shape) whose content `load()` gives when it is first needed."""
        made = cls.__new__(cls)
        made.type, made._array, made._load, made._digest = ty, None, load, None
        made.is_at_hand, made.residence, made.derivation = True, None, None
        return made

    @classmethod
    def elsewhere(cls, ty: TensorType, load: Callable[[], Array], residence: Residence | None = None) -> "Constant":
        """A constant whose content lies on a device, or is not there yet (None): `load()` brings a copy, at a cost.

        It is known by its identity, so that nothing has to read it.
        """
        made = cls.lazy(ty, load)
        made.is_at_hand, made.residence, made._digest = False, residence, secrets.token_hex(_DIGEST_BYTES)
        return made

    @classmethod
    def derived(cls, ty: TensorType, derivation: Derivation, load: Callable[[], Array]) -> "Constant":
        """A constant that is computed from others where it is needed; known by how it is derived."""
        made = cls.lazy(ty, load)
        made.is_at_hand, made.derivation = False, derivation
        parts = [str(ty), derivation.op, repr(sorted(derivation.attrs.items()))]
        parts += [each.digest for each in derivation.operands]
        made._digest = hashlib.blake2b("|".join(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest()
        return made

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(dim) for dim in self.type.dims if isinstance(dim, int))

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for dim in self.shape:
            count *= dim
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the content as a packed tensor (two 4-bit elements share a byte)."""
        return (self.size * self.dtype.bits + 7) // 8

    @property
    def array(self) -> Array:
        """The content, read-only, shape `shape`. Raises what the loader raises when the file is gone or too short."""
        if self._array is None:
            assert self._load is not None  # one of the two is always there
            loaded = self._load()
            if DType.of(loaded.dtype) is not self.dtype or loaded.shape != self.shape:
                found = f"{loaded.dtype}{list(loaded.shape)}"
                raise TypeRuleError(f"a constant declared as {self.type} was loaded as {found}")
            self._array, self._load = _frozen(loaded, self.dtype), None
        return self._array

    @property
    def has_digest(self) -> bool:
        """Whether it can be compared without reading it."""
        return self._digest is not None

    def with_digest(self) -> "Constant":
        """Itself, read for its digest."""
        _ = self.digest
        return self

    @property
    def digest(self) -> str:
        """32 hex digits of BLAKE2b over dtype, shape and bytes; computed once. Of content not at hand its identity."""
        if self._digest is None:
            state = hashlib.blake2b(str(self.type).encode(), digest_size=_DIGEST_BYTES)
            state.update(_content(self.array))
            self._digest = state.hexdigest()
        return self._digest

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Constant) or self.type != other.type:
            return False
        if self._array is not None and self._array is other._array:
            return True
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Constant({self.type})"


def _frozen(array: Array, dtype: DType) -> Array:
    # NumPy has several string types; as objects, equal texts have equal content.
    view = (array.astype(object, copy=False) if dtype is DType.STRING else array).view()
    view.flags.writeable = False
    return view


def _content(array: Array) -> Any:
    if array.dtype.hasobject:
        items = array.reshape(-1).tolist()
        parts = [item if isinstance(item, bytes) else str(item).encode(errors="surrogatepass") for item in items]
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
