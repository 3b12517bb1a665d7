"""Cases of `op_table`: ops that PyTorch composes of several kernels; spectra, linear algebra, boxes at more sizes."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .op_cases import row
from .op_cases_heavy import vision

MOST_BOXES = 1000


def _one_hot(x: Any) -> Any:
    return F.one_hot(x.argmax(-1), x.shape[-1]).to(x.dtype)


def _reversed(x: Any, lengths: Any) -> Any:
    steps = torch.arange(x.shape[0], device=x.device)[:, None]
    places = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x.gather(0, places[..., None].expand(x.shape))


def _quantized(x: Any) -> Any:
    least, most = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = (most - least) / 255
    zero = (-least / scale).round().clamp(0, 255)
    return ((x / scale).round() + zero).clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


def _quantized_product(a: Any, b: Any) -> Any:
    return (torch._int_mm(a, b) * 0.001).round().clamp(-128, 127).to(torch.int8)


def _ours_quantized_product(b: Any, left: Any, right: Any) -> Any:
    scale, thousandth = b.constant(np.float32(1)), b.constant(np.float32(1000))
    zero = b.constant(np.int8(0))
    return b.op("qlinear_matmul", left, scale, zero, right, scale, zero, thousandth, zero)


def _ordered(boxes: Any, scores: Any) -> Any:
    low, high = boxes[0].view(-1, 2, 2).amin(1), boxes[0].view(-1, 2, 2).amax(1)
    return torch.cat((low, high), 1), scores[0, 0].contiguous()


def _kept(boxes: Any, scores: Any) -> Any:
    found = vision("nms")(boxes, scores, 0.5)
    return F.pad(found[:, None], (2, 0))


def _ours_kept(b: Any, boxes: Any, scores: Any) -> Any:
    limits = b.constant(np.array(MOST_BOXES, np.int64)), b.constant(np.float32(0.5))
    return b.op("non_max_suppression", boxes, scores, *limits, None)


COMPOSED = (
    row("hardmax", _one_hot, "1x50257", "4096x1024", "32x197x768"),
    row("reverse_sequence", _reversed, "128x32x256 i64:32<129", "2048x8x1024 i64:8<2049", "16x1x64 i64:1<17"),
    row("dynamic_quantize_linear", _quantized, "1x768", "4096x4096", "32x197x768", dtypes="f32"),
    row(
        "qlinear_matmul",
        _quantized_product,
        "1024x1024<100 =1024x1024<100",
        "128x768<100 =768x3072<100",
        dtypes="i8",
        ours=_ours_quantized_product,
    ),
    row(
        "dynamic_trilu",
        torch.tril,
        "4096x4096 i64:()<3",
        "32x512x512 i64:()<3",
        given=lambda x, k: (x, int(k)),
        upper=False,
    ),
    row(
        "non_max_suppression",
        _kept,
        "1x1000x4 1x1x1000",
        dtypes="f32",
        given=_ordered,
        ours=_ours_kept,
    ),
    row(
        "max_roi_pool",
        lambda x, r: vision("roi_pool")(x, r, (7, 7), 16.0),
        "2x256x50x50 512x5+",
        "1x64x28x28 8x5+",
        output_size=(7, 7),
        spatial_scale=16.0,
    ),
    row(
        "roi_align",
        lambda x, r, i: vision("roi_align")(x, torch.cat((i[:, None].to(r.dtype), r), 1), 7, 8.0, 2, aligned=True),
        "2x64x50x50 32x4+ i64:32<2",
        label="roi_align-wide",
        output_size=(7, 7),
        sampling_ratio=2,
        spatial_scale=8.0,
    ),
)

SPECTRA = (
    row(
        "dft",
        lambda x: torch.view_as_real(torch.fft.rfft(x[..., 0])),
        "1x1024x1",
        "256x1000x1",
        "8x100003x1",
        "1x1048576x1",
        dtypes="f32",
        label="rfft",
        axis=1,
        onesided=True,
    ),
    row(
        "dft",
        lambda x: torch.fft.irfft(torch.view_as_complex(x), 4096)[..., None],
        "64x2049x2",
        dtypes="f32",
        label="irfft",
        axis=1,
        onesided=True,
        inverse=True,
        length=4096,
    ),
    row(
        "dft",
        lambda x: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), dim=1)),
        "64x4096x2",
        "1x65536x2",
        dtypes="f32",
        label="ifft",
        axis=1,
        inverse=True,
    ),
    row(
        "dft",
        lambda x: torch.view_as_real(torch.fft.fft(torch.view_as_complex(x), dim=1)),
        "1x128x2",
        "32x480x64x2",
        dtypes="f32",
        label="fft",
        axis=1,
    ),
    row(
        "dft",
        lambda x: torch.view_as_real(torch.fft.rfft(x[..., 0])),
        "64x4096x1",
        dtypes="f16",
        label="rfft-half",
        axis=1,
        onesided=True,
        tolerance=2.0,
    ),
)

ALGEBRA = (
    row("det", torch.linalg.det, "1x8x8", "4096x8x8", "16x128x128", dtypes="f32", tolerance=10.0),
    row(
        "matmul_integer",
        torch._int_mm,
        "i8:128x768<100 =i8:768x3072<100",
        "i8:64x2048<100 =i8:2048x2048<100",
        dtypes="i8",
    ),
    row(
        "grouped_matmul",
        lambda a, b, ends: torch._grouped_mm(a, b, offs=ends),
        "2048x2048 60x2048x2816 i32:60/34",
        "4096x4096 8x4096x14336 i32:8/512",
        dtypes="bf16",
        tolerance=3.0,
    ),
    row(
        "deform_conv",
        lambda x, w, o: vision("deform_conv2d")(x, o, w, padding=1),
        "1x16x28x28 =16x16x3x3 1x18x28x28~",
        "16x128x28x28 =128x128x3x3 16x18x28x28~",
        tolerance=3.0,
        strides=(1, 1),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
    ),
)

CASES = (*COMPOSED, *SPECTRA, *ALGEBRA)
