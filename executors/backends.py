"""The table of backends: which executors there are, which of them can run here, and which one a program gets.

What runs is a name: "ort" is ONNX Runtime, "eager" and "graph" are NumPy on the host and own kernels on a GPU. How it
runs is in the request: with options of replay it is recorded, without it is run step by step.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from itertools import takewhile
from types import MappingProxyType

from ..ir.errors import UnsupportedError
from ..ir.target import Target
from .base import Executor, Request, check_device, is_cuda
from .signature import whole_number

Backend = Callable[[Request], Executor]
"""Makes an executor; raises `UnsupportedError` for what it cannot do here."""

PLUG_INS = "capgraph.executors"
"""The group of entry points under which packages name backends of their own."""


def _in(module: str, name: str) -> Backend:
    """The backend `name` of a module beside this one, which loads when an executor is made."""

    def make(request: Request) -> Executor:
        return getattr(import_module(module, __package__), name)(request)  # type: ignore[no-any-return]

    return make


# In the order in which "auto" tries them.
ON_HOST: Mapping[str, Backend] = MappingProxyType(
    {
        "ort": _in(".ort.executor", "sessions"),
        "eager": _in(".host.device", "eager"),
        "graph": _in(".host.device", "graphs"),
    }
)
ON_GPU: Mapping[str, Backend] = MappingProxyType(
    {
        "eager": _in(".cuda.programs", "eager"),
        "graph": _in(".cuda.programs", "graphs"),
        "ort": _in(".ort.gpu.programs", "graphs"),
    }
)

# ---- options


def check_names(executor: str | Executor, device: str) -> None:
    """Raises `UnsupportedError` for an executor that is neither a name nor one, and for a device that is no name."""
    if not isinstance(executor, str) and not all(callable(getattr(executor, name, None)) for name in _METHODS):
        raise UnsupportedError(
            f"executor={executor!r} is no name, and no executor",
            remedy=f'pass the name: executor="auto", or an object with {" and ".join(_METHODS)}',
        )
    if not isinstance(device, str):
        raise UnsupportedError(
            f"device={device!r} is no name", remedy='pass the name: device="auto", or str() of a torch.device'
        )


_METHODS = ("target", "compile")


MOST_THREADS = 4096
"""More than any machine has cores; each thread takes memory."""


def check_threads(threads: int | None, executor: str | Executor, device: str) -> None:
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


# ---- which one


def targets() -> list[Target]:
    """Every executor, in the order in which "auto" tries them: where it runs, or why it cannot; then those on a GPU."""
    from .cuda.programs import cuda_target
    from .ort.gpu.target import ort_on_cuda_target

    return [*(make(Request()).target() for make in ON_HOST.values()), ort_on_cuda_target(), cuda_target()]


def passed_over(executor: str | Executor, device: str) -> tuple[str, ...]:
    """What kept "auto" from the executors that it would rather have taken, with remedies; empty for other choices."""
    if executor != "auto" or is_cuda(device):
        return ()
    tried = (make(Request()).target() for make in ON_HOST.values())
    better = takewhile(lambda target: not target.is_available, tried)
    return tuple(
        f'executor="auto" passed over {target.executor!r}: {target.problem} (try: {target.remedy})' for target in better
    )


def choose_executor(executor: str | Executor, request: Request) -> Executor:
    """The executor of that name on the device of the request; one that is given as such is taken as it is.

    Raises `UnsupportedError` for what cannot run here.
    """
    check_device(request.device)
    if not isinstance(executor, str):
        return executor
    known = ON_GPU if is_cuda(request.device) else ON_HOST
    name = _best(known, request) if executor == "auto" else executor
    make = known.get(name) or _plug_in(name, known)
    check_threads(request.threads, name, request.device)
    chosen = make(request)
    target = chosen.target()
    if not target.is_available:
        raise UnsupportedError(f"executor={name!r} cannot run here: {target.problem}", remedy=target.remedy)
    return chosen


def _best(known: Mapping[str, Backend], request: Request) -> str:
    if is_cuda(request.device):
        return next(iter(known))
    return next(name for name, make in known.items() if make(request).target().is_available)


def _plug_in(name: str, known: Mapping[str, Backend]) -> Backend:
    """The backend that another package has under this name. Raises `UnsupportedError` where not just one has it."""
    found = tuple(entry_points(group=PLUG_INS, name=name))
    if not found:
        names = dict.fromkeys(("auto", *known, *sorted(entry_points(group=PLUG_INS).names)))
        raise UnsupportedError(f"there is no executor {name!r}", remedy=f"one of {', '.join(names)}")
    if len(found) > 1:
        places = " and ".join(each.value for each in found)
        raise UnsupportedError(f"the executor {name!r} is there twice: {places}", remedy="uninstall one of them")
    try:
        return found[0].load()  # type: ignore[no-any-return]
    except Exception as error:  # what another package raises when it is imported
        raise UnsupportedError(
            f"the executor {name!r} of {found[0].value} cannot be loaded: {error}", remedy="repair or uninstall it"
        ) from error
