"""Cases of `op_table`: reductions, norms, order, pools, samples, spectra."""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Value

from .op_cases import Build, row

# ---- reductions

SUMS = ("16777216", "4096x1024", "32x197x768")


def _reduced(op: str, theirs: Build, *, dtypes: str = "f16 f32", label: str = "", tolerance: float = 1.0) -> Any:
    """A reduction of whole tensors, of rows, of columns, and of images."""

    def along(*axes: int) -> Build:
        return lambda b, x: b.op(op, x, axes=axes, keep_dims=False)

    label = label or op
    rest = {"dtypes": dtypes, "tolerance": tolerance}
    return (
        row(op, lambda x: theirs(x, (0,)), "16777216", ours=along(0), label=f"{label}-all", **rest),
        row(
            op,
            lambda x: theirs(x, (1,)),
            "4096x1024",
            "1x50257",
            "65536x64",
            ours=along(1),
            label=f"{label}-rows",
            **rest,
        ),
        row(op, lambda x: theirs(x, (0,)), "8192x4096", "65536x64", ours=along(0), label=f"{label}-columns", **rest),
        row(op, lambda x: theirs(x, (2, 3)), "32x256x56x56", ours=along(2, 3), label=f"{label}-images", **rest),
    )


def _some(op: str, theirs: Build, mark: str = "", **rest: Any) -> Any:
    """The rows and columns of one tensor."""
    return (
        row(
            op,
            lambda x: theirs(x, 1),
            *(f"{size}{mark}" for size in ("1x1024", "4096x1024", "32x197x768")),
            ours=lambda b, x: b.op(op, x, axes=(1,), keep_dims=False),
            **rest,
        ),
        row(
            op,
            lambda x: theirs(x, 0),
            f"8192x1024{mark}",
            label=f"{op}-columns",
            ours=lambda b, x: b.op(op, x, axes=(0,), keep_dims=False),
            **rest,
        ),
    )


def _deviation(axes: tuple[int, ...], count: int) -> Build:
    """The standard deviation with one degree of freedom less, as PyTorch's programs are imported."""

    def build(b: Builder, x: Value) -> Value:
        centered = b.op("sub", x, b.op("reduce_mean", x, axes=axes, keep_dims=True))
        squares = b.op("reduce_sum", b.op("mul", centered, centered), axes=axes, keep_dims=False)
        return b.op("sqrt", b.op("div", squares, b.constant(float(count - 1), x.tensor.dtype)))

    return build


def _argument(op: str, theirs: Build, axis: int, *sizes: str) -> Any:
    label = op if axis else f"{op}-columns"
    return row(
        op,
        lambda x: theirs(x, axis),
        *sizes,
        label=label,
        ours=lambda b, x: b.op(op, x, axis=axis, keep_dims=False),
    )


