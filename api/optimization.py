"""`capgraph.optimize`: from a model to a program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .capture_options import replay_options
from .exact_sizes import ExactSizes
from .executors.backends import check_names, check_threads, choose_executor, passed_over
from .executors.base import Executor, Request, is_cuda, pipeline_for
from .executors.replay.modes import CaptureMode
from .executors.replay.options import CaptureOptions, ReplayOptions, check_choice
from .ir.analysis.contents import ROUNDS_ALL, ROUNDS_NOTHING, Tf32
from .ir.errors import UnsupportedError, out_of_memory
from .ir.verify import verify as verify_graph
from .passes.framework.pipeline import CHECKS
from .program import Program
from .sources import Examples, LoadedModel, Model, device_of, load_model, read_again

_HIGHEST_LEVEL = 3

ROUNDING_LEVEL = 3
"""From this level on matmuls in f32 run on tensor cores, which round operands to 11 bits (TF32)."""


def optimize(  # noqa: PLR0913  # every choice there is, by keyword
    model: Model,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    executor: str | Executor = "auto",
    device: str = "auto",
    mode: str = "full_and_piecewise",
    dynamic: Mapping[str, int | tuple[int, int]] | None = None,
    buckets: Mapping[str | tuple[str, ...], int | Sequence[Any]] | None = None,
    capture: CaptureOptions | Mapping[str, Any] | None = None,
    level: int = 2,
    tune: bool | None = None,
    verify: str = "structure",
    strict: bool = False,
    threads: int | None = None,
    tf32: bool | None = None,
    freeze_initializers: bool | None = None,
) -> Program:
    """A program that runs `model`.

    `model` is a path to an ONNX file, its bytes, an `onnx.ModelProto`, a graph, which is copied, or an `nn.Module`,
    `ExportedProgram` or `GraphModule` of PyTorch. A module is exported on the example inputs `args` and `kwargs`, with
    the `dynamic_shapes` of torch.export, in which a name may stand for a dim: `{"x": {0: "batch"}}`. The program of one
    is a `TorchProgram`, which is called as the module is.

    `device` "auto" is the GPU that a module's weights or example inputs lie on, else the host. On such a GPU
    `executor` "auto" is "graph", which records each size that comes where `dynamic` gives no range, as torch.compile.

    `executor` "auto" is "ort", ONNX Runtime on the CPU, where that is installed, else "eager", NumPy on the host; both
    capture nothing. With `device="cuda"`, "ort" records and takes the options of "graph": each subgraph that
    ONNX Runtime's graph mode takes is one of its graphs, and what it does not take runs between them. An object that is
    an executor is taken as it is; packages name their own by entry points of the group "capgraph.executors".

    `device="cuda"` (or "cuda:1") runs on a GPU, where "auto" is "eager": arrays of torch and CuPy on that device are
    read where they lie or copied there, and outputs are arrays of the same framework. `tune` says for which steps the
    kernels that there are get measured: None for matmuls, convolutions and attention, True for all, False for none.

    "graph" plans and records. `mode` says how much: "none", "full" (whole graphs or nothing), "piecewise" (with
    attention outside), or "full_and_piecewise" (only what cannot be captured is outside). `dynamic` gives the range of
    symbolic dims, `{"batch": (1, 64)}` or `{"batch": 64}`, and `buckets` the sizes that are recorded, by dim or for a
    tuple of dims (by default a ladder: 1, 2, 4, every 8, from 256 every 16); calls in between are padded where that is
    proven to be safe. `capture` has further options, a `CaptureOptions` or a dict of its fields.

    `level` bounds what passes may do: 0 nothing, 1 not a bit of any result changes, 2 sums may be re-associated, 3
    approximations, such as rounded inverses for divisions, and TF32 for matmuls in f32 on a GPU. `tf32` says whether
    operands in f32 are rounded to TF32 there, at any level; None leaves a module of PyTorch what its settings ask for
    now (for convolutions they do by default), and other models what the level says. `verify="structure"` checks the
    graph as it comes and after every pass, "numeric" compares what it gives on random inputs as well, also after the
    passes of each plan (sizes, masks, bounds, fusion), "none" does neither. `strict` raises where a recorded program
    would fall back, and where ONNX Runtime on the CPU does not run the whole graph. `threads` is how many threads one
    operator of ONNX Runtime takes on the CPU (None: one for each core). `freeze_initializers` makes initializers that
    are also inputs constants (None: as the ONNX version of the model means it).

    Raises `ModelError` for a broken model, `InternalError` naming the pass when one fails or is found to be wrong,
    `UnsupportedError` for a value that is unknown or that the executor does not support (only "graph" records), and for
    a model that cannot be checked numerically.
    """
    examples = Examples(args, kwargs, dynamic_shapes)
    if device == "auto":
        device = device_of(model, examples)
        if executor == "auto" and is_cuda(device):
            executor = "graph"
            is_bounded = any(given is not None for given in (capture, dynamic, buckets))
            capture = capture if is_bounded else CaptureOptions(beyond="exact")
    choices = Choices(
        executor=executor,
        device=device,
        mode=mode,
        dynamic=dynamic,
        buckets=buckets,
        capture=capture,
        level=level,
        tune=tune,
        verify=verify,
        strict=strict,
        threads=threads,
        tf32=tf32,
    )
    choices.check()
    try:
        return choices.program(load_model(model, freeze_initializers=freeze_initializers, examples=examples))
    except MemoryError as error:
        raise out_of_memory("the model and what its constants give") from error


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The options of `optimize` that do not speak of the model."""

    executor: str | Executor = "auto"
    device: str = "auto"
    mode: str = "full_and_piecewise"
    dynamic: Mapping[str, int | tuple[int, int]] | None = None
    buckets: Mapping[str | tuple[str, ...], int | Sequence[Any]] | None = None
    capture: CaptureOptions | Mapping[str, Any] | None = None
    level: int = 2
    tune: bool | None = None
    verify: str = "structure"
    strict: bool = False
    threads: int | None = None
    tf32: bool | None = None

    def check(self) -> None:
        """Raises what `optimize` raises for options that are unknown or do not go together."""
        check_choice("mode", self.mode, [each.value for each in CaptureMode])
        check_choice("verify", self.verify, CHECKS)
        level = self.level
        if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= _HIGHEST_LEVEL:
            raise UnsupportedError(f"level={level!r} is not known", remedy=f"an integer from 0 to {_HIGHEST_LEVEL}")
        if self.tune is not None and not isinstance(self.tune, bool):
            raise UnsupportedError(f"tune={self.tune!r} is not known", remedy="True, False, or None")
        if not isinstance(self.strict, bool):
            raise UnsupportedError(f"strict={self.strict!r} is not known", remedy="True or False")
        check_names(self.executor, self.device)
        check_threads(self.threads, self.executor, self.device)
        if self.tf32 is not None:
            _check_tf32(self.tf32, self._rounds_on_gpu)
        self.executor_with(self._options())

    def program(self, loaded: LoadedModel) -> Program:
        """The program of a model, whose graph becomes the program's."""
        options = self._options()
        if loaded.torch is not None and options is not None:
            from .pytorch.program import with_states

            options = with_states(options, loaded.torch, self.device)
        tf32 = self.tf32_of(loaded).within(loaded.graph)
        chosen = self.executor_with(options, tf32, seeded=loaded.torch is not None)
        if self.verify != "none":
            verify_graph(loaded.graph)
        passes = pipeline_for(self.level, "host" if self._is_ort_on_gpu else self.device)
        report = passes.run(loaded.graph, check=self.verify)
        notes = (*loaded.notes, *passed_over(self.executor, self.device), *_rounding_notes(tf32))
        facts: dict[str, Any] = {"level": self.level, "strict": self.strict, "notes": notes, "report": report}
        if loaded.torch is not None:
            from .pytorch.program import TorchProgram

            return TorchProgram(loaded.torch, chosen, **facts)
        return Program(loaded.graph, chosen, **facts, exact=self._exact_sizes(loaded))

    def _exact_sizes(self, loaded: LoadedModel) -> ExactSizes | None:
        """Programs for calls that break what the import assumed; with the options that do not speak of sizes."""
        again = loaded.again
        if again is None or loaded.graph.states:
            return None
        choices = replace(self, dynamic=None, buckets=None, capture=None)
        exact = ExactSizes(loaded.graph, again.assumed, lambda shapes: choices.program(again.read(shapes)))
        return exact if exact.is_needed else None

    def tf32_of(self, loaded: LoadedModel) -> Tf32:
        """Whose operands in f32 may be rounded: by option or level, else for modules as PyTorch's settings ask."""
        if not self.follows_torch:
            rounds = self._rounds_on_gpu and (self.level >= ROUNDING_LEVEL if self.tf32 is None else self.tf32)
            return ROUNDS_ALL if rounds else ROUNDS_NOTHING
        if loaded.torch is None:
            return ROUNDS_NOTHING
        from .frontends.torch.rounding import asked_tf32

        return asked_tf32()

    @property
    def follows_torch(self) -> bool:
        """Whether a module of PyTorch is rounded as the settings of PyTorch ask."""
        return self._rounds_on_gpu and self.tf32 is None and self.level < ROUNDING_LEVEL

    @property
    def _rounds_on_gpu(self) -> bool:
        return is_cuda(self.device) and self.executor != "ort"

    @property
    def _is_ort_on_gpu(self) -> bool:
        return self.executor == "ort" and is_cuda(self.device)

    @property
    def _records(self) -> bool:
        return self.executor == "graph" or self._is_ort_on_gpu

    def _options(self) -> ReplayOptions | None:
        """The options of an executor that records; None for one that does not."""
        if not self._records:
            _check_records_nothing(mode=self.mode, dynamic=self.dynamic, buckets=self.buckets, capture=self.capture)
            return None
        return replay_options(
            mode=self.mode,
            dynamic=self.dynamic,
            buckets=self.buckets,
            strict=self.strict,
            capture=self.capture,
            check=self._check_of_plans,
        )

    @property
    def _check_of_plans(self) -> str:
        """What is checked after each pass to a plan: numbers where asked; structure costs a call too much."""
        return self.verify if self.verify == "numeric" else "none"

    def executor_with(
        self, options: ReplayOptions | None, tf32: Tf32 = ROUNDS_NOTHING, *, seeded: bool = False
    ) -> Executor:
        """The executor, with these options where it records; `seeded` has its random numbers follow from a seed."""
        request = Request(
            device=self.device,
            level=self.level,
            tune=self.tune,
            tf32=tf32,
            check=self._check_of_plans,
            strict=self.strict,
            threads=self.threads,
            seeded=seeded,
            replay=options,
            reread=read_again,
        )
        return choose_executor(self.executor, request)


def _check_tf32(tf32: Any, rounds_on_gpu: bool) -> None:
    if not isinstance(tf32, bool):
        raise UnsupportedError(f"tf32={tf32!r} is not known", remedy="True, False, or None")
    if not rounds_on_gpu:
        raise UnsupportedError(
            f"tf32={tf32!r} is for matmuls on a GPU", remedy='use device="cuda" with executor="graph" or "eager"'
        )


def _rounding_notes(tf32: Tf32) -> tuple[str, ...]:
    return () if tf32 == ROUNDS_NOTHING else (f"operands in f32 are rounded to TF32 in: {tf32}",)


def _check_records_nothing(*, mode: str, **given: Any) -> None:
    if mode not in ("none", "full_and_piecewise"):
        given["mode"] = mode
    for name, value in given.items():
        if value is not None:
            raise UnsupportedError(
                f"{name}={value!r} is for programs that record", remedy=f'use executor="graph", or leave {name} out'
            )
