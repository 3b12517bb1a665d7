"""Rows whose elements are put in order: keys that compare as unsigned numbers, where elements are read and written.

A key has as many bits as its element: NaN above all, both zeros equal, all turned
round where the order descends. Elements with equal keys keep their order, whichever kernel sorts them.
"""

from dataclasses import dataclass

from .....ir.types import DType, Kind
from ...kernel_ir.kernels import Ordered, Parameter, at, launch_of, ordered_like, reach_type, read, written
from ...kernel_ir.launch import BufferPlace, KernelLaunch, Task
from ...kernel_ir.moving import operand, result
from ...kernel_ir.types import WORDS, stored

INDEX_BYTES = 4
LONGEST = 2**30
"""Elements of a row: indices are 32 bits wide while a row is sorted."""


@dataclass(frozen=True, slots=True)
class Key:
    """The order of elements of `dtype` as unsigned numbers."""

    dtype: DType
    is_descending: bool

    @property
    def nbytes(self) -> int:
        """Bytes of a key in memory."""
        return max(1, self.dtype.bits // 8)

    @property
    def bits(self) -> int:
        """The bits that differ between keys."""
        return 8 * self.nbytes

    @property
    def ctype(self) -> str:
        """The C++ type of a key in memory."""
        return WORDS[self.nbytes]

    @property
    def computed(self) -> str:
        """The C++ type of a key in a register."""
        return "u64" if self.nbytes == 8 else "unsigned"

    @property
    def last(self) -> str:
        """The greatest key, which also stands for what lies behind a row."""
        return "(~0ull)" if self.nbytes == 8 else f"{(1 << self.bits) - 1}u"

    def of(self, raw: str) -> str:
        """An expression: the key of a stored element."""
        number, top = self.computed, f"(({self.computed})1 << {self.bits - 1})"
        if self.dtype.is_float:
            text = f"x != x ? {self.last} : x == 0 ? {top} : bits & {top} ? ~bits & {self.last} : bits | {top}"
            head = f"const auto x = get({raw}); const {number} bits = {self._bits(raw)};"
        else:
            is_signed = self.dtype.kind is Kind.INT
            text = f"(({number})get({raw}){f' ^ {top}' if is_signed else ''}) & {self.last}"
            head = ""
        turned = f"~({text}) & {self.last}" if self.is_descending else text
        return f"[&] {{ {head} return {turned}; }}()"

    def element(self, key: str, otherwise: str) -> str:
        """An expression: the stored element of a key; `otherwise` where several elements have that key."""
        number, top = self.computed, f"(({self.computed})1 << {self.bits - 1})"
        own = f"const {number} own = {f'~({number}){key} & {self.last}' if self.is_descending else key};"
        if not self.dtype.is_float:
            text = f"(own ^ {top})" if self.dtype.kind is Kind.INT else "own"
            return f"[&] {{ {own} return {self._stored(text)}; }}()"
        bits = f"(own & {top} ? own ^ {top} : ~own & {self.last})"
        return (
            f"[&] {{ {own} if (own == {self.last} || own == {top}) return {otherwise}; "
            f"return {self._stored(bits)}; }}()"
        )

    def _stored(self, bits: str) -> str:
        """The stored element of these bits."""
        ctype = stored(self.dtype)
        if self.dtype in (DType.F32, DType.F64):
            return f"bits_as<{ctype}>({bits})"
        if self.dtype.is_integer:
            return f"({ctype})({bits})"
        return f"{ctype}{{({WORDS[self.nbytes]})({bits})}}"

    def _bits(self, raw: str) -> str:
        if self.dtype is DType.F64:
            return "bits_as<u64>(x)"
        if self.dtype is DType.F32:
            return "as_bits(x)"
        return f"{raw}.bits" if self.dtype is DType.F16 else "as_bits(x) >> 16"


@dataclass(frozen=True, slots=True)
class Entries:
    """Keys and (unless they are left out) indices of elements in scratch memory, `length` of them for each row."""

    keys: BufferPlace
    indices: BufferPlace | None


class SortRows:
    """Rows along an axis of `x`, of which the first `count` in order go to `values` and `places`."""

    has_indices = True
    """Whether the index of an element goes with its key."""

    def __init__(self, task: Task, axis: int, count: int, *, is_descending: bool) -> None:
        self.task = task
        self.x, self.values, self.places = operand(task), result(task), result(task, 1)
        self.axis, self.count = axis, count
        self.length = self.x.shape[axis]
        self.key = Key(self.x.dtype, is_descending)
        self.ctype = reach_type((self.x, self.values, self.places))
        rest = [other for other in ordered_like(self.x).order if other != axis]
        shape = tuple(1 if other == axis else size for other, size in enumerate(self.x.shape))
        self.outer = Ordered(shape, (axis, *rest))
        self.row_count = self.x.size // self.length if self.length else 0

    @property
    def entry_bytes(self) -> int:
        """Bytes of a key and what goes with it."""
        return self.key.nbytes + (INDEX_BYTES if self.has_indices else 0)

    def head(self, row: str) -> list[str]:
        """Statements that find where a row lies."""
        without = [self.axis]
        return [
            *self.outer.lines(row, self.ctype),
            f"const {self.x.ctype}* from = x + ({at(self.x, without=without)});",
            f"{self.values.ctype}* to = values + ({at(self.values, without=without)});",
            f"i64* to_index = places + ({at(self.places, without=without)});",
        ]

    def element(self, index: str) -> str:
        """An element of the row as it is stored."""
        return f"from[({self.ctype})({index}) * {self.x.strides[self.axis]}]"

    def write(self, place: str, index: str, key: str = "") -> str:
        """Statements that write the element at `index` as the one at `place` in order; of its key, if that is given."""
        element = self.key.element(key, self.element(index)) if key else self.element(index)
        return (
            f"to[({self.ctype})({place}) * {self.values.strides[self.axis]}] = {element}; "
            f"to_index[({self.ctype})({place}) * {self.places.strides[self.axis]}] = {index};"
        )

    def launch(
        self,
        lines: list[str],
        blocks: int,
        threads: int,
        shared_bytes: int = 0,
        extra: tuple[Parameter, ...] = (),
    ) -> KernelLaunch:
        """A kernel that reads `x`, writes `values` and `places`, and has `extra` parameters."""
        parameters = [written("values", self.values), written("places", self.places), read("x", self.x), *extra]
        nbytes = self.x.nbytes + self.values.nbytes + self.places.nbytes
        return launch_of(parameters, lines, (blocks, 1, 1), (threads, 1, 1), nbytes, 0, shared_bytes)

    def entries(self, name: str, entries: Entries) -> tuple[Parameter, ...]:
        """The parameters `name_keys` and, where they are kept, `name_indices`."""
        keys = Parameter(f"{self.key.ctype}*", f"{name}_keys", entries.keys)
        if entries.indices is None:
            return (keys,)
        return keys, Parameter("unsigned*", f"{name}_indices", entries.indices)
