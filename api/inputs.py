"""Inputs for a model from the command line: files of NumPy arrays, pictures, random draws."""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from .executors.memory import available_bytes, size_text
from .ir.constant import Array
from .ir.dims import Dim, evaluate, symbols
from .ir.errors import InputError, MissingPackageError, ResourceError, UnsupportedError
from .ir.evaluate import Sizes, match_type
from .ir.graph import Graph
from .ir.types import DType, Kind, TensorType, Type, type_symbols

RANDOM = "random"
_PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class GivenInput:
    """An input's value, and where it comes from in words."""

    value: Any
    source: str


def gather_inputs(
    graph: Graph,
    sources: Mapping[str, str],
    sizes: Mapping[str, int],
    seed: int,
    *,
    otherwise: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, GivenInput]:
    """A value for every input of `graph` that has no default, and for those in `sources`.

    `sources` says per input "random" or a file; what it leaves out is random. `sizes` gives symbols of the inputs'
    shapes; others come from the files, then from `otherwise`, and are 1 where none of these tells: these are noted. The
    same `seed`
    gives the same random input, whatever the other inputs are. Raises `InputError` for an unknown name, an unreadable
    file or one that does not fit.
    """
    types = {value.name: value.type for value in graph.inputs}
    _check_known("input", sources, types)
    _check_known("dim", sizes, sorted(frozenset[str]().union(*map(type_symbols, types.values()))))
    wanted = [name for name in types if name in sources or name not in graph.defaults]
    bound = dict(sizes)
    numbers = {name: found for name in wanted if (found := _number_in(sources.get(name, RANDOM))) is not None}
    chosen = [name for name in wanted if name not in numbers and sources.get(name, RANDOM) != RANDOM]
    files = {name: Path(sources[name]) for name in chosen}
    given: dict[str, GivenInput] = {}
    for name, path in sorted(files.items(), key=lambda item: item[1].suffix.lower() in _PICTURES):  # arrays first
        given[name] = _from_file(name, path, types[name], bound)
        _fit(name, types[name], given[name].value, bound)
    for name, number in numbers.items():
        given[name] = _from_number(name, number, types[name], bound)
        _fit(name, types[name], given[name].value, bound)
    for name in wanted:
        if name not in given:
            given[name] = _from_random(name, types[name], bound, otherwise, seed)
    return {name: given[name] for name in wanted}


