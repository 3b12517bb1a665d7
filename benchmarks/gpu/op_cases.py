"""What `op_table` measures: a line of data for each op, with PyTorch's function, sizes and dtypes.

An operand is `[=][DTYPE:]SHAPE[MARK]`: `=` makes it a constant of our graph, without a dtype it has that of the case.
Marks say what is drawn instead of normal numbers: `+` from 0.5 to 1.5, `~` from -0.9 to 0.9, `%` from -0.05 to 0.05,
`^` from 1.1 to 3, `<N` integers below N, `@N` distinct ones, `#` 0, 1, 2, ..., `/N` N, 2 N, 3 N, ...
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Value
from capgraph.ir.ops import native

Build = Callable[..., Any]

FLOATS = "f16 f32"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

ELEMENTS = ("1x768", "4096x4096", "32x197x768")
"""A narrow, a wide and a batched size."""

_OPERAND = re.compile(r"(=?)(?:(\w+):)?(\([^)]*\)|[\dx]+)([+~^#%]|[@</]\d+)?")


@dataclass(frozen=True)
class Operand:
    """An operand: whether it is a constant of our graph, its dtype and shape, and the mark that says what is drawn."""

    is_constant: bool
    dtype: str
    shape: tuple[int, ...]
    mark: str

    @classmethod
    def parse(cls, text: str, dtype: str) -> "Operand":
        found = _OPERAND.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no operand")
        constant, own, shape, mark = found.groups()
        sizes = () if shape.startswith("(") else tuple(int(size) for size in shape.split("x"))
        return cls(bool(constant), own or dtype, sizes, mark or "")

    @property
    def type(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Case:
    """One size and dtype of an op. `theirs` is PyTorch's; `given` turns our operands into PyTorch's beforehand.

    `compared` is how many results are compared (the others may differ where elements are equal), each divided by
    `scale` where errors grow with the length of sums.
    """

    name: str
    op: str
    operands: tuple[Operand, ...]
    ours: Callable[[Builder, tuple[Value, ...]], list[Value]]
    theirs: Build
    given: Build | None = None
    compared: int | None = None
    tolerance: float = 1.0


@dataclass(frozen=True)
class Row:
    """An op at several sizes and dtypes."""

    op: str
    theirs: Build
    sizes: tuple[str, ...] = ELEMENTS
    dtypes: str = FLOATS
    ours: Build | None = None
    label: str = ""
    given: Build | None = None
    compared: int | None = None
    tolerance: float = 1.0
    attrs: dict[str, Any] = field(default_factory=dict)

    def cases(self) -> Iterator[Case]:
        for size in self.sizes:
            for dtype in self.dtypes.split():
                operands = tuple(Operand.parse(text, dtype) for text in size.split())
                shapes = " ".join(re.sub(r"[=+~^#%]|[@</]\d+|\w+:", "", text) for text in size.split())
                name = f"{self.label or self.op} {shapes} {dtype}"
                ours, theirs = self._of(dtype)
                yield Case(name, self.op, operands, ours, theirs, self.given, self.compared, self.tolerance)

    def _of(self, dtype: str) -> tuple[Callable[[Builder, tuple[Value, ...]], list[Value]], Build]:
        def ours(b: Builder, values: tuple[Value, ...]) -> list[Value]:
            if self.ours is not None:
                made = self.ours(b, *values)
                return list(made) if isinstance(made, (list, tuple)) else [made]
            signature = native(self.op).operands
            absent = () if signature and signature[-1].is_variadic else (None,) * (len(signature) - len(values))
            return list(b.ops(self.op, *values, *absent, **self.attrs))

        return ours, self.theirs


def row(op: str, theirs: Build, *sizes: str, dtypes: str = FLOATS, **rest: Any) -> Row:
    """A row; what `Row` does not know are attributes of the op."""
    known = {name: rest.pop(name) for name in ("ours", "label", "given", "compared", "tolerance") if name in rest}
    return Row(op, theirs, sizes or ELEMENTS, dtypes, attrs=rest, **known)


def pairs(mark: str = "") -> tuple[str, ...]:
    """Two operands of each of the usual sizes."""
    return tuple(f"{size} {size}{mark}" for size in ELEMENTS)


def marked(mark: str) -> tuple[str, ...]:
    return tuple(size + mark for size in ELEMENTS)


def flat(b: Builder, x: Value) -> Value:
    """The elements in row-major order: what is a view otherwise is moved."""
    return b.op("reshape", x, shape=(math.prod(int(size) for size in x.shape),))


# ---- elementwise

ACTIVATIONS = (
    row("relu", F.relu),
    row("leaky_relu", F.leaky_relu),
    row("elu", F.elu),
    row("selu", F.selu),
    row("celu", F.celu),
    row("thresholded_relu", lambda x: F.threshold(x, 1.0, 0.0)),
    row("hard_sigmoid", F.hardsigmoid, alpha=1 / 6, beta=0.5),
    row("hard_swish", F.hardswish),
    row("sigmoid", torch.sigmoid),
    row("softplus", F.softplus),
    row("softsign", F.softsign),
    row("mish", F.mish),
    row("gelu", F.gelu),
    row("gelu", lambda x: F.gelu(x, approximate="tanh"), label="gelu-tanh", approximate="tanh"),
    row("silu", F.silu),
    row("shrink", F.hardshrink),
    row("prelu", F.prelu, "1x768 1", "4096x4096 1", "32x64x56x56 1"),
)

UNARY = (
    row("neg", torch.neg),
    row("abs", torch.abs),
    row("sign", torch.sign),
    row("floor", torch.floor),
    row("ceil", torch.ceil),
    row("round", torch.round),
    row("reciprocal", torch.reciprocal, *marked("+")),
    row("sqrt", torch.sqrt, *marked("+")),
    row("rsqrt", torch.rsqrt, *marked("+")),
    row("exp", torch.exp),
    row("log", torch.log, *marked("+")),
    row("erf", torch.erf),
    row("sin", torch.sin),
    row("cos", torch.cos),
    row("tan", torch.tan, *marked("~")),
    row("asin", torch.asin, *marked("~")),
    row("acos", torch.acos, *marked("~")),
    row("atan", torch.atan),
    row("sinh", torch.sinh),
    row("cosh", torch.cosh),
    row("tanh", torch.tanh),
    row("asinh", torch.asinh),
    row("acosh", torch.acosh, *marked("^")),
    row("atanh", torch.atanh, *marked("~")),
    row("is_nan", torch.isnan),
    row("is_inf", torch.isinf),
    row("logical_not", torch.logical_not, dtypes="bool"),
    row("bitwise_not", torch.bitwise_not, dtypes="i32"),
)

BINARY = (
    row("add", torch.add, *pairs(), dtypes="f16 bf16 f32 i64"),
    row("add", torch.add, "4096x4096 4096", "32x197x768 768", "64x256x56x56 256x1x1", label="add-broadcast"),
    row("sub", torch.sub, *pairs()),
    row("mul", torch.mul, *pairs()),
    row("div", torch.div, *pairs("+")),
    row("div", lambda a, b: torch.div(a, b, rounding_mode="trunc"), "4096x4096<1000 4096x4096^", dtypes="i32"),
    row("mod", torch.remainder, *pairs("+")),
    row("fmod", torch.fmod, *pairs("+")),
    row("pow", torch.pow, *(f"{size}+ {size}" for size in ELEMENTS)),
    row("min", torch.minimum, *pairs()),
    row("max", torch.maximum, *pairs()),
    row("clip", torch.clamp, *(f"{size} =()~ =()^" for size in ELEMENTS)),
    row("logical_and", torch.logical_and, *pairs(), dtypes="bool"),
    row("logical_or", torch.logical_or, *pairs(), dtypes="bool"),
    row("logical_xor", torch.logical_xor, *pairs(), dtypes="bool"),
    row("bitwise_and", torch.bitwise_and, *pairs(), dtypes="i32"),
    row("bitwise_or", torch.bitwise_or, *pairs(), dtypes="i32"),
    row("bitwise_xor", torch.bitwise_xor, *pairs(), dtypes="i32"),
    row("shift_left", torch.bitwise_left_shift, *pairs("<31"), dtypes="i32"),
    row("shift_right", torch.bitwise_right_shift, *pairs("<31"), dtypes="i32"),
    row("equal", torch.eq, *pairs()),
    row("not_equal", torch.ne, *pairs()),
    row("less", torch.lt, *pairs()),
    row("less_equal", torch.le, *pairs()),
    row("greater", torch.gt, *pairs()),
    row("greater_equal", torch.ge, *pairs()),
    row("where", torch.where, *(f"bool:{size} {size} {size}" for size in ELEMENTS)),
)


def _to(dtype: torch.dtype) -> Build:
    return lambda x: x.to(dtype)


def _quantized(x: Any) -> Any:
    least, most = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (most - least) / torch.full_like(most, 255)  # by a number it would be a product
    zero = (-least / scale).round().clamp(0, 255)
    return ((x / scale).round() + zero).clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


CASTS = (
    row("cast", _to(torch.float32), dtypes="f16 bf16 i64", label="cast-f32", to="f32"),
    row("cast", _to(torch.float16), dtypes="f32", label="cast-f16", to="f16"),
    row("cast", _to(torch.bfloat16), dtypes="f32", label="cast-bf16", to="bf16"),
    row("cast", _to(torch.int32), dtypes="f32", label="cast-i32", to="i32"),
    row("cast", _to(torch.int64), "4096x4096", dtypes="i32", label="cast-i64", to="i64"),
    row("cast", _to(torch.bool), "4096x4096", dtypes="f16", label="cast-bool", to="bool"),
    row(
        "quantize_linear",
        lambda x, s, z: torch.clamp(torch.round(x / s) + z, 0, 255).to(torch.uint8),
        *(f"{size} =()^ =u8:()<128" for size in ELEMENTS),
        to="u8",
        compared=0,
    ),
    *(
        row(
            "dequantize_linear",
            lambda x, s, z: ((x.float() - z.float()) * s).to(s.dtype),
            *(f"u8:{size}<255 ={dtype}:()+ =u8:()<128" for size in ELEMENTS),
            dtypes=dtype,
            to=dtype,
        )
        for dtype in FLOATS.split()
    ),
    row("dynamic_quantize_linear", _quantized, dtypes="f32"),
)

# ---- moves


def _moved(op: str, theirs: Build, *sizes: str, dtypes: str = FLOATS, label: str = "", **attrs: Any) -> Row:
    """A view whose elements are moved."""
    return row(op, theirs, *sizes, dtypes=dtypes, label=label, ours=lambda b, x: flat(b, b.op(op, x, **attrs)))


def _permuted(*perm: int) -> Build:
    return lambda x: x.permute(perm).contiguous().view(-1)


def _counted(limit: int, dtype: str) -> Row:
    kind = {"i64": torch.int64, "f32": torch.float32}[dtype]

    def theirs() -> Any:
        return torch.arange(limit, device=DEVICE, dtype=kind)

    return row("arange", theirs, "", dtypes=dtype, label=f"arange {limit}", limit=limit, dtype=dtype)


def _reversed(x: Any, lengths: Any) -> Any:
    steps = torch.arange(x.shape[0], device=x.device)[:, None]
    places = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x.gather(0, places[..., None].expand(x.shape))


MOVES = (
    _moved("transpose", _permuted(1, 0), "64x768", "4096x8192", dtypes="f16 f32 u8", perm=(1, 0)),
    _moved("transpose", _permuted(0, 2, 1), "32x197x768", label="transpose-021", perm=(0, 2, 1)),
    _moved(
        "transpose", _permuted(0, 2, 1, 3), "32x12x512x64", "1x32x128x64", label="transpose-0213", perm=(0, 2, 1, 3)
    ),
    _moved("transpose", _permuted(0, 2, 3, 1), "32x64x56x56", label="transpose-0231", perm=(0, 2, 3, 1)),
    _moved("transpose", _permuted(0, 3, 1, 2), "32x56x56x64", label="transpose-0312", perm=(0, 3, 1, 2)),
    _moved("expand", lambda x: x.expand(64, 512, 768).reshape(-1), "1x1x768", "1x512x768", shape=(64, 512, 768)),
    _moved("expand", lambda x: x.expand(8, 768).reshape(-1), "1x768", label="expand-8", shape=(8, 768)),
    row("tile", lambda x: x.repeat(4, 4), "1x768", "1024x1024", repeats=(4, 4)),
    row("tile", lambda x: x.repeat(1, 2, 2), "32x128x256", label="tile-batched", repeats=(1, 2, 2)),
    _moved(
        "slice",
        lambda x: x[:, 64:4000].reshape(-1),
        "1x4096",
        "4096x4096",
        "8x4096x256",
        axes=(1,),
        starts=(64,),
        ends=(4000,),
        steps=(1,),
    ),
    _moved(
        "slice",
        lambda x: x[:, ::2].reshape(-1),
        "4096x4096",
        label="slice-2",
        axes=(1,),
        starts=(0,),
        ends=(4096,),
        steps=(2,),
    ),
    row(
        "split",
        lambda x: [part.reshape(-1) for part in x.split((1024, 1024, 2048), 1)],
        "1x4096",
        "4096x4096",
        "8x4096x256",
        ours=lambda b, x: [flat(b, part) for part in b.ops("split", x, axis=1, sizes=(1024, 1024, 2048))],
    ),
    row(
        "concat",
        lambda *xs: torch.cat(xs, 1),
        "4096x1024 4096x2048 4096x1024",
        "8x64x56x56 8x64x56x56",
        "32x1x768 32x196x768",
        axis=1,
    ),
    row("concat", lambda *xs: torch.cat(xs, 0), "2048x4096 2048x4096", label="concat-0", axis=0),
    *(
        row(op, theirs, *sizes, block_size=2, mode="CRD")
        for op, theirs, sizes in (
            ("depth_to_space", lambda x: F.pixel_shuffle(x, 2), ("1x16x32x32", "16x64x128x128", "8x256x32x32")),
            ("space_to_depth", lambda x: F.pixel_unshuffle(x, 2), ("1x4x64x64", "16x16x256x256", "8x64x64x64")),
        )
    ),
    row("reverse", lambda x: x.flip(1), axes=(1,)),
    row("reverse", lambda x: x.flip(0), "4096x4096", label="reverse-0", axes=(0,)),
    row(
        "roll",
        lambda x: x.roll((3, 3), (1, 2)),
        "1x14x14x384",
        "32x56x56x96",
        "8x28x28x192",
        axes=(1, 2),
        shifts=(3, 3),
    ),
    row(
        "pad",
        lambda x: F.pad(x, (1, 1, 1, 1)),
        "32x64x56x56",
        "1x3x224x224",
        "8x512x7x7",
        pads=(0, 0, 1, 1, 0, 0, 1, 1),
    ),
    row(
        "pad",
        lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"),
        "32x64x56x56",
        label="pad-reflect",
        pads=(0, 0, 2, 2, 0, 0, 2, 2),
        mode="reflect",
    ),
    row(
        "pad",
        lambda x: F.pad(x, (2, 2, 2, 2), mode="replicate"),
        "32x64x56x56",
        label="pad-edge",
        pads=(0, 0, 2, 2, 0, 0, 2, 2),
        mode="edge",
    ),
    row("trilu", torch.tril, "1x128x128", "4096x4096", "96x512x512", upper=False),
    row("trilu", torch.triu, "4096x4096", label="trilu-upper", upper=True),
    *(_counted(limit, dtype) for limit in (768, 1 << 20, 1 << 24) for dtype in ("i64", "f32")),
    row("eye_like", lambda x: torch.eye(*x.shape, device=x.device, dtype=x.dtype), "64x64", "4096x4096", "1024x4096"),
    row("reverse_sequence", _reversed, "128x32x256 i64:32<129", "2048x8x1024 i64:8<2049", "16x1x64 i64:1<17"),
    row(
        "dynamic_trilu",
        torch.tril,
        "1x128x128 i64:()<3",
        "4096x4096 i64:()<3",
        "32x512x512 i64:()<3",
        given=lambda x, k: (x, int(k)),
        upper=False,
    ),
)


# ---- reads and writes at indices


def _rows_at(x: Any, indices: Any) -> Any:
    return F.embedding(indices, x)


INDEXING = (
    row(
        "gather",
        _rows_at,
        "30522x768 i64:32x128<30522",
        "128256x2048 i64:1x1<128256",
        "32000x4096 i64:8x512<32000",
        axis=0,
    ),
    row("gather", lambda x, i: x.index_select(1, i), "4096x4096 i64:1024<4096", label="gather-1", axis=1),
    row(
        "gather_elements",
        lambda x, i: x.gather(1, i),
        "1024x4096 i64:1024x4096<4096",
        "64x50257 i64:64x1<50257",
        axis=1,
    ),
    row(
        "gather_elements",
        lambda x, i: x.gather(0, i),
        "4096x1024 i64:4096x1024<4096",
        label="gather_elements-0",
        axis=0,
    ),
    row(
        "gather_nd",
        lambda x, i: x[i[:, 0], i[:, 1]],
        "32x128 i64:1x2<32",
        "512x512x64 i64:65536x2<512",
        "64x197x768 i64:64x2<64",
    ),
    row(
        "one_hot",
        lambda i, v: F.one_hot(i, 1024),
        "i64:1<1024 =i64:2#",
        "i64:8192<1024 =i64:2#",
        "i64:32x128<1024 =i64:2#",
        dtypes="i64",
        depth=1024,
    ),
    row(
        "tensor_scatter",
        lambda x, u, p: x.index_copy(2, p + torch.arange(u.shape[2], device=p.device), u),
        "1x8x2048x64 1x8x1x64 i64:1<2000",
        "1x8x4096x128 1x8x16x128 i64:1<4000",
        "1x32x256x128 1x32x4x128 i64:1<200",
        axis=2,
    ),
    row(
        "scatter_elements",
        lambda x, i, u: x.scatter(1, i, u),
        "1x50257 i64:1x1@50257 1x1",
        "1024x4096 i64:1024x4096@4096 1024x4096",
        "32x768 i64:32x64@768 32x64",
        axis=1,
    ),
    row(
        "scatter_elements",
        lambda x, i, u: x.scatter_add(1, i, u),
        "1024x4096 i64:1024x4096<4096 1024x4096",
        "64x512 i64:64x512<512 64x512",
        label="scatter_add",
        axis=1,
        reduction="add",
        tolerance=4.0,
    ),
    row(
        "scatter_elements",
        lambda x, i, u: x.scatter_reduce(1, i, u, "amax"),
        "1024x4096 i64:1024x4096<4096 1024x4096",
        label="scatter_amax",
        dtypes="f32",
        axis=1,
        reduction="max",
    ),
    row(
        "scatter_nd",
        lambda x, i, u: x.index_put((i[:, 0],), u),
        "65536x128 i64:4096x1@65536 4096x128",
        dtypes="f16 f32",
    ),
    row(
        "scatter_nd",
        lambda x, i, u: x.index_add(0, i[:, 0], u),
        "65536x128 i64:65536x1<65536 65536x128",
        "2708x16 i64:10556x1<2708 10556x16",
        label="index_add",
        reduction="add",
        tolerance=4.0,
    ),
)

CASES = (*ACTIVATIONS, *UNARY, *BINARY, *CASTS, *MOVES, *INDEXING)