REDUCTIONS = (
    *_reduced("reduce_sum", torch.sum, dtypes="f16 f32", label="sum", tolerance=4.0),
    *_reduced("reduce_max", torch.amax, label="max"),
    row(
        "reduce_sum",
        lambda x: x.sum(1),
        "4096x1024<1000",
        dtypes="i64",
        label="sum-rows",
        ours=lambda b, x: b.op("reduce_sum", x, axes=(1,), keep_dims=False),
    ),
    row(
        "reduce_sum",
        lambda x: x.sum((0, 2, 3)),
        "32x256x56x56",
        label="sum-channels",
        tolerance=4.0,
        ours=lambda b, x: b.op("reduce_sum", x, axes=(0, 2, 3), keep_dims=False),
    ),
    row(
        "reduce_sum",
        lambda x: x.sum(1),
        "4096x1023",
        "32x197x768",
        "8192x31",
        label="sum-odd",
        tolerance=4.0,
        ours=lambda b, x: b.op("reduce_sum", x, axes=(1,), keep_dims=False),
    ),
    *_some("reduce_mean", torch.mean, "+"),
    *_some("reduce_min", torch.amin),
    row(
        "reduce_prod",
        lambda x: x.prod(1),
        "4096x1024^",
        dtypes="f32",
        ours=lambda b, x: b.op(
            "reduce_prod", b.op("rsqrt", b.op("rsqrt", b.op("rsqrt", b.op("rsqrt", x)))), axes=(1,), keep_dims=False
        ),
        given=lambda x: x.double().pow(1 / 16).float(),
        tolerance=4.0,
    ),
    row(
        "reduce_prod",
        lambda x: x.prod(1),
        "1x8^",
        "65536x8^",
        "32x8x768^",
        label="prod-short",
        ours=lambda b, x: b.op("reduce_prod", x, axes=(1,), keep_dims=False),
    ),
    *_some("reduce_l1", lambda x, a: torch.linalg.vector_norm(x, 1, a), tolerance=2.0),
    *_some("reduce_l2", lambda x, a: torch.linalg.vector_norm(x, 2, a)),
    *_some("reduce_sum_square", lambda x, a: (x * x).sum(a), tolerance=4.0),
    *_some("reduce_log_sum", lambda x, a: x.sum(a).log(), "+"),
    *_some("reduce_log_sum_exp", lambda x, a: x.logsumexp(a)),
    row(
        "reduce_sum",
        lambda x: x.std(1),
        "4096x1024",
        "32x12288",
        label="std",
        ours=lambda b, x: _deviation((1,), int(x.shape[1]))(b, x),
    ),
    row(
        "reduce_max",
        lambda x: x.any(1),
        "bool:4096x1024<2",
        label="any",
        dtypes="bool",
        ours=lambda b, x: b.op("reduce_max", x, axes=(1,), keep_dims=False),
    ),
    row(
        "reduce_min",
        lambda x: x.all(0),
        "bool:8192x1024<2",
        label="all",
        dtypes="bool",
        ours=lambda b, x: b.op("reduce_min", x, axes=(0,), keep_dims=False),
    ),
    _argument("argmax", torch.argmax, 1, "4096x1024", "1x128256", "64x50257"),
    _argument("argmax", torch.argmax, 0, "8192x1024"),
    _argument("argmin", torch.argmin, 1, "1x1024", "4096x1024", "64x50257"),
)

# ---- norms


def _one_hot(x: Any) -> Any:
    return F.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype)


NORMS = (
    row("softmax", lambda x: x.softmax(-1), "1x50257", "4096x4096", "32x12x512x512", axis=-1),
    row("softmax", lambda x: x.softmax(1), "16x1024x1024", label="softmax-columns", axis=1),
    row("log_softmax", lambda x: x.log_softmax(-1), "1x50257", "4096x4096", "8192x1000", axis=-1),
    row("hardmax", _one_hot, "1x50257", "4096x1024", "32x197x768"),
    row("lp_norm", lambda x: F.normalize(x, dim=-1), "1x768", "4096x1024", "8192x128", "32x197x768", axis=-1),
    row(
        "layer_norm",
        lambda x, s, c: F.layer_norm(x, s.shape, s, c),
        "1x768 768 768",
        "4096x4096 4096 4096",
        "32x197x768 768 768",
        "100352x96 96 96",
        "4096x4095 4095 4095",
    ),
    row("rms_norm", lambda x, s: F.rms_norm(x, s.shape, s, 1e-5), "1x2048 2048", "4096x4096 4096", "32x512x768 768"),
    row(
        "batch_norm",
        lambda x, s, c, m, v: F.batch_norm(x, m, v, s, c),
        "32x256x56x56 256 256 256 256+",
        "1x64x112x112 64 64 64 64+",
        "8x512x14x14 512 512 512 512+",
    ),
    row(
        "instance_norm",
        lambda x, s, c: F.instance_norm(x, None, None, s, c),
        "16x64x128x128 64 64",
        "1x256x56x56 256 256",
        "8x64x56x56 64 64",
    ),
    row(
        "group_norm",
        lambda x, s, c: F.group_norm(x, 32, s, c),
        "8x320x64x64 320 320",
        "1x512x64x64 512 512",
        "32x256x56x56 256 256",
        groups=32,
    ),
    row("lrn", lambda x: F.local_response_norm(x, 5), "1x64x28x28", "32x96x55x55", "8x192x27x27", size=5),
)

# ---- order


def _top(k: int) -> Build:
    return lambda x: x.topk(k, -1)


_DISTINCT = ("768<100", "1048576<1000", "32x197x768<1000")

