"""Activation functions: elementwise on one tensor (`prelu` on two), the result has the operand's type.

Meanings follow the ONNX operators, and their names and defaults the attributes. Floats below 32 bits are computed in
f32 and rounded once. For finite operands none overflows on the way to a finite result.
"""

import math
from typing import Any

import numpy as np

from ...attrs import Attribute, AttrKind
from ...constant import Array
from ...dims.constraints import require_equal
from ...errors import ShapeError
from ...op import FLOATS, NUMBERS, SIGNED, Op, Trait, flops_per_element, op
from ...types import DType, TensorType
from ..elementwise import composed, in_f32, unary
from ..rules import broadcast_shapes
from ..special import erfc

_SQRT_HALF = math.sqrt(0.5)
_SQRT_TWO_OVER_PI = math.sqrt(2 / math.pi)


def relu(x: Array) -> Array:
    """max(x, 0)."""
    return np.asarray(np.maximum(x, x.dtype.type(0)))


def leaky_relu(x: Array, *, alpha: float) -> Array:
    """`x` at and above 0, `alpha` x below."""
    return np.where(x < 0, alpha * x, x)


def elu(x: Array, *, alpha: float) -> Array:
    """`x` at and above 0, `alpha` (exp(x) - 1) below (Clevert and others, arXiv:1511.07289)."""
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def selu(x: Array, *, alpha: float, gamma: float) -> Array:
    """`gamma` times: x above 0, `alpha` (exp(x) - 1) at and below (Klambauer and others, arXiv:1706.02515)."""
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def celu(x: Array, *, alpha: float) -> Array:
    """max(0, x) + min(0, `alpha` (exp(x/`alpha`) - 1)) (Barron, arXiv:1704.07483)."""
    return np.asarray(np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha)))


def thresholded_relu(x: Array, *, alpha: float) -> Array:
    """`x` above `alpha`, 0 elsewhere."""
    return np.where(x > alpha, x, x.dtype.type(0))


def hard_sigmoid(x: Array, *, alpha: float, beta: float) -> Array:
    """`alpha` x + `beta`, held within [0, 1]."""
    return np.asarray(np.clip(alpha * x + beta, 0, 1))


def hard_swish(x: Array) -> Array:
    """The product of x and x/6 + 1/2, the latter held within [0, 1]."""
    return x * hard_sigmoid(x, alpha=1 / 6, beta=0.5)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    decayed = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, decayed, x.dtype.type(1)) / (1 + decayed))


def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def softsign(x: Any) -> Any:
    """The quotient x / (1 + abs(x)); NaN at the infinities."""
    return x / (1 + np.abs(x))


def mish(x: Array) -> Array:
    """The product x tanh(softplus(x)) (Misra, arXiv:1908.08681)."""
    return np.asarray(x * np.tanh(softplus(x)))


def gelu(x: Array, *, approximate: str) -> Array:
    """The product of x and the normal distribution's cumulative function at x (Hendrycks and Gimpel, arXiv:1606.08415).

    With `approximate` "tanh" it is the paper's x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))).
    """
    if approximate == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(_SQRT_TWO_OVER_PI * (x + 0.044715 * (x * x * x)))))
    return 0.5 * x * erfc(-_SQRT_HALF * x)


def silu(x: Array, *, alpha: float) -> Array:
    """The product x sigmoid(`alpha` x): ONNX calls it Swish."""
    return x * sigmoid(np.asarray(alpha * x))


def shrink(x: Array, *, lambd: float, bias: float) -> Array:
    """Toward 0: x + `bias` below -`lambd`, x - `bias` above `lambd`, 0 between; integers round toward zero."""
    wide = x.astype(np.float64) if x.dtype.kind in "iu" else x
    return np.where(wide < -lambd, wide + bias, np.where(wide > lambd, wide - bias, wide.dtype.type(0)))


def prelu(x: Array, slope: Array) -> Array:
    """`x` at and above 0, `slope` x below."""
    return np.where(x < 0, slope * x, x)


def prelu_type(x: TensorType, slope: TensorType) -> TensorType:
    """`slope` broadcasts to the shape of `x`, which is the result's."""
    shape = broadcast_shapes(x.dims, slope.dims)
    if len(shape) != len(x.dims):
        raise ShapeError(f"prelu: a slope {slope} does not broadcast to {x}")
    for size, wanted in zip(shape, x.dims, strict=True):
        require_equal(wanted, size, "prelu: the slope must broadcast to the operand's shape")
    return x


def _float(name: str, default: float) -> Attribute:
    return Attribute(name, AttrKind.FLOAT, default)


def _activation(name: str, function: Any, cost: int, *attrs: Attribute, traits: Trait = Trait.ACTIVATION) -> Op:
    return unary(name, function, function.__doc__, dtypes=FLOATS, cost=cost, attrs=attrs, traits=traits)


_RELU = Trait.ACTIVATION | Trait.IDEMPOTENT | Trait.UNROUNDED
_UP_TO_F32 = Trait.ACTIVATION | Trait.UP_TO_F32


OPS: tuple[Op, ...] = (
    unary("relu", relu, relu.__doc__ or "", dtypes=SIGNED | FLOATS, traits=_RELU),
    _activation("leaky_relu", leaky_relu, 2, _float("alpha", 0.01), traits=_UP_TO_F32),
    _activation("elu", elu, 5, _float("alpha", 1.0)),
    _activation("selu", selu, 6, _float("alpha", 1.6732631921768188), _float("gamma", 1.0507010221481323)),
    _activation("celu", celu, 7, _float("alpha", 1.0)),
    _activation("thresholded_relu", thresholded_relu, 1, _float("alpha", 1.0), traits=Trait.NONE),
    _activation("hard_sigmoid", hard_sigmoid, 4, _float("alpha", 0.2), _float("beta", 0.5), traits=_UP_TO_F32),
    _activation("hard_swish", hard_swish, 5, traits=_UP_TO_F32),
    _activation("sigmoid", sigmoid, 6),
    _activation("softplus", softplus, 8, traits=_UP_TO_F32),
    composed("softsign", softsign, traits=_UP_TO_F32),
    _activation("mish", mish, 14, traits=_UP_TO_F32),
    _activation("gelu", gelu, 10, Attribute("approximate", AttrKind.STRING, "none", ("none", "tanh"))),
    _activation("silu", silu, 7, _float("alpha", 1.0)),
    unary(
        "shrink",
        shrink,
        shrink.__doc__ or "",
        dtypes=NUMBERS - {DType.BF16},
        cost=3,
        attrs=(_float("lambd", 0.5), _float("bias", 0.0)),
    ),
    op(
        "prelu",
        "x: T, slope: T",
        T=FLOATS | {DType.U32, DType.U64, DType.I32, DType.I64},
        infer=prelu_type,
        meaning=in_f32(prelu),
        traits=Trait.ELEMENTWISE,
        aliases=((0, 0),),
        flops=flops_per_element(2),
    ),
)
