"""What torch.export refuses, in our words: what, where in the user's code, and what to do."""

import re
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import torch

from ...ir.errors import UnsupportedError

_REMEDIES = (
    (
        r"'(_DimHint|Dim)' has no len",
        'give dynamic_shapes a tuple, or a dict by name, with an item for each argument: ({0: "batch"},) or '
        '{"tokens": {0: "batch"}}',
    ),
    (
        r"data-dependent",
        "decide on data with torch.cond or torch.where, and bound what .item() reads with torch._check; or use "
        'torch.compile(module, backend="capgraph"), for which Python decides',
    ),
    (
        r"dynamic_shapes|Constraints violated|user-specified ranges|is not equal to L\[|not in range \[",
        "correct dynamic_shapes: in the structure of the arguments, without sizes that the module fixes, and with "
        "examples of 2 or more, within their range, for sizes that vary",
    ),
    (
        r"in output, which is not a known type",
        "return tensors in tuples, lists, dicts or named tuples, or make the class known with "
        "torch.export.register_dataclass",
    ),
    (
        r"Unsupported input type",
        "pass tensors, numbers and containers of them, torch.from_numpy(array) for an array, or make the class known "
        "with torch.export.register_dataclass",
    ),
    (
        r"positional argument|required argument|keyword argument|multiple values for argument",
        "pass args and kwargs with which module(*args, **kwargs) can be called",
    ),
    (
        r"on the same device|two different devices",
        "bring the module and the example inputs to one device: module.to(device), tensor.to(device)",
    ),
    (r"no fake impl|UnsupportedOperatorException", "say what the operator gives: torch.library.register_fake"),
    (r"alias", "return a copy from the branch or body: x.clone()"),
    (r"register it as buffer", "make the tensor that forward writes to a buffer: self.register_buffer(name, tensor)"),
    (
        r"expected compiled_fn to be GraphModule",
        "buffers that forward writes to share memory: give each its own, or use torch.compile(module, "
        'backend="capgraph")',
    ),
)
_REMEDY = (
    "see that module(*args, **kwargs) runs; what torch.export cannot trace whole, torch.compile(module, "
    'backend="capgraph") compiles in pieces'
)


def refused(name: str, error: BaseException) -> UnsupportedError:
    """The error for a module called `name` that torch.export refuses with `error`, which is to be its cause."""
    if _reads_number_of_calls(error):
        return UnsupportedError(
            f"torch.export refuses {name}: batch norm with momentum=None reads the number of its calls in Python",
            where=_user_line(error),
            remedy='give it a momentum, call module.eval(), or use torch.compile(module, backend="capgraph")',
        )
    text = f"{type(error).__name__}: {error}"
    remedy = next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, text)), _REMEDY)
    return UnsupportedError(f"torch.export refuses {name}: {_reason(error)}", where=_user_line(error), remedy=remedy)


def _reason(error: BaseException) -> str:
    """The first sentence of an error; of one that only announces what follows, that."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    explanation = next((line for line in lines if line.startswith("Explanation: ")), None)
    is_announced = lines[0].endswith(":") or lines[0].startswith("Constraints violated")
    first = explanation or (lines[1] if is_announced and len(lines) > 1 else lines[0])
    sentence = re.split(r"[.!]\s", first.removeprefix("Explanation: "))[0].rstrip(".")
    return sentence if " " in sentence else f"{type(error).__name__}: {sentence}"


def _reads_number_of_calls(error: BaseException) -> bool:
    """Whether tracing ended in PyTorch's batch norm, where it makes a float of a buffer."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(Path(frame.filename) == _BATCH_NORM and "num_batches_tracked" in (frame.line or "") for frame in frames)


def _user_line(error: BaseException) -> str | None:
    """The last line of Python on the way to an error that is neither PyTorch's nor ours."""
    frames: list[Any] = [*traceback.extract_tb(error.__traceback__), *(getattr(error, "real_stack", None) or ())]
    found = [frame for frame in frames if _is_users(frame.filename)]
    return f"{found[-1].filename}:{found[-1].lineno} in {found[-1].name}" if found else None


_TORCH = Path(torch.__file__).parent
_BATCH_NORM = _TORCH / "nn" / "modules" / "batchnorm.py"
_TRACERS = (str(_TORCH), str(_TORCH.with_name("sympy")), str(Path(__file__).parent))
_PYTHON = sysconfig.get_paths()["stdlib"]


def _is_users(file: str) -> bool:
    if file.startswith(("<", *_TRACERS)):
        return False
    return "site-packages" in file or not file.startswith(_PYTHON)
