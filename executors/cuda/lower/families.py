"""All families of kernels, in the order in which they are asked: heavy ops first, then what is generated for any op."""

from collections.abc import Mapping

from ..kernel_ir.launch import Lowering
from ..kernels import tables
from ..kernels.attention import attention
from ..kernels.conv import convolutions, deformed, quantized
from ..kernels.gemm import einsums, gemv, grouped_products, products, quantized_products
from ..kernels.rnn import recurrent

FAMILIES: tuple[Mapping[str, Lowering], ...] = (
    products.LOWERINGS,
    quantized_products.LOWERINGS,
    einsums.LOWERINGS,
    grouped_products.LOWERINGS,
    gemv.LOWERINGS,
    convolutions.LOWERINGS,
    quantized.LOWERINGS,
    deformed.LOWERINGS,
    attention.LOWERINGS,
    recurrent.LOWERINGS,
    tables.LOWERINGS,
)
