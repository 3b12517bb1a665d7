"""What surrounds a GEMM of quantized tensors in kernels: zero points on the way in, scales on the way out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from .....ir.types import DType
from ...kernel_ir.sources import Source
from ...kernel_ir.types import computed, number, stored

OffsetOf = Callable[[Source], str]


@dataclass(frozen=True)
class Quantization:
    """The parameters of a GEMM by name, broadcastable to its result.

    "a_zero", "b_zero" where operands have one; "a_scale", "b_scale", "y_scale", "y_zero" where the result is quantized
    again; "bias" in the scale of the sum.
    """

    dtypes: tuple[DType, DType]
    """Those of the operands."""

    sources: Mapping[str, Source]

    @property
    def total(self) -> str:
        """The type that products are summed in: of small floats exactly, as of integers."""
        return "int" if all(dtype.is_integer for dtype in self.dtypes) else "double"

    @property
    def parameters(self) -> list[str]:
        """The kernel's parameters for them."""
        return [f"const {stored(source.dtype)}* {name}" for name, source in self.sources.items()]

    def centered(self, name: str, element: str, offset_of: OffsetOf) -> str:
        """An element of operand `name` without its zero point."""
        zero = self.sources.get(f"{name}_zero")
        value = f"({self.total})get({element})"
        return value if zero is None else f"{value} - ({self.total})get({name}_zero[{offset_of(zero)}])"

    def finish(self, target: str, result: DType, total: str, offset_of: OffsetOf) -> str:
        """A statement that writes the sum `total` to the element `target`."""
        if "y_scale" not in self.sources:
            return f"put({target}, ({computed(result)}){total});"
        value = {name: f"(float)get({name}[{offset_of(source)}])" for name, source in self.sources.items()}
        scale = f"{value['a_scale']} * {value['b_scale']} / {value['y_scale']}"
        whole = f"((float){total} + {value['bias']})" if "bias" in self.sources else f"(float){total}"
        lowest, greatest = _limits(result)
        scaled = f"{whole} * ({scale})"
        rounded = f"rintf({scaled})" if result.is_integer else scaled
        held = f"least(greatest({rounded} + {value['y_zero']}, {lowest}), {greatest})"
        number_of = "to_i32" if result.is_integer else ""  # NaN, of a scale of 0, is converted as on the host
        return f"put({target}, ({computed(result)}){number_of}({held}));"


def _limits(dtype: DType) -> tuple[str, str]:
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        return number(float(limits.min), "float"), number(float(limits.max), "float")
    greatest = float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]
    return number(-greatest, "float"), number(greatest, "float")
