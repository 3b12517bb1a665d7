"""Matrix products."""

from ....ir.graph import Node
from ..export_context import ExportContext
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
    """Gemm; without an addend `beta` means nothing."""
    attrs = node.attrs
    beta = attrs["beta"] if node.inputs[2] is not None else None
    ctx.emit(
        "Gemm", node.inputs, node.outputs,
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