ORDER = (
    row("sort", lambda x: x.sort(-1), "1x128256", "4096x1024", "64x50257", "8192x128", axis=-1, compared=1),
    row(
        "sort",
        lambda x: x.sort(-1, descending=True),
        "1x1048576",
        label="sort-descending",
        axis=-1,
        descending=True,
        compared=1,
    ),
    row("sort", lambda x: x.sort(0), "4096x1024", label="sort-columns", axis=0, compared=1),
    row("sort", lambda x: x.sort(-1), "65536<1000000", dtypes="i64", axis=-1, compared=1),
    *(
        row("top_k", _top(k), *sizes, label=f"top{k}", axis=-1, k=k, compared=1)
        for k, sizes in ((50, ("1x128256", "64x50257")), (8, ("4096x64", "8192x1024")), (1000, ("8x100000",)))
    ),
    row("cumsum", lambda x: x.cumsum(-1), "1x128256", "4096x1024", "64x50257", axis=-1, tolerance=8.0),
    row("cumsum", lambda x: x.cumsum(0), "8192x1024", label="cumsum-columns", axis=0, tolerance=8.0),
    row("cumsum", lambda x: x.cumsum(-1), "65536x8<2", dtypes="i64", axis=-1),
    row("cumprod", lambda x: x.cumprod(-1), "1x1024~", "4096x256~", "32x197x64~", axis=-1),
    row("cumsum", lambda x: x.cumsum(-1), "1x16777216", dtypes="i64 f32", axis=-1, tolerance=10.0),
    row("unique", torch.unique, *_DISTINCT, dtypes="i64 f16 f32", ours=lambda b, x: b.ops("unique", x)[0]),
    row(
        "unique",
        lambda x: torch.unique(x.flatten(), return_inverse=True, return_counts=True),  # ONNX's inverse is flat
        *_DISTINCT,
        dtypes="i64 f16 f32",
        label="unique-inverse",
        ours=lambda b, x: operator.itemgetter(0, 2, 3)(b.ops("unique", x)),
    ),
    row(
        "non_zero",
        lambda x: x.nonzero().T.contiguous(),
        "1024x1024<2",
        "65536<2",
        "8x64x256<2",
        dtypes="i32 f16 f32",
    ),
    row("compress", lambda x, c: x[c], "768x4 bool:768<2", "65536x128 bool:65536<2", "8x128x64 bool:8<2", axis=0),
)

# ---- pools and samples

_POOL = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
_PAIRS = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0)}


def _resized(mode: str, theirs: str, **attrs: Any) -> Any:
    def build(b: Builder, x: Value) -> Value:
        return b.op("resize", x, None, axes=(2, 3), sizes=(128, 128), mode=mode, **attrs)

    def peer(x: Any) -> Any:
        return F.interpolate(
            x, (128, 128), mode=theirs, **({} if theirs.startswith("nearest") else {"align_corners": False})
        )

    return row("resize", peer, "8x64x64x64", "1x256x32x32", "32x16x64x64", ours=build, label=f"resize-{theirs}")


