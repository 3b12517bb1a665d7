"""Cases of `op_table`: matmuls, convolutions, attention, cells, boxes."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .op_cases import Build, row


def _one_by_one(rank: int) -> dict[str, Any]:
    return {"strides": (1,) * rank, "pads": (0,) * 2 * rank, "dilations": (1,) * rank}


def _conv(
    theirs: Build, *sizes: str, stride: int = 1, pad: int = 0, groups: int = 1, label: str, dtypes: str = "f16 f32"
) -> Any:
    rank = len(sizes[0].split()[0].split("x")) - 2
    attrs = {"strides": (stride,) * rank, "pads": (pad,) * 2 * rank, "dilations": (1,) * rank, "groups": groups}
    return row(
        "conv",
        lambda *v: theirs(*v, stride=stride, padding=pad, groups=groups),
        *sizes,
        dtypes=dtypes,
        label=label,
        tolerance=3.0,
        **attrs,
    )


def _channels_last(size: str, *, takes: bool = False, gives: bool = False, label: str) -> Any:
    """A 3 x 3 convolution whose image (`takes`) or result (`gives`) is [N, H, W, C], as inside of a model."""

    def ours(b: Any, x: Any, *weights: Any) -> Any:
        attrs = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "groups": 1}
        y = b.op("conv", b.op("transpose", x, perm=(0, 3, 1, 2)) if takes else x, *weights, **attrs)
        return b.op("transpose", y, perm=(0, 2, 3, 1)) if gives else y

    def theirs(x: Any, *weights: Any) -> Any:
        image = x.permute(0, 3, 1, 2) if takes else x.contiguous(memory_format=torch.channels_last)
        y = F.conv2d(image, *weights, padding=1)
        return y.permute(0, 2, 3, 1) if gives else y

    return row("conv", theirs, size, dtypes="f16 bf16", label=label, tolerance=3.0, ours=ours)


def _transposed(theirs: Build, *sizes: str, stride: int, pad: int, label: str) -> Any:
    rank = len(sizes[0].split()[0].split("x")) - 2
    attrs = {
        "strides": (stride,) * rank,
        "pads": (pad,) * 2 * rank,
        "dilations": (1,) * rank,
        "output_padding": (0,) * rank,
    }
    return row(
        "conv_transpose", lambda *v: theirs(*v, stride=stride, padding=pad), *sizes, label=label, tolerance=3.0, **attrs
    )


def _grouped(*sizes: str, dtypes: str) -> Any:
    return row(
        "grouped_matmul",
        lambda a, b, ends: torch._grouped_mm(a, b, offs=ends),
        *sizes,
        dtypes=dtypes,
        tolerance=3.0,
    )


def _quantized_matmul(a: Any, b: Any) -> Any:
    return (torch._int_mm(a, b) * 0.001).round().clamp(-128, 127).to(torch.int8)


def _ours_quantized_matmul(b: Any, left: Any, right: Any) -> Any:
    scale, thousandth = b.constant(np.float32(1)), b.constant(np.float32(1000))
    zero = b.constant(np.int8(0))
    return b.op("qlinear_matmul", left, scale, zero, right, scale, zero, thousandth, zero)


MATMULS = (
    row(
        "matmul",
        torch.matmul,
        "4096x4096 =4096x4096",
        "1x2048 =2048x2048",
        "128x768 =768x768",
        "1024x1024 =1024x4096",
        dtypes="f16 bf16 f32",
        tolerance=3.0,
    ),
    row(
        "matmul",
        torch.matmul,
        "96x512x64 96x64x512",
        "96x512x512 96x512x64",
        "12x128x64 12x64x128",
        label="bmm",
        tolerance=3.0,
    ),
    row("matmul", torch.matmul, "1024x768 =768x50257", dtypes="f16", label="matmul-odd", tolerance=3.0),
    row(
        "gemm",
        F.linear,
        "1x768 =3072x768 =3072",
        "128x768 =3072x768 =3072",
        "16x2048 =2048x2048 =2048",
        trans_b=True,
        tolerance=3.0,
    ),
    row(
        "einsum",
        lambda a, b: torch.einsum("bhqd,bhkd->bhqk", a, b),
        "8x12x512x64 8x12x512x64",
        equation="bhqd,bhkd->bhqk",
        tolerance=3.0,
    ),
    row(
        "einsum",
        lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        "1x64x64 1x64x64",
        "64x256x256 64x256x256",
        label="einsum-batched",
        equation="bij,bjk->bik",
        tolerance=3.0,
    ),
    row(
        "matmul_integer",
        torch._int_mm,
        "i8:1024x1024<100 =i8:1024x1024<100",
        "i8:128x768<100 =i8:768x3072<100",
        "i8:64x2048<100 =i8:2048x2048<100",
        dtypes="i8",
    ),
    row(
        "qlinear_matmul",
        _quantized_matmul,
        "1024x1024<100 =1024x1024<100",
        "128x768<100 =768x3072<100",
        "32x2048<100 =2048x2048<100",
        dtypes="i8",
        ours=_ours_quantized_matmul,
    ),
    _grouped("4096x1024 8x1024x2048 i32:8/512", "64x2048 16x2048x1024 i32:16/4", dtypes="bf16 f16 f32"),
    _grouped("2048x2048 60x2048x2816 i32:60/34", "4096x4096 8x4096x14336 i32:8/512", dtypes="bf16"),
    row(
        "det",
        torch.linalg.det,
        "64x32x32",
        "1x8x8",
        "4096x8x8",
        "16x128x128",
        dtypes="f32",
        tolerance=10.0,
    ),
)

CONVOLUTIONS = (
    _conv(F.conv2d, "1x64x56x56 =64x64x3x3 =64", "32x256x28x28 =256x256x3x3 =256", pad=1, label="conv 3x3"),
    _conv(F.conv2d, "1x256x56x56 =64x256x1x1 =64", "32x256x56x56 =64x256x1x1 =64", label="conv 1x1"),
    _conv(F.conv2d, "8x3x224x224 =64x3x7x7 =64", stride=2, pad=3, label="conv stem"),
    _conv(F.conv2d, "8x3x224x224 =768x3x16x16 =768", stride=16, label="conv patch"),
    _channels_last("8x256x256x64 =3x64x3x3 =3", takes=True, label="conv2d 64 to 3"),
    _channels_last("2x64x64x320 =4x320x3x3 =4", takes=True, gives=True, label="conv2d 320 to 4"),
    _channels_last("8x3x512x512 =64x3x3x3 =64", gives=True, label="conv2d 3 to 64"),
    _conv(F.conv2d, "8x3x512x512 =64x3x3x3 =64", pad=1, label="conv2d 3 to 64 in rows", dtypes="f16"),
    _conv(F.conv1d, "8x32x24000 =1x32x7 =1", "8x1x24000 =32x1x7 =32", pad=3, label="conv1d few", dtypes="f16"),
    _conv(F.conv1d, "4x512x1500 =512x512x3 =512", "1x80x3000 =384x80x3 =384", pad=1, label="conv1d"),
    _conv(F.conv3d, "1x64x16x56x56 =64x64x3x3x3 =64", pad=1, label="conv3d"),
    _conv(
        F.conv2d, "8x384x28x28 =384x1x7x7 =384", "1x384x28x28 =384x1x7x7 =384", pad=3, groups=384, label="depthwise 7x7"
    ),
    _conv(F.conv2d, "32x144x56x56 =144x1x3x3 =144", pad=1, groups=144, label="depthwise 3x3"),
    _conv(F.conv2d, "8x256x28x28 =256x8x3x3 =256", pad=1, groups=32, label="conv grouped"),
    _transposed(F.conv_transpose2d, "4x256x32x32 =256x128x2x2 =128", stride=2, pad=0, label="conv_transpose2d"),
    _transposed(F.conv_transpose2d, "4x256x32x32 =256x128x4x4 =128", stride=2, pad=1, label="conv_transpose2d 4x4"),
    _transposed(F.conv_transpose1d, "1x512x128 =512x256x16 =256", stride=8, pad=4, label="conv_transpose1d"),
)


def _attention(label: str, *sizes: str, dtypes: str = "f16 f32", causal: bool = False, grouped: bool = False) -> Any:
    def theirs(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=grouped)

    return row("attention", theirs, *sizes, dtypes=dtypes, label=label, causal=causal, tolerance=2.0)


def _square(shape: str) -> str:
    return " ".join([shape] * 3)


def _rotated(x: Any, c: Any, s: Any) -> Any:
    left, right = x.chunk(2, -1)
    c, s = c[:, None], s[:, None]
    return torch.cat((left * c - right * s, right * c + left * s), -1)


ATTENTION = (
    _attention("attention", _square("1x12x128x64"), _square("8x12x512x64"), _square("1x16x4096x64")),
    _attention("attention-narrow", _square("8x4x1024x36"), _square("8x4x256x60"), dtypes="f16 bf16 f32"),
    _attention("attention-odd", _square("4x12x512x63"), dtypes="f16"),
    _attention("attention-masked", _square("4x32x1024x64") + " 4x1x1024x1024", _square("8x12x128x64") + " 8x1x1x128"),
    _attention("attention-causal", _square("4x32x2048x128"), _square("1x32x512x64"), causal=True, dtypes="f16 bf16"),
    _attention(
        "attention-decode",
        "1x32x1x64 1x8x1024x64 1x8x1024x64",
        "8x32x1x128 8x8x4096x128 8x8x4096x128",
        grouped=True,
        dtypes="f16",
    ),
    row(
        "rotary_embedding",
        _rotated,
        "1x32x512x64 1x512x32 1x512x32",
        "8x32x1024x128 8x1024x64 8x1024x64",
        "1x32x1x64 1x1x32 1x1x32",
    ),
)


# ---- recurrent cells: PyTorch's gates stand in another order


def _reordered(weight: Any, gates: tuple[int, ...]) -> Any:
    parts = weight.chunk(len(gates), 0)
    return torch.cat([parts[gate] for gate in gates], 0).contiguous()


def _cell(gates: tuple[int, ...]) -> Build:
    def given(x: Any, w: Any, r: Any, b: Any) -> tuple[Any, ...]:
        bias = b[0].chunk(2, 0)
        parts = [_reordered(each, gates) for each in (w[0], r[0], *bias)]
        if x.is_cuda:
            parts = _flattened(parts, len(gates))
        return (x, *parts)

    return given


def _flattened(parts: list[Any], gates: int) -> list[Any]:
    """Weights in one piece, as cuDNN takes them without a copy."""
    hidden = parts[1].shape[1]
    kind = torch.nn.LSTM if gates == 4 else torch.nn.GRU if gates == 3 else torch.nn.RNN
    module = kind(parts[0].shape[1], hidden, device=parts[0].device, dtype=parts[0].dtype)
    with torch.no_grad():
        for own, each in zip(module.parameters(), parts, strict=True):
            own.copy_(each)
    module.flatten_parameters()
    return list(module.parameters())


def _start(x: Any, r: Any) -> Any:
    return x.new_zeros(1, x.shape[1], r.shape[1])


def _lstm(x: Any, *weights: Any) -> Any:
    start = _start(x, weights[1])
    y, h, c = torch._VF.lstm(x, (start, start), weights, True, 1, 0.0, False, False, False)
    return y[:, None], h, c


def _gru(x: Any, *weights: Any) -> Any:
    y, h = torch._VF.gru(x, _start(x, weights[1]), weights, True, 1, 0.0, False, False, False)
    return y[:, None], h


def _rnn(x: Any, *weights: Any) -> Any:
    y, h = torch._VF.rnn_tanh(x, _start(x, weights[1]), weights, True, 1, 0.0, False, False, False)
    return y[:, None], h


CELLS = (
    row(
        "lstm",
        _lstm,
        "64x8x256 =1x1024x256% =1x1024x256% =1x2048%",
        "128x1x512 =1x2048x512% =1x2048x512% =1x4096%",
        "32x16x128 =1x512x128% =1x512x128% =1x1024%",
        given=_cell((0, 2, 3, 1)),
        tolerance=30.0,
    ),
    row(
        "gru",
        _gru,
        "64x8x256 =1x768x256% =1x768x256% =1x1536%",
        "128x1x512 =1x1536x512% =1x1536x512% =1x3072%",
        "32x16x128 =1x384x128% =1x384x128% =1x768%",
        given=_cell((1, 0, 2)),
        linear_before_reset=True,
        tolerance=30.0,
    ),
    row(
        "rnn",
        _rnn,
        "64x8x256 =1x256x256% =1x256x256% =1x512%",
        "128x1x512 =1x512x512% =1x512x512% =1x1024%",
        "32x16x128 =1x128x128% =1x128x128% =1x256%",
        given=_cell((0,)),
        tolerance=30.0,
    ),
)

# ---- boxes, by torchvision's kernels


def vision(name: str) -> Any:
    """A function of torchvision, which only GPU machines have."""
    from torchvision import ops

    return getattr(ops, name)


MOST_BOXES = 5000


def _ordered(boxes: Any, scores: Any) -> Any:
    low, high = boxes[0].view(-1, 2, 2).amin(1), boxes[0].view(-1, 2, 2).amax(1)
    return torch.cat((low, high), 1), scores[0, 0].contiguous()


def _kept(boxes: Any, scores: Any) -> Any:
    found = vision("nms")(boxes, scores, 0.5)
    return F.pad(found[:, None], (2, 0))


def _ours_kept(b: Any, boxes: Any, scores: Any) -> Any:
    limits = b.constant(np.array(MOST_BOXES, np.int64)), b.constant(np.float32(0.5))
    return b.op("non_max_suppression", boxes, scores, *limits, None)


def _aligned(scale: float, *sizes: str, label: str) -> Any:
    return row(
        "roi_align",
        lambda x, r, i: vision("roi_align")(x, torch.cat((i[:, None].to(r.dtype), r), 1), 7, scale, 2, aligned=True),
        *sizes,
        label=label,
        tolerance=4.0,  # places in halves are rounded there
        output_size=(7, 7),
        sampling_ratio=2,
        spatial_scale=scale,
    )


BOXES = (
    _aligned(0.25, "2x256x50x50 512x4+ i64:512<2", label="roi_align"),
    _aligned(8.0, "2x64x50x50 32x4+ i64:32<2", "1x256x14x14 8x4+ i64:8<1", label="roi_align-wide"),
    row(
        "max_roi_pool",
        lambda x, r: vision("roi_pool")(x, r, (7, 7), 16.0),
        "2x256x50x50 512x5+",
        "2x64x28x28 8x5+",
        "4x128x14x14 64x5+",
        output_size=(7, 7),
        spatial_scale=16.0,
    ),
    row(
        "non_max_suppression",
        _kept,
        "1x100x4 1x1x100",
        "1x1000x4 1x1x1000",
        "1x5000x4 1x1x5000",
        dtypes="f32",
        given=_ordered,
        ours=_ours_kept,
    ),
    row(
        "deform_conv",
        lambda x, w, o: vision("deform_conv2d")(x, o, w, padding=1),
        "2x64x56x56 =64x64x3x3 2x18x56x56~",
        "1x16x28x28 =16x16x3x3 1x18x28x28~",
        "16x128x28x28 =128x128x3x3 16x18x28x28~",
        tolerance=10.0,  # PyTorch rounds positions to halves: 2.6% of the largest number, where ours is off by 0.04%
        strides=(1, 1),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
    ),
    row(
        "col2im",
        lambda x: F.fold(x, (56, 56), (3, 3), padding=1),
        "1x9x3136",
        "8x576x3136",
        "2x288x3136",
        tolerance=3.0,
        image=(56, 56),
        block=(3, 3),
        strides=(1, 1),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
    ),
)

CASES = (*MATMULS, *CONVOLUTIONS, *ATTENTION, *CELLS, *BOXES)

NOT_HERE = {
    "PyTorch has no kernel of its own": "conv_integer, qlinear_conv, mel_weight_matrix, varlen_attention",
    "nothing is computed": "constant, full, dims, dim, shape, size, reshape, squeeze, unsqueeze, bit_cast",
    "programs draw by `keyed_` ops in their stead": "random_normal, random_uniform, bernoulli, multinomial",
    "they own regions": "if, loop, scan, fused",
    "sizes are numbers in PyTorch, and the op without the prefix stands for it": "dynamic_...",
}
"""Ops without a case, by why there is none."""
