"""Spectra: `dft`, `stft`, `mel_weight_matrix`. Complex numbers are pairs along a last axis of size 2."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..attrs import Attribute, AttrKind
from ..constant import Array
from ..dims import Dim, dim_max, upper_bound
from ..dims.constraints import require_equal
from ..errors import ShapeError, TypeRuleError
from ..op import FLOATS, INDICES, Op, Trait, op
from ..types import DType, TensorType
from .nn.linear import accumulated
from .rules import normal_axis, require_rank

_ONESIDED = Attribute("onesided", AttrKind.BOOL, False)


def _check_numbers(x: TensorType) -> None:
    """Raises `TypeRuleError` unless the last axis holds real or complex numbers."""
    last = x.dims[-1] if x.rank else 0
    if isinstance(last, int) and last not in (1, 2):
        raise TypeRuleError(f"the last axis must have size 1 (real) or 2 (complex), not {last}: {x}")


def _as_complex(x: Array) -> Array:
    """Real `[..., 1]` or complex `[..., 2]` as an array `[...]` of real or complex numbers."""
    wide = accumulated(x)
    return wide[..., 0] if x.shape[-1] == 1 else np.asarray(wide[..., 0] + 1j * wide[..., 1])


def _as_pairs(x: Array, dtype: Any) -> Array:
    return np.stack([np.real(x), np.imag(x)], axis=-1).astype(dtype)


# ---- dft


def _dft_axis(axis: int, rank: int) -> int:
    normal = normal_axis(axis, rank)
    if normal == rank - 1:
        raise ShapeError(f"axis {axis} holds the parts of complex numbers: dft cannot run over it")
    return normal


def _dft_length(size: Dim, length: Dim | None, *, inverse: bool, onesided: bool) -> Dim:
    if length is not None:
        return length
    return 2 * dim_max(size - 1, 0) if inverse and onesided else size


def _dft_type(x: TensorType, *, axis: int, length: Dim | None, inverse: bool, onesided: bool) -> TensorType:
    _check_numbers(x)
    at = _dft_axis(axis, x.rank)
    count = _dft_length(x.dims[at], length, inverse=inverse, onesided=onesided)
    last = 1 if inverse and onesided else 2
    kept = count // 2 + 1 if onesided and not inverse else count
    return x.with_shape((*x.dims[:at], kept, *x.dims[at + 1 : -1], last))


def dft(x: Array, *, axis: int, length: int | None, inverse: bool, onesided: bool) -> Array:
    """Discrete Fourier transform of x `[..., 1 or 2]` along `axis`, as ONNX DFT 20.

    The signal is cut or padded with zeros to `length` (default: its size). `onesided` keeps the first `length//2 + 1`
    frequencies; with `inverse`, it takes those and gives a real signal `[..., 1]` of `length` (default `2*(size - 1)`).
    f16 and bf16 are computed in f32.
    """
    at = _dft_axis(axis, x.ndim)
    count = _dft_length(x.shape[at], length, inverse=inverse, onesided=onesided)
    signal = _as_complex(x)
    if not isinstance(count, int) or count < 1:  # the transform of no samples
        shape = _dft_type(TensorType(DType.of(x.dtype), x.shape), axis=at, length=0, inverse=inverse, onesided=onesided)
        return np.zeros([dim for dim in shape.dims if isinstance(dim, int)], dtype=x.dtype)
    if not signal.shape[at]:  # NumPy's irfft would read beyond it: pad it with a zero already
        signal = np.zeros((*signal.shape[:at], 1, *signal.shape[at + 1 :]), dtype=signal.dtype)
    if inverse and onesided:
        return np.asarray(np.fft.irfft(signal, count, axis=at))[..., None].astype(x.dtype)
    if inverse:
        return _as_pairs(np.fft.ifft(signal, count, axis=at), x.dtype)
    if onesided and signal.dtype.kind == "f":
        return _as_pairs(np.fft.rfft(signal, count, axis=at), x.dtype)
    spectrum = np.fft.fft(signal, count, axis=at)
    return _as_pairs(np.take(spectrum, np.arange(count // 2 + 1), axis=at) if onesided else spectrum, x.dtype)


# ---- stft


def _stft_type(
    x: TensorType, window: TensorType | None, *, frame_step: Dim, frame_length: Dim, onesided: bool
) -> TensorType:
    require_rank(x, 3, "the signal of stft")
    _check_numbers(x)
    if onesided and x.dims[2] == 2:
        raise TypeRuleError("the spectrum of a complex signal is not one-sided", remedy="set onesided to false")
    if window is not None:
        require_rank(window, 1, "the window of stft")
        require_equal(window.dims[0], frame_length, "the window of stft is as long as a frame")
    for name, size in (("step", frame_step), ("length", frame_length)):
        most = upper_bound(size)
        if most is not None and most < 1:
            raise ShapeError(f"the {name} of frames is {size}", remedy="it is at least 1")
    rest = x.dims[1] - frame_length
    greatest = upper_bound(rest)
    if greatest is not None and greatest < 0:
        raise ShapeError(f"a frame of {frame_length} samples does not fit in a signal of {x.dims[1]}")
    bins = frame_length // 2 + 1 if onesided else frame_length
    return x.with_shape((x.dims[0], rest // frame_step + 1, bins, 2))


def stft(x: Array, window: Array | None, *, frame_step: int, frame_length: int, onesided: bool) -> Array:
    """Short-time Fourier transform of a signal `[B, L, 1 or 2]`, giving `[B, frames, bins, 2]`, as ONNX STFT 17.

    Frames of `frame_length` samples start every `frame_step`; the real `window` `[frame_length]` scales each.
    """
    if min(frame_step, frame_length) < 1:
        raise ShapeError(f"frames of {frame_length} samples, every {frame_step}", remedy="both are at least 1")
    if window is not None and window.shape != (frame_length,):
        raise ShapeError(f"a window of shape {list(window.shape)} for frames of {frame_length} samples")
    signal = np.ascontiguousarray(_as_complex(x))
    if signal.shape[1] < frame_length:
        raise ShapeError(f"a frame of {frame_length} samples does not fit in a signal of {signal.shape[1]}")
    count = (signal.shape[1] - frame_length) // frame_step + 1
    batch_stride, stride = signal.strides
    frames = as_strided(
        signal,
        (signal.shape[0], count, frame_length),
        (batch_stride, stride * frame_step, stride),
        writeable=False,
    )
    if window is not None:
        frames = frames * accumulated(window)
    return _as_pairs(np.fft.rfft(frames) if onesided else np.fft.fft(frames), x.dtype)


# ---- mel


def _mel_type(
    sample_rate: TensorType, low: TensorType, high: TensorType, *, bands: Dim, dft_length: Dim, dtype: DType
) -> TensorType:
    for operand in (sample_rate, low, high):
        require_rank(operand, 0, "an operand of mel_weight_matrix")
    return TensorType(dtype, (dft_length // 2 + 1, bands))


def mel_weight_matrix(
    sample_rate: Array, low: Array, high: Array, *, bands: int, dft_length: int, dtype: DType
) -> Array:
    """Triangular filters from frequencies to `bands` mel bands, `[dft_length//2 + 1, bands]`, as ONNX MelWeightMatrix.

    `low` and `high` are the outer edges in Hz, `sample_rate` is in Hz; mel(f) = 2595 * log10(1 + f/700).
    """
    low_mel, high_mel = (2595 * np.log10(1 + float(edge) / 700) for edge in (low, high))
    mels = low_mel + np.arange(bands + 2) * ((high_mel - low_mel) / (bands + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    points: Array = ((dft_length + 1) * hertz // int(sample_rate)).astype(np.int64)
    left, center, right = points[:-2], points[1:-1], points[2:]
    bins: Array = np.arange(dft_length // 2 + 1)[:, None]
    rising = np.where(center > left, (bins - left) / np.maximum(center - left, 1), bins == center)
    falling = (right - bins) / np.maximum(right - center, 1)
    weights = np.where((bins >= left) & (bins <= center), rising, 0.0)
    weights = np.where((bins >= center) & (bins < right), falling, weights)
    return np.asarray(weights).astype(dtype.numpy)


OPS: tuple[Op, ...] = (
    op(
        "dft",
        "x: T",
        T=FLOATS,
        attrs=(
            Attribute("axis", AttrKind.INT, -2),
            Attribute("length", AttrKind.DIM, None),
            Attribute("inverse", AttrKind.BOOL, False),
            _ONESIDED,
        ),
        infer=_dft_type,
        meaning=dft,
        traits=Trait.SPECTRAL,
    ),
    op(
        "stft",
        "x: T, window: T?",
        T=FLOATS,
        attrs=(
            Attribute("frame_step", AttrKind.DIM),
            Attribute("frame_length", AttrKind.DIM),
            Attribute("onesided", AttrKind.BOOL, True),
        ),
        infer=_stft_type,
        meaning=stft,
        traits=Trait.SPECTRAL,
    ),
    op(
        "mel_weight_matrix",
        "sample_rate: I, low: F, high: F",
        I=INDICES,
        F=FLOATS,
        attrs=(
            Attribute("bands", AttrKind.DIM),
            Attribute("dft_length", AttrKind.DIM),
            Attribute("dtype", AttrKind.DTYPE, DType.F32),
        ),
        infer=_mel_type,
        meaning=mel_weight_matrix,
    ),
)
