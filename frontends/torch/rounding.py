"""Which operands in f32 PyTorch rounds on a GPU, by its present settings."""

import torch

from ...ir.analysis.contents import Tf32

_PRECISION = torch._C._get_fp32_precision_getter
"""What holds for a kind of work, whichever of its names it was set by, without the 1.5 us of the public property."""


def asked_tf32() -> Tf32:
    """What the settings ask for at the time.

    `torch.backends.cuda.matmul` (or `torch.set_float32_matmul_precision`) speaks of matmuls, `torch.backends.cudnn` of
    convolutions and cells.
    """
    return Tf32(
        matmuls=_PRECISION("cuda", "matmul") == "tf32",
        convolutions=_PRECISION("cuda", "conv") == "tf32",
        cells=_PRECISION("cuda", "rnn") == "tf32",
    )
