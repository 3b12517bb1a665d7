"""Matrix products."""

from ....ir.graph import Node
from ..context.export_context import ExportContext, Operand
from .rows import export_as, import_as

IMPORTS = {
    "MatMul": import_as("matmul"),
    "Gemm": import_as("gemm", "alpha", "beta", transA="trans_a", transB="trans_b"),
    "Einsum": import_as("einsum", "equation"),
    "MatMulInteger": import_as("matmul_integer"),
    "QLinearMatMul": import_as("qlinear_matmul"),
    "Det": import_as("det"),
}


def export_gemm(ctx: ExportContext, node: Node) -> None:
    """Gemm; without an addend, which opsets before 11 require, `beta` means nothing."""
    a, b, addend = node.inputs
    attrs = node.attrs
    beta = attrs["beta"] if addend is not None else None
    c: Operand = addend
    if addend is None and ctx.opset < 11:
        c = ctx.constant(0, node.output.tensor.dtype)
    ctx.emit(
        "Gemm", (a, b, c), node.outputs,
        alpha=attrs["alpha"], beta=beta, transA=attrs["trans_a"], transB=attrs["trans_b"],
    )  # fmt: skip


EXPORTS = {
    "matmul": export_as("MatMul"),
    "gemm": export_gemm,
    "einsum": export_as("Einsum", "equation"),
    "matmul_integer": export_as("MatMulInteger"),
    "qlinear_matmul": export_as("QLinearMatMul"),
    "det": export_as("Det"),
}
