"""Index arithmetic in generated kernels: how wide an index has to be, and how it is taken apart."""

from collections.abc import Sequence

from .sources import Source


def index_type(*sources: Source) -> str:
    """`int` where every element lies within 32 bits of the first, else `i64`."""
    reach = max(
        sum((size - 1) * abs(stride) for size, stride in zip(source.shape, source.strides, strict=True))
        for source in sources
    )
    return "int" if reach < 1 << 31 else "i64"


def split_index_code(name: str, parts: Sequence[str], sizes: Sequence[int], index: str) -> str:
    """Statements that take a row-major index apart into `parts`, one for each size; `name` is used up."""
    lines = [
        f"const {index} {part} = {name} % {size}; {name} /= {size};"
        for part, size in reversed(list(zip(parts, sizes, strict=True))[1:])
    ]
    if parts:
        lines.append(f"const {index} {parts[0]} = {name};")
    return " ".join(lines)


def offset_code(parts: Sequence[str], strides: Sequence[int]) -> str:
    """The sum of indices times strides."""
    return " + ".join(f"{part} * {stride}" for part, stride in zip(parts, strides, strict=True) if stride) or "0"
