"""What CUDA, CuPy and torch say when something goes wrong, as errors for users."""

from ....ir.errors import CapgraphError, CaptureError, ExecutionError, ResourceError

_LOST = (
    "IllegalAddress",
    "illegal memory access",
    "LaunchTimeout",
    "Assert",
    "device-side assert triggered",
    "HardwareStackError",
    "IllegalInstruction",
    "MisalignedAddress",
    "InvalidAddressSpace",
    "InvalidPc",
    "LaunchFailure",
    "LAUNCH_FAILED",
    "unspecified launch failure",
    "ECCUncorrectable",
    "ECC_UNCORRECTABLE",
    "DeviceUnavailable",
    "DevicesUnavailable",
    "ContextIsDestroyed",
    "ExternalDevice",
    "Contained",
    "TensorMemoryLeak",
)
"""Parts of what is said of errors after which CUDA refuses everything else in the process."""

_NO_MEMORY = ("MemoryAllocation", "out of memory", "out_of_memory")
_NOT_CAPTURED = ("StreamCapture",)


def is_loss(text: str) -> bool:
    """Whether CUDA does nothing more in this process."""
    return _says(text, _LOST)


def loss(text: str) -> ExecutionError:
    """The error for a device that was lost with these words."""
    return ExecutionError(
        f"the GPU stopped in the middle of a program: {text}",
        remedy="start a new process: CUDA refuses all work in this one. Then report it with the graph's text form",
    )


def kept_outside(op: str) -> str:
    """The remedy for an op that cannot be recorded."""
    return f'keep it outside of recordings: capture={{"keep_outside": ["{op}"]}}'


def words_of(error: BaseException) -> str:
    """What an error says, its class where it says nothing."""
    return str(error).strip() or type(error).__name__


def explanation(error: BaseException) -> CapgraphError:
    """A failure of CUDA, CuPy or torch as an error that says what to do."""
    if isinstance(error, CapgraphError):
        return error
    text = words_of(error)
    if is_loss(text):
        return loss(text)
    if _says(text, _NO_MEMORY) or isinstance(error, MemoryError):
        return ResourceError(f"out of device memory: {text}", remedy="allow smaller sizes or fewer buckets")
    if _says(text, _NOT_CAPTURED):
        return CaptureError(f"CUDA refuses to record: {text}", remedy=kept_outside("..."))
    return ExecutionError(f"the GPU refused: {text}", remedy="capgraph doctor shows driver and packages")


def _says(text: str, parts: tuple[str, ...]) -> bool:
    """Whether one of `parts` is in `text`: as it stands, or as the driver names it, in capitals between underscores."""
    return any(part in text or _in_capitals(part) in text for part in parts)


def _in_capitals(name: str) -> str:
    """IllegalAddress as ILLEGAL_ADDRESS."""
    return "".join(f"_{each}" if each.isupper() and index else each for index, each in enumerate(name)).upper()
