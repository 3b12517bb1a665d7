"""What a call must bring, checked once before anything runs: names, dtypes and shapes; and who owns its results."""

import difflib
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..ir.constant import Array
from ..ir.dims import Dim, SymDim, symbol
from ..ir.errors import InputError, out_of_memory
from ..ir.evaluate import Sizes, match_type
from ..ir.graph import Graph, Value
from ..ir.types import DType, OptionalType, SequenceType, TensorType, Type
from .memory import size_text


def whole_number(given: Any) -> int | None:
    """`given` as an `int`; None for what is no whole number, such as 2.0, "2" and True."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except TypeError:
        return None


class ForeignArray:
    """An array that does not lie in main memory: an executor for its device reads it there.

    It has `dtype`, NumPy's, and `shape`.
    """

    __slots__ = ()
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Signature:
    """The inputs of a graph, as callers give them by name.

    Tensors are NumPy arrays of the declared dtype, contiguous or not, or foreign arrays; Python numbers and nested
    lists are taken where they can have that dtype, bytes as UTF-8 where strings are wanted, nothing else is converted.
    Inputs with a default may be left out.
    """

    def __init__(self, graph: Graph) -> None:
        self._inputs = graph.inputs
        self._names = frozenset(value.name for value in graph.inputs)
        self._defaults = dict(graph.defaults)
        self._is_static = all(isinstance(v.type, TensorType) and v.type.is_static for v in graph.inputs)
        self._plain = _plain_inputs(graph)
        self._latest: _Latest | None = None

    def bind(self, given: Mapping[str, Any]) -> tuple[list[Any], Sizes]:
        """The inputs in the order of the graph's, and the sizes of the symbols that their shapes determine.

        Raises `InputError` for one that is missing, not asked for, or of another type.
        """
        found = self._bind_as_before(given)
        if found is None:
            found = self._bind_plainly(given) or self._bind_carefully(given)
            self._latest = self._remembered(given, *found)
        return found

    def _remembered(self, given: Mapping[str, Any], values: Sequence[Any], sizes: Sizes) -> "_Latest | None":
        """What lets the next call take the sizes of this one; None where more than shapes is to be looked at."""
        if type(given) is not dict or len(given) != len(values):
            return None
        arrays: list[tuple[str, np.dtype[Any], tuple[int, ...]]] = []
        for wanted, array in zip(self._inputs, values, strict=True):
            if not isinstance(wanted.type, TensorType) or wanted.type.dtype is DType.STRING:
                return None
            if wanted.name not in given or given[wanted.name] is not array:  # it was converted
                return None
            arrays.append((wanted.name, wanted.type.dtype.numpy, array.shape))
        return _Latest(arrays, dict(sizes))

    def _bind_as_before(self, given: Mapping[str, Any]) -> tuple[list[Any], Sizes] | None:
        """`bind` for arrays of the shapes of the latest call, whose sizes are known; None for anything else."""
        latest = self._latest
        if latest is None or type(given) is not dict or len(given) != len(latest.arrays):
            return None
        values: list[Any] = []
        for name, dtype, shape in latest.arrays:
            array = given.get(name)
            if type(array) is not np.ndarray and not isinstance(array, ForeignArray):
                return None
            if array.dtype is not dtype or array.shape != shape:
                return None
            values.append(array)
        return values, dict(latest.sizes)

    def _bind_plainly(self, given: Mapping[str, Any]) -> tuple[list[Any], Sizes] | None:
        """`bind` for what nearly every call brings, an array that fits for every input; None for anything else."""
        plain = self._plain
        if plain is None or type(given) is not dict or len(given) != len(plain):
            return None
        values: list[Any] = []
        sizes: Sizes = {}
        for name, dtype, dims, is_static in plain:
            array = given.get(name)
            if type(array) is not np.ndarray and not isinstance(array, ForeignArray):
                return None
            if array.dtype is not dtype:
                return None
            shape = array.shape
            if not (shape == dims if is_static else _fits(dims, shape, sizes)):
                return None
            values.append(array)
        return values, sizes

    def _bind_carefully(self, given: Mapping[str, Any]) -> tuple[list[Any], Sizes]:
        """`bind` for everything; it is the one that knows what is wrong."""
        self._check_names(given)
        values = [self._given(value, given) for value in self._inputs]
        sizes: Sizes = {}
        for _ in range(1 if self._is_static else 2):  # a size like 2*T may stand before the T that determines it
            for value, array in zip(self._inputs, values, strict=True):
                problem = match_type(value.type, _visible(array), sizes)
                if problem:
                    raise InputError(f"input {value.name!r}: {problem}", remedy=_shape_remedy(value.type))
        return values, sizes

    def _check_names(self, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):
            raise InputError(
                f"inputs are given as a mapping from names to arrays, not as {type(given).__name__}",
                remedy=f"pass {{{', '.join(f'{value.name!r}: array' for value in self._inputs)}}}",
            )
        surplus = [str(name) for name in given if name not in self._names]
        missing = [v for v in self._inputs if v.name not in given and v.name not in self._defaults]
        if not surplus and not missing:
            return
        parts = [f"input {value.name!r} ({value.type}) is missing" for value in missing]
        parts += [f"there is no input {name!r}{_suggestion(name, self._names)}" for name in surplus]
        takes = ", ".join(f"{v.name!r}{' (optional)' if v.name in self._defaults else ''}" for v in self._inputs)
        raise InputError("; ".join(parts), remedy=f"the inputs are {takes or 'none'}")

    def _given(self, value: Value, given: Mapping[str, Any]) -> Any:
        if value.name not in given:
            return self._defaults[value.name].array
        return _converted(value.name, value.type, given[value.name])


class _Latest(NamedTuple):
    """A call: name, dtype and shape of each array, and the sizes that these determine."""

    arrays: list[tuple[str, np.dtype[Any], tuple[int, ...]]]
    sizes: Sizes


_Plain = tuple[str, np.dtype[Any], tuple[int | str, ...], bool]


def _plain_inputs(graph: Graph) -> list[_Plain] | None:
    """Name, dtype, dims (a size or the name of a symbol) and whether these are all sizes; None when more is to know."""
    plain: list[_Plain] = []
    for value in graph.inputs:
        ty = value.type
        if not isinstance(ty, TensorType) or ty.shape is None or ty.dtype is DType.STRING:
            return None
        if any(isinstance(dim, SymDim) and dim != symbol(min(dim.symbols)) for dim in ty.shape):
            return None
        plain.append((value.name, ty.dtype.numpy, tuple(_names(ty.shape)), ty.is_static))
    return plain


def _names(shape: Sequence[Dim]) -> Iterator[int | str]:
    return (dim if isinstance(dim, int) else min(dim.symbols) for dim in shape)


def _fits(dims: Sequence[int | str], shape: Sequence[int], sizes: Sizes) -> bool:
    if len(dims) != len(shape):
        return False
    for dim, size in zip(dims, shape, strict=True):
        if (sizes.setdefault(dim, size) if isinstance(dim, str) else dim) != size:
            return False
    return True


def _suggestion(name: str, known: frozenset[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _shape_remedy(ty: Type) -> str:
    return f"pass an array of type {ty}" if isinstance(ty, TensorType) else f"pass a value of type {ty}"


def _converted(name: str, ty: Type, given: Any) -> Any:
    if isinstance(ty, TensorType):
        return _tensor(name, ty, given)
    if isinstance(ty, OptionalType):
        return None if given is None else _converted(name, ty.element, given)
    if isinstance(ty, SequenceType) and isinstance(given, list | tuple):
        return [_converted(name, ty.element, item) for item in given]
    return given


def _visible(given: Any) -> Any:
    """What NumPy can look at: in the stead of a foreign array one of its type that has no memory of its own."""
    return np.broadcast_to(np.empty((), given.dtype), given.shape) if isinstance(given, ForeignArray) else given


def _tensor(name: str, ty: TensorType, given: Any) -> Any:
    dtype = ty.dtype.numpy
    array: Any
    if isinstance(given, ForeignArray):
        array = given
    elif isinstance(given, np.ndarray | np.generic) and not isinstance(given, np.ma.MaskedArray):
        array = np.asarray(given)
    elif isinstance(given, bool | int | float | complex | str | bytes | list | tuple):
        array = _from_python(name, ty, given)
    else:
        raise InputError(
            f"input {name!r} is a {type(given).__module__}.{type(given).__qualname__}, not a NumPy array",
            remedy=f"pass numpy.{_reader_of(given)}(...) of it",
        )
    if ty.dtype is DType.STRING and array.dtype.kind in "OSTU":
        return _strings(name, array)
    if not array.dtype.isnative and isinstance(array, np.ndarray):
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype != dtype:
        raise InputError(
            f"input {name!r} has dtype {array.dtype}, but the program takes {ty}",
            remedy=f"cast it: {name_for_code(name)}.astype({_numpy_name(ty.dtype)})",
        )
    return array


def _reader_of(given: Any) -> str:
    """NumPy's function for somebody else's array: of what knows DLPack alone `asarray` makes an object."""
    return "from_dlpack" if hasattr(given, "__dlpack__") and not hasattr(given, "__array__") else "asarray"


def _strings(name: str, array: Array) -> Array:
    """An array of `str`; bytes are taken for UTF-8, as ONNX keeps strings."""
    objects = array.astype(object, copy=False)
    if all(isinstance(item, str) for item in objects.flat):
        return objects
    made = np.empty(objects.shape, object)
    for index, item in np.ndenumerate(objects):
        try:
            made[index] = item if isinstance(item, str) else bytes.decode(item)
        except (TypeError, UnicodeDecodeError) as error:
            raise InputError(
                f"input {name!r} has {item!r} at {list(index)}, which is neither a str nor UTF-8",
                remedy="pass str objects",
            ) from error
    return made


def _from_python(name: str, ty: TensorType, given: Any) -> Array:
    """Numbers and lists as an array of the wanted dtype, where no value changes its kind on the way."""
    try:
        natural = np.asarray(given)
        if natural.size == 0 or natural.dtype.kind in _KINDS.get(ty.dtype.kind.value, "USTO"):
            return np.asarray(given, dtype=ty.dtype.numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"input {name!r} cannot become {ty}: {error}", remedy=f"pass a NumPy array of type {ty}"
        ) from error
    return natural


_KINDS = {"bool": "b", "unsigned integer": "iu", "signed integer": "iu", "float": "fiu", "complex": "cfiu"}


def name_for_code(name: str) -> str:
    """An input's name where it can stand in a line of Python, else `x`."""
    return name if name.isidentifier() else "x"


def _numpy_name(dtype: DType) -> str:
    scalar = dtype.numpy.type
    return f"{'numpy' if scalar.__module__ == 'numpy' else 'ml_dtypes'}.{scalar.__name__}"


def owned(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The results, copied where writing to one would change an input, a weight or another result.

    Raises `ResourceError` where a copy does not fit into memory, such as one of an expanded view.
    """
    roots = [_root(value) for value in inputs if isinstance(value, np.ndarray)]
    taken = {id(root) for root in roots}
    kept: list[Any] = []
    for result in results:
        if isinstance(result, np.ndarray):
            root = _root(result)
            if id(root) in taken or not result.flags.writeable:
                result = _copied(result)  # noqa: PLW2901
            taken.add(id(root))
        kept.append(result)
    return kept


def _copied(array: Array) -> Array:
    try:
        return array.copy()
    except MemoryError as error:
        sizes = ", ".join(map(str, array.shape))
        raise out_of_memory(f"a result {DType.of(array.dtype)}[{sizes}], {size_text(array.nbytes)}") from error


def _root(array: Array) -> Array:
    """The array that owns the memory, as far as NumPy knows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