def check_dims(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Raises `InputError` when `sizes` names a dim that neither an input nor a node of `graph` has."""
    values = (*graph.inputs, *(value for node in graph.nodes for value in node.outputs))
    _check_known("dim", sizes, sorted(frozenset[str]().union(*(type_symbols(value.type) for value in values))))


def _check_known(what: str, names: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"the model has no {what} {name!r}", remedy=f"one of {', '.join(known) or 'none'}")


def _fit(name: str, ty: Type, value: Any, sizes: Sizes) -> None:
    problem = match_type(ty, value, sizes)
    if problem:
        raise InputError(f"input {name!r}: {problem}", remedy=f"give it a file with an array of type {ty}")


def _known_size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    return evaluate(dim, sizes) if symbols(dim) <= sizes.keys() else None


# ---- random


def _from_random(name: str, ty: Type, sizes: Mapping[str, int], otherwise: Mapping[str, int], seed: int) -> GivenInput:
    if not isinstance(ty, TensorType) or ty.shape is None:
        raise UnsupportedError(f"input {name!r} of type {ty} cannot be drawn", remedy="give it a file, or use Python")
    assumed = {symbol: otherwise.get(symbol, 1) for symbol in sorted(type_symbols(ty) - sizes.keys())}
    shape = tuple(evaluate(dim, {**sizes, **assumed}) for dim in ty.shape)
    if any(size < 0 for size in shape):
        raise InputError(f"input {name!r} of type {ty} would have shape {list(shape)}", remedy="choose other --dim")
    wanted = math.prod(size or 1 for size in shape) * ty.dtype.numpy.itemsize  # NumPy refuses large sizes beside 0, too
    limit = available_bytes()
    if limit is not None and wanted > limit:
        raise _too_large(name, wanted, f", but {size_text(limit)} are available")
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    note = "".join(f"; {symbol} taken as {size} (--dim {symbol}=N)" for symbol, size in assumed.items())
    try:
        drawn = draw(ty.dtype, shape, generator)
    except MemoryError as error:
        raise _too_large(name, wanted, ", which cannot be had") from error
    return GivenInput(drawn, f"random, {_distribution(ty.dtype)}{note}")


def _too_large(name: str, wanted: int, why: str) -> ResourceError:
    return ResourceError(f"input {name!r} needs {size_text(wanted)}{why}", remedy="choose smaller --dim")


def draw(dtype: DType, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """A random array that most models accept: normal floats; integers, which are often indices, are 0 or 1."""
    if dtype.kind is Kind.STRING:
        return generator.choice(np.array(["a", "b"], dtype=object), shape)
    if dtype.is_float:
        return generator.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
    if dtype.kind is Kind.COMPLEX:
        parts = generator.standard_normal((*shape, 2))
        return parts.view(np.complex128)[..., 0].astype(dtype.numpy)
    return generator.integers(0, 2, shape, dtype=np.uint8).astype(dtype.numpy)


def _distribution(dtype: DType) -> str:
    if dtype.kind is Kind.STRING:
        return "a or b"
    return "standard normal" if dtype.kind in (Kind.FLOAT, Kind.COMPLEX) else "0 or 1"


# ---- numbers


def _number_in(text: str) -> int | float | None:
    """The number that a source is, true and false counted."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _from_number(name: str, number: int | float, ty: Type, sizes: Mapping[str, int]) -> GivenInput:
    if not isinstance(ty, TensorType) or any(_known_size(dim, sizes) not in (1, None) for dim in ty.shape or ()):
        raise InputError(f"input {name!r} of type {ty} is no single number", remedy="give it a .npy file")
    try:
        with np.errstate(all="ignore"):
            made = np.array(number).astype(ty.dtype.numpy)
        fits = ty.dtype is not DType.STRING and _is_same_number(made.item(), number, ty.dtype)
    except (ValueError, TypeError, OverflowError):
        fits = False
    if not fits:
        raise InputError(f"input {name!r}: {number} is no {ty.dtype}", remedy=f"give it a number of type {ty.dtype}")
    return GivenInput(made.reshape((1,) * len(ty.shape or ())), str(number))


def _is_same_number(made: Any, number: int | float, dtype: DType) -> bool:
    """Whether the dtype holds the number: floats may round it, but not to infinity."""
    if dtype.is_float or dtype.kind is Kind.COMPLEX:
        return bool(np.isfinite(complex(made)) == math.isfinite(number))
    return bool(made == number)


# ---- files


def _from_file(name: str, path: Path, ty: Type, sizes: Mapping[str, int]) -> GivenInput:
    if not _is_file(name, path):
        raise InputError(f"input {name!r}: there is no file {path}", remedy=f'"{RANDOM}" draws one')
    if not isinstance(ty, TensorType):
        raise UnsupportedError(
            f"input {name!r} of type {ty} cannot come from a file", remedy="use capgraph from Python"
        )
    if path.suffix.lower() == ".npy":
        return GivenInput(_read_array(name, path, ty), str(path))
    if path.suffix.lower() in _PICTURES:
        return _read_picture(name, path, ty, sizes)
    raise InputError(
        f"input {name!r}: {path.name} is neither a .npy file nor a picture",
        remedy=f"numpy.save writes .npy; pictures end in {', '.join(_PICTURES)}",
    )


def _is_file(name: str, path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:  # the name is too long, or a folder may not be searched
        raise InputError(f"input {name!r}: {path} cannot be read: {error.strerror}", remedy="check the path") from error


def _read_array(name: str, path: Path, ty: TensorType) -> Array:
    try:
        array = np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"input {name!r}: {path} cannot be read: {error}", remedy="numpy.save writes it") from error
    if array.dtype.kind == "V" and array.dtype.itemsize == ty.dtype.numpy.itemsize:
        return array.view(ty.dtype.numpy)  # .npy files do not know bf16 and smaller floats
    if ty.dtype is DType.STRING and array.dtype.kind in "US":
        return array.astype(object)
    return array


@dataclass(frozen=True)
class _Layout:
    """Where a picture's axes lie in an input: sizes that are known (None: the picture's own), and the order of axes."""

    batch: int
    channels: int
    height: int | None
    width: int | None
    channels_first: bool
    rank: int

    @classmethod
    def of(cls, name: str, ty: TensorType, sizes: Mapping[str, int]) -> "_Layout":
        rank = ty.rank if ty.shape is not None else 0
        if rank not in (2, 3, 4):
            raise InputError(f"input {name!r} of type {ty} is no picture", remedy="give it a .npy file")
        known = [_known_size(dim, sizes) for dim in ty.dims]
        batch = (known[0] if known[0] is not None else 1) if rank == 4 else 1
        if rank == 2:
            return cls(batch, 1, known[0], known[1], True, rank)
        first, middle, last = known[-3:]
        if first not in _MODES and last in _MODES:
            return cls(batch, last, first, middle, False, rank)
        channels = 3 if first is None else first
        if channels not in _MODES:
            raise InputError(
                f"input {name!r} of type {ty} has {channels} channels: a picture has 1, 3 or 4",
                remedy="give it a .npy file",
            )
        return cls(batch, channels, middle, last, True, rank)

    def arranged(self, pixels: Array) -> Array:
        """Pixels [H, W, C] as the input wants them, repeated over the batch."""
        if self.rank == 2:
            return np.ascontiguousarray(pixels[:, :, 0])
        picture = pixels.transpose(2, 0, 1) if self.channels_first else pixels
        repeated = np.broadcast_to(picture, (self.batch, *picture.shape)) if self.rank == 4 else picture
        return np.ascontiguousarray(repeated)

    @property
    def text(self) -> str:
        channels_first = {2: "HW", 3: "CHW", 4: "NCHW"}[self.rank]
        return channels_first if self.channels_first else channels_first.replace("CHW", "HWC")


def _read_picture(name: str, path: Path, ty: TensorType, sizes: Mapping[str, int]) -> GivenInput:
    layout = _Layout.of(name, ty, sizes)
    if not ty.dtype.is_float and ty.dtype is not DType.U8:
        raise InputError(
            f"input {name!r} of type {ty} is no picture: pixels are floats or u8", remedy="use a .npy file"
        )
    pixels = _pixels(name, path, layout)
    size = f"resized and cropped to {pixels.shape[1]} x {pixels.shape[0]}"
    if ty.dtype is DType.U8:
        return GivenInput(layout.arranged(pixels), f"{path}, {size}, {layout.text}, pixels 0 to 255")
    scaled = (pixels.astype(np.float32) / 255).astype(ty.dtype.numpy)
    return GivenInput(layout.arranged(scaled), f"{path}, {size}, {layout.text}, pixels divided by 255")


def _pixels(name: str, path: Path, layout: _Layout) -> Array:
    """The picture as u8 [H, W, C]: turned upright, resized until it covers the input's size, cropped in the middle."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise MissingPackageError(
            "pictures need the package Pillow", remedy='pip install "capgraph[pictures]"'
        ) from error
    try:
        with Image.open(path) as opened:
            upright = ImageOps.exif_transpose(opened).convert(_MODES[layout.channels])
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"input {name!r}: {path} cannot be read as a picture: {error}") from error
    size = (layout.width or upright.width, layout.height or upright.height)
    fitted = ImageOps.fit(upright, size, method=Image.Resampling.BICUBIC)
    return np.asarray(fitted, dtype=np.uint8).reshape(size[1], size[0], layout.channels)