SAMPLES = (
    row("max_pool", lambda x: F.max_pool2d(x, 3, 2, 1), "32x64x112x112", "1x64x112x112", **_POOL),
    row(
        "max_pool_with_indices",
        lambda x: F.max_pool2d(x, 2, 2, return_indices=True),
        "1x64x112x112",
        "32x64x56x56",
        "8x192x28x28",
        compared=1,
        dilations=(1, 1),
        **_PAIRS,
    ),
    row(
        "max_pool",
        lambda x: F.max_pool1d(x, 3, 2, 1),
        "32x64x4096",
        label="max_pool-1d",
        kernel=(3,),
        strides=(2,),
        pads=(1, 1),
        dilations=(1,),
    ),
    row(
        "average_pool",
        lambda x: F.avg_pool2d(x, 2, 2),
        "1x256x56x56",
        "32x256x56x56",
        "8x512x14x14",
        dilations=(1, 1),
        **_PAIRS,
    ),
    row(
        "average_pool",
        lambda x: F.avg_pool2d(x, 3, 1, 1),
        "8x256x28x28",
        label="average_pool-3",
        kernel=(3, 3),
        strides=(1, 1),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
        count_include_pad=True,
    ),
    row(
        "lp_pool",
        lambda x: F.lp_pool2d(x, 2, 2, 2),
        "1x64x56x56",
        "8x64x56x56",
        "32x128x28x28",
        dilations=(1, 1),
        **_PAIRS,
    ),
    row(
        "reduce_mean",
        lambda x: F.adaptive_avg_pool2d(x, 1),
        "32x2048x7x7",
        label="global_average",
        ours=lambda b, x: b.op("reduce_mean", x, axes=(2, 3)),
    ),
    row(
        "max_unpool",
        lambda x, i: F.max_unpool2d(x, i, 2, 2),
        "1x1x28x28 i64:1x1x28x28@3136",
        "1x1x448x448 i64:1x1x448x448@802816",
        "8x32x28x28 i64:8x32x28x28@3136",
        given=lambda x, i: (x, i % (4 * x.shape[2] * x.shape[3])),
        **_PAIRS,
    ),
    _resized("nearest", "nearest", coordinate_mode="asymmetric", nearest_mode="floor"),
    _resized("linear", "bilinear"),
    _resized("cubic", "bicubic"),
    row(
        "grid_sample",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        "4x64x64x64 4x64x64x2~",
        "1x3x512x512 1x512x512x2~",
        "8x32x28x28 8x14x14x2~",
        tolerance=20.0,
    ),
    row(
        "affine_grid",
        lambda t: F.affine_grid(t, (t.shape[0], 3, 256, 256), align_corners=False),
        "1x2x3",
        "8x2x3",
        "64x2x3",
        size=(256, 256),
    ),
)

# ---- spectra: PyTorch has those of f16 where lengths are powers of two


def _pairs(z: Any) -> Any:
    return torch.view_as_real(z)


def _complex(x: Any) -> Any:
    return torch.view_as_complex(x)


def _with_real_ends(x: Any) -> Any:
    """Half a spectrum whose first and last numbers have no imaginary part, at which cuFFT looks."""
    x = x.clone()
    x[:, [0, -1], 1] = 0
    return x


def _frames(length: int) -> Build:
    def build(x: Any, w: Any) -> Any:
        z = torch.stft(x[..., 0], length, 160, length, w, center=False, return_complex=True)
        return _pairs(z.transpose(1, 2)).contiguous()

    return build


SPECTRA = (
    row(
        "dft",
        lambda x: _pairs(torch.fft.rfft(x[..., 0])),
        *("1x1024x1", "64x4096x1", "256x1000x1", "8x65536x1", "8x100003x1", "1x1048576x1"),
        dtypes="f32",
        label="rfft",
        axis=1,
        onesided=True,
    ),
    row(
        "dft",
        lambda x: _pairs(torch.fft.rfft(x[..., 0])),
        *("1x1024x1", "64x4096x1"),
        dtypes="f16",
        label="rfft-half",
        axis=1,
        onesided=True,
        tolerance=2.0,
    ),
    row(
        "dft",
        lambda x: torch.fft.irfft(_complex(x), 4096)[..., None],
        *("1x2049x2", "64x2049x2"),
        dtypes="f32",
        label="irfft",
        given=_with_real_ends,
        axis=1,
        onesided=True,
        inverse=True,
        length=4096,
    ),
    row(
        "dft",
        lambda x: _pairs(torch.fft.ifft(_complex(x), dim=1)),
        *("1x128x2", "64x4096x2", "1x65536x2"),
        dtypes="f32",
        label="ifft",
        axis=1,
        inverse=True,
    ),
    row(
        "dft",
        lambda x: _pairs(torch.fft.fft(_complex(x), dim=1)),
        *("1x128x2", "64x4096x2", "1024x512x2", "32x480x64x2"),
        dtypes="f32",
        label="fft",
        axis=1,
    ),
    row(
        "stft",
        _frames(400),
        *("1x16000x1 400+", "1x480000x1 400+", "8x160000x1 400+"),
        dtypes="f32",
        frame_step=160,
        frame_length=400,
    ),
    row(
        "stft",
        _frames(512),
        *("1x16000x1 512+", "8x160000x1 512+"),
        dtypes="f16",
        label="stft-half",
        frame_step=160,
        frame_length=512,
        tolerance=2.0,
    ),
)

CASES = (*REDUCTIONS, *NORMS, *ORDER, *SAMPLES, *SPECTRA)
