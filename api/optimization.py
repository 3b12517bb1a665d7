"""`capgraph.optimize`: from a model to a program."""

from collections.abc import Mapping, Sequence
from typing import Any

from .ir.errors import InputError, UnsupportedError
from .ir.verify import verify as verify_graph
from .passes.catalog import level_pipeline
from .passes.pipeline import CHECKS
from .program import Program
from .selection import choose_executor
from .sources import Model, load_model

_MODES = ("none", "full", "piecewise", "full_and_piecewise")
_HIGHEST_LEVEL = 3


def optimize(  # noqa: PLR0913  # every choice there is, by keyword
    model: Model,
    *,
    args: Sequence[Any] | None = None,
    executor: str = "auto",
    device: str = "auto",
    mode: str = "full_and_piecewise",
    dynamic: Mapping[str, tuple[int, int]] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    level: int = 2,
    verify: str = "structure",
    strict: bool = False,
    freeze_initializers: bool | None = None,
) -> Program:
    """A program that runs `model`.

    `model` is a path to an ONNX file, its bytes, an `onnx.ModelProto`, or a graph, which is copied. `executor` "auto"
    is "ort", ONNX Runtime on the CPU, where that is installed, else "eager", NumPy on the host; both capture nothing.
    `mode` says how much an executor that records may capture.
    `level` bounds what passes may do: 0 nothing, 1 not a bit of any result changes, 2 sums may be re-associated, 3
    approximations. `verify="structure"` checks the graph as it comes and after every pass, "numeric" compares what it
    gives on drawn inputs as well, "none" does neither. `strict` refuses fallbacks; eager execution has none.
    `freeze_initializers` makes initializers that are also inputs constants (None: as the ONNX version of the model
    means it).

    Raises `ModelError` for a broken model, `InternalError` naming the pass when one fails or is found to be wrong,
    `UnsupportedError` for a value that is unknown or that this version does not support yet (`args`, `dynamic`,
    `buckets`, other executors, devices and modes), and for a model that cannot be checked numerically.
    """
    _check_options(args=args, mode=mode, dynamic=dynamic, buckets=buckets, level=level, verify=verify)
    chosen = choose_executor(executor, device)
    loaded = load_model(model, freeze_initializers=freeze_initializers)
    if verify != "none":
        verify_graph(loaded.graph)
    report = level_pipeline(level).run(loaded.graph, check=verify)
    return Program(loaded.graph, chosen, level=level, strict=strict, notes=loaded.notes, report=report)


def _check_options(*, args: Any, mode: str, dynamic: Any, buckets: Any, level: int, verify: str) -> None:
    _check_choice("mode", mode, _MODES)
    _check_choice("verify", verify, CHECKS)
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= _HIGHEST_LEVEL:
        raise UnsupportedError(f"level={level!r} is not known", remedy=f"an integer from 0 to {_HIGHEST_LEVEL}")
    if args is not None:
        raise InputError("args are example inputs of a PyTorch module; this model needs none", remedy="leave args out")
    for name, value, is_built, remedy in (
        ("mode", mode, mode in ("none", "full_and_piecewise"), "leave mode out: eager execution captures nothing"),
        ("dynamic", dynamic, dynamic is None, "leave dynamic out: eager execution takes every size"),
        ("buckets", buckets, buckets is None, "leave buckets out: eager execution pads nothing"),
    ):
        if not is_built:
            raise UnsupportedError(f"{name}={value!r} is not supported yet", remedy=remedy)


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UnsupportedError(f"{name}={value!r} is not known", remedy=f"one of {', '.join(known)}")
