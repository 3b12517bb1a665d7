"""`capgraph.optimize`: from a model to a program."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from .executors.base import Executor
from .ir.errors import InputError, UnsupportedError
from .ir.verify import verify as verify_graph
from .passes.catalog import launch_pipeline, level_pipeline
from .passes.pipeline import CHECKS, Pipeline
from .program import Program
from .recording import graph_executor, ort_executor_on_gpu, replay_options
from .selection import choose_executor, is_cuda
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
    buckets: Mapping[str | tuple[str, ...], Sequence[Any]] | None = None,
    capture: Mapping[str, Any] | None = None,
    level: int = 2,
    tune: bool | None = None,
    verify: str = "structure",
    strict: bool = False,
    freeze_initializers: bool | None = None,
) -> Program:
    """A program that runs `model`.

    `model` is a path to an ONNX file, its bytes, an `onnx.ModelProto`, or a graph, which is copied. `executor` "auto"
    is "ort", ONNX Runtime on the CPU, where that is installed, else "eager", NumPy on the host; both capture nothing.
    With `device="cuda"`, "ort" records and takes the options of "graph": each piece of the model that ONNX Runtime's
    graph mode takes is one of its graphs, and what it does not take runs between them.

    `device="cuda"` (or "cuda:1") runs on a GPU, where "auto" is "eager": arrays of torch and CuPy on that device are
    read where they lie or copied there, and outputs are arrays of the same framework. `tune` says for which steps the
    kernels that there are get measured: None for products, convolutions and attention, True for all, False for none.

    "graph" plans and records. `mode` says how much: "none", "full" (whole graphs or nothing), "piecewise" (with
    attention outside), or "full_and_piecewise". `dynamic` gives the range of symbolic dims, `{"batch": (1, 64)}`, and
    `buckets` the sizes that are recorded, by dim or for a tuple of dims (by default a ladder: 1, 2, 4, every 8, from
    256 every 16); calls in between are padded where that is proven to be safe. `capture` has further options, each
    explained at `ReplayOptions`: `beyond`, `budget`, `up_front`, `inputs`, `copy_outputs`, `debug`, `warm_ups`,
    `keep_outside`, `progress`.

    `level` bounds what passes may do: 0 nothing, 1 not a bit of any result changes, 2 sums may be re-associated, 3
    approximations, such as TF32 for products in f32 on a GPU. `verify="structure"` checks the graph as it comes and after every pass, "numeric" compares what it
    gives on drawn inputs as well, "none" does neither. `strict` raises where a recorded program would fall back.
    `freeze_initializers` makes initializers that are also inputs constants (None: as the ONNX version of the model
    means it).

    Raises `ModelError` for a broken model, `InternalError` naming the pass when one fails or is found to be wrong,
    `UnsupportedError` for a value that is unknown or that the executor does not support (only "graph" records), and for
    a model that cannot be checked numerically.
    """
    _check_options(args=args, mode=mode, level=level, verify=verify)
    is_ort_on_gpu = executor == "ort" and is_cuda(device)
    if executor == "graph" or is_ort_on_gpu:
        options = replay_options(mode=mode, dynamic=dynamic, buckets=buckets, strict=strict, capture=capture)
        make = ort_executor_on_gpu if is_ort_on_gpu else partial(graph_executor, tune=tune)
        chosen: Executor = make(device, options, level)
    else:
        _check_records_nothing(mode=mode, dynamic=dynamic, buckets=buckets, capture=capture)
        chosen = choose_executor(executor, device, level, tune)
    loaded = load_model(model, freeze_initializers=freeze_initializers)
    if verify != "none":
        verify_graph(loaded.graph)
    report = pipeline_for(level, "host" if is_ort_on_gpu else device).run(loaded.graph, check=verify)
    return Program(loaded.graph, chosen, level=level, strict=strict, notes=loaded.notes, report=report)


def pipeline_for(level: int, device: str) -> Pipeline:
    """The passes of a level for a device."""
    stages = level_pipeline(level).stages
    return Pipeline((*stages, *launch_pipeline(level).stages)) if is_cuda(device) else Pipeline(stages)


def _check_options(*, args: Any, mode: str, level: int, verify: str) -> None:
    _check_choice("mode", mode, _MODES)
    _check_choice("verify", verify, CHECKS)
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= _HIGHEST_LEVEL:
        raise UnsupportedError(f"level={level!r} is not known", remedy=f"an integer from 0 to {_HIGHEST_LEVEL}")
    if args is not None:
        raise InputError("args are example inputs of a PyTorch module; this model needs none", remedy="leave args out")


def _check_records_nothing(*, mode: str, **given: Any) -> None:
    if mode not in ("none", "full_and_piecewise"):
        given["mode"] = mode
    for name, value in given.items():
        if value is not None:
            raise UnsupportedError(
                f"{name}={value!r} is for programs that record", remedy=f'use executor="graph", or leave {name} out'
            )


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UnsupportedError(f"{name}={value!r} is not known", remedy=f"one of {', '.join(known)}")
