"""Problems that libraries solve, as frozen data: a matmul, a convolution, attention.

Nothing here holds memory. The arguments of a call name it by the roles that a problem's docstring lists. Strides count
elements.
"""

from dataclasses import dataclass
from enum import Enum

from ....ir.types import DType


@dataclass(frozen=True, slots=True)
class Matrix:
    """How a matrix lies: element strides of rows, columns and batch. One of the first two is 1."""

    dtype: DType
    row_stride: int
    column_stride: int
    batch_stride: int = 0

    @property
    def is_row_major(self) -> bool:
        """Whether the elements of a row lie side by side."""
        return self.column_stride == 1

    @property
    def leading(self) -> int:
        """The stride of the axis whose elements do not lie side by side."""
        return self.row_stride if self.is_row_major else self.column_stride

    @property
    def transposed(self) -> "Matrix":
        """The same memory, rows for columns."""
        return Matrix(self.dtype, self.column_stride, self.row_stride, self.batch_stride)


@dataclass(frozen=True, slots=True)
class MatmulProblem:
    """d = activation(alpha * a @ b + beta * c + bias), for `batch` matrices a [rows, inner] and b [inner, columns].

    `d` is row-major. Roles: "a", "b", "d", and "c" where there is a residual, "bias" where there is one (an entry for
    each column, dtype `bias`), "a_scale" and "b_scale" where `scaled` (f32 scalars in device memory that the operands
    are multiplied by: fp8). `activation` is "", "relu" or "gelu_tanh". Products are summed in f32 (f64 for f64, i32 for
    i8); `tf32` lets f32 operands be rounded to TF32.
    """

    batch: int
    rows: int
    columns: int
    inner: int
    a: Matrix
    b: Matrix
    d: Matrix
    c: Matrix | None = None
    bias: DType | None = None
    alpha: float = 1.0
    beta: float = 0.0
    activation: str = ""
    scaled: bool = False
    tf32: bool = False


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """How a tensor lies: dtype, sizes, element strides."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PointwiseStep:
    """One pointwise operation after a convolution, on the value so far and, where `role` names one, on an operand.

    `name` is an op of the IR: "add" and "mul" take an operand, activations none. `number` is the attribute of those
    that have one (the slope of `leaky_relu`, the factor of `silu`).
    """

    name: str
    role: str = ""
    tensor: TensorLayout | None = None
    number: float = 0.0


@dataclass(frozen=True, slots=True)
class ConvProblem:
    """y = steps(conv(x, w) + bias), x [N, C, ...], w [M, C/groups, ...], y [N, M, ...]; any strides.

    Roles: "x", "w", "y", "bias" where there is one ([1, M, 1, ...], its dtype `bias`), and the roles of the steps. With
    `is_transposed`, w is [C, M/groups, ...] and y the result of the transposed convolution. Sums are taken in f32;
    `tf32` lets f32 operands be rounded to TF32.
    """

    x: TensorLayout
    w: TensorLayout
    y: TensorLayout
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    bias: DType | None = None
    steps: tuple[PointwiseStep, ...] = ()
    is_transposed: bool = False
    tf32: bool = False


@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """o = softmax(scale * q @ k' + mask) @ v on [B, H, T, D], [B, Hk, S, D], [B, Hk, S, Dv]; the last stride is 1.

    Roles: "q", "k", "v", "o", "mask" where there is one ([B or 1, H or 1, T or 1, S], added), and where `has_lengths`
    "q_lengths" and "kv_lengths" (i32 [B, 1, 1, 1]: T, and how many keys count). With `causal`, query i sees keys up to
    i, or up to i + length - T where there are lengths. What comes out for a query that sees no key, or that adds -inf
    to a score which is no finite number, is open.
    """

    q: TensorLayout
    k: TensorLayout
    v: TensorLayout
    o: TensorLayout
    scale: float
    causal: bool = False
    mask: TensorLayout | None = None
    has_lengths: bool = False


class Spectrum(Enum):
    """What a Fourier transform takes and gives, of `length` numbers: half a spectrum has `length // 2 + 1`."""

    COMPLEX = "complex to complex"
    OF_REAL = "real to half a spectrum"
    TO_REAL = "half a spectrum to real"


@dataclass(frozen=True, slots=True)
class TransformProblem:
    """y = the Fourier transform of each of `count` rows x, without a scale. Rows lie one behind another.

    Complex numbers are pairs of `dtype`, f32 or f64. Roles: "x" and "y". To be real is to be the inverse transform.
    """

    spectrum: Spectrum
    count: int
    length: int
    dtype: DType
    is_inverse: bool = False
