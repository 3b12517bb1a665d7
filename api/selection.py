"""Which executors there are, which of them can run here, and which one a program gets."""

from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from .executors.base import Executor
from .ir.analysis.rounding import ROUNDS_NOTHING, Tf32
from .ir.errors import UnsupportedError
from .ir.target import Target
from .whole_numbers import whole_number


class HostOptions(NamedTuple):
    """What executors on the host are told: `strict` and `threads` as `optimize` has them, and whether seeds count."""

    strict: bool = False
    threads: int | None = None
    seeded: bool = False


def _eager(_options: HostOptions) -> Executor:
    from .executors.eager import EagerExecutor

    return EagerExecutor()


def _ort(options: HostOptions) -> Executor:
    from .executors.ort.executor import OrtExecutor

    return OrtExecutor(strict=options.strict, threads=whole_number(options.threads), seeded=options.seeded)


def _graph(_options: HostOptions) -> Executor:
    from .executors.replay.options import ReplayOptions
    from .recording import graph_executor

    return graph_executor("host", ReplayOptions())


# In the order in which "auto" tries them.
_EXECUTORS: dict[str, Callable[[HostOptions], Executor]] = {
    "ort": _ort,
    "eager": _eager,
    "graph": _graph,
}

_HOST_NAMES = ("auto", "host")


def check_names(executor: str, device: str) -> None:
    """Raises `UnsupportedError` for an executor or a device that is given by something else than its name."""
    for option, value in {"executor": executor, "device": device}.items():
        if not isinstance(value, str):
            raise UnsupportedError(
                f"{option}={value!r} is no name", remedy=f'pass the name: {option}="auto", or str() of a torch.device'
            )


def is_cuda(device: str) -> bool:
    """Whether a device's name means a GPU."""
    return device == "cuda" or device.startswith("cuda:")


def check_device(device: str) -> None:
    """Raises `UnsupportedError` for a name that means neither the host nor a GPU."""
    if device not in _HOST_NAMES and not is_cuda(device):
        raise UnsupportedError(f"device={device!r} is not known", remedy='use device="host" (or "auto"), or "cuda"')


MOST_THREADS = 4096
"""More than any machine has cores; each thread takes memory."""


def check_threads(threads: int | None, executor: str, device: str) -> None:
    """Raises `UnsupportedError` for what is no number of threads, and where no executor takes one."""
    if threads is None:
        return
    if not 1 <= (whole_number(threads) or 0) <= MOST_THREADS:
        remedy = f"an integer from 1 to {MOST_THREADS:,}, or None"
        raise UnsupportedError(f"threads={threads!r} is no number of threads", remedy=remedy)
    if executor not in ("auto", "ort") or is_cuda(device):
        raise UnsupportedError(
            f"threads={threads} is for ONNX Runtime on the CPU, not for executor={executor!r} on device={device!r}",
            remedy='use executor="ort" on the host, or leave threads out',
        )


def targets() -> list[Target]:
    """Every executor, in the order in which "auto" tries them: where it runs, or why it cannot; then those on a GPU."""
    from .cuda_programs import cuda_target
    from .executors.ort.gpu.target import ort_on_cuda_target

    return [*(make(HostOptions()).target() for make in _EXECUTORS.values()), ort_on_cuda_target(), cuda_target()]


def _first_available() -> str:
    return next(name for name, make in _EXECUTORS.items() if make(HostOptions()).target().is_available)


def passed_over(executor: str, device: str) -> tuple[str, ...]:
    """What kept "auto" from the executors that it would rather have taken, with remedies; empty for other choices."""
    if executor != "auto" or is_cuda(device):
        return ()
    tried = (make(HostOptions()).target() for make in _EXECUTORS.values())
    better = takewhile(lambda target: not target.is_available, tried)
    return tuple(
        f'executor="auto" passed over {target.executor!r}: {target.problem} (try: {target.remedy})' for target in better
    )


def choose_executor(
    executor: str,
    device: str,
    level: int = 2,
    tune: bool | None = None,
    options: HostOptions = HostOptions(),  # noqa: B008  # immutable
    tf32: Tf32 = ROUNDS_NOTHING,
    check: str = "none",
) -> Executor:
    """The executor for these options of `optimize`; `check` is what is checked after passes on the way to a plan.

    Raises `UnsupportedError` for what cannot run here.
    """
    check_device(device)
    if is_cuda(device):
        return _on_gpu(executor, device, level, tune, tf32, check)
    name = _first_available() if executor == "auto" else executor
    if name not in _EXECUTORS:
        known = ", ".join(["auto", *_EXECUTORS])
        raise UnsupportedError(f"there is no executor {executor!r}", remedy=f"one of {known}")
    check_threads(options.threads, name, device)
    chosen = _EXECUTORS[name](options)
    target = chosen.target()
    if not target.is_available:
        raise UnsupportedError(f"executor={name!r} cannot run here: {target.problem}", remedy=target.remedy)
    return chosen


def _on_gpu(executor: str, device: str, level: int, tune: bool | None, tf32: Tf32, check: str) -> Executor:
    """The executor of that name on a GPU, of those that record nothing: "eager", which "auto" is too."""
    from .cuda_programs import cuda_eager_executor

    if executor not in ("auto", "eager"):
        raise UnsupportedError(
            f"executor={executor!r} does not run on device={device!r}", remedy='use executor="graph" or "eager"'
        )
    return cuda_eager_executor(device, level, tune, tf32, check)
