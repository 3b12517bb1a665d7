"""Convolutions and attention by cuDNN, through the graph API of nvidia-cudnn-frontend.

A problem becomes a graph of operations whose tensors are known by number, an engine with its knobs is chosen and built,
and addresses are given as integers when it is enqueued. https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....ir.errors import MissingPackageError, UnsupportedError
from ....ir.types import DType
from ..kernel_ir.launch import LibraryCall
from .base import Enqueue
from .problems import AttentionProblem, ConvProblem, PointwiseStep, TensorLayout

_DATA_TYPES = {DType.F16: "HALF", DType.BF16: "BFLOAT16", DType.F32: "FLOAT", DType.I32: "INT32"}

_POINTWISE = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "gelu": "gelu", "gelu_tanh": "gelu_approx_tanh"}
_POINTWISE |= {"softplus": "softplus"}

MAX_ALGORITHMS, MAX_COMPILED, MAX_ATTENTION_ALGORITHMS = 6, 3, 2
"""How many of the heuristic's plans are worth timing: the first is seldom more than a tenth slower than the best.

Those that cuDNN compiles at run time take up to half a second each to build. Of the first four the best was among the
first three for all of 20 convolutions, and the very first of attention for 20 of 21 problems.
"""


def open_library(_device: int) -> "Cudnn":
    """The library on the current CUDA device.

    Raises `MissingPackageError` without its frontend, `UnsupportedError` where the library itself cannot be opened.
    """
    try:
        import cudnn
    except ImportError as error:
        raise MissingPackageError(
            f"convolutions on the GPU need nvidia-cudnn-frontend, which cannot be imported: {error}",
            remedy='pip install "capgraph[cudnn]"',
        ) from error
    try:
        return Cudnn(cudnn)
    except RuntimeError as error:  # the frontend looks for the library when it is first needed
        raise UnsupportedError(
            f"cuDNN cannot be opened: {error}",
            remedy="pip install nvidia-cudnn-cu13 (nvidia-cudnn-cu12 with CUDA 12): the frontend comes without it",
        ) from error


class Cudnn:
    """A handle, and the plans built with it; equal problems share one.

    All programs of a process share the handle, and calls are enqueued on the stream that was set last: one at a time.
    """

    def __init__(self, frontend: Any) -> None:
        self._lock = threading.Lock()
        self.frontend = frontend
        self.handle = frontend.create_handle()
        self.failures: tuple[type[BaseException], ...] = (RuntimeError,)
        self.version = int(frontend.backend_version())
        self._built: dict[Any, Enqueue] = {}

    def prepare(self, call: LibraryCall) -> Enqueue:
        """Builds the plan of a call, unless it was built to be listed."""
        key = _key(call, call.algorithm)
        with self._lock:
            if key not in self._built:
                self._leave_stream()
                self._built[key] = self._build(call)
            return self._built[key]

    def algorithms(self, call: LibraryCall) -> Sequence[Any]:
        """The heuristic's plans, best first, as {"version", "engine", "knobs"}; built, and kept for `prepare`."""
        with self._lock:
            self._leave_stream()
            graph = _Graph(self.frontend, self.handle, call.problem)
            graph.plan()
            found: list[dict[str, Any]] = []
            for index, choice in graph.choices(call.workspace_bytes):
                found.append({"version": self.version, **choice})
                for algorithm in (found[-1],) if found[1:] else (None, found[-1]):
                    self._built.setdefault(_key(call, algorithm), self._enqueued(graph, index))
            return found

    def _leave_stream(self) -> None:
        """Goes back to the default stream: that of the latest call may have been given back with its program."""
        self.frontend.set_stream(self.handle, 0)

    def _build(self, call: LibraryCall) -> Enqueue:
        graph = _Graph(self.frontend, self.handle, call.problem)
        choice = call.algorithm
        if isinstance(choice, Mapping) and choice.get("version") == self.version:
            index = graph.chosen(choice)
            needed = graph.graph.get_workspace_size_plan_at_index(index)
            if needed > call.workspace_bytes:
                raise UnsupportedError(f"cuDNN's engine {choice['engine']} wants {needed} bytes of workspace")
        else:
            graph.plan()
            index = graph.first(call.workspace_bytes)
        return self._enqueued(graph, index)

    def _enqueued(self, graph: "_Graph", index: int) -> Enqueue:
        """Calls of a plan that was built."""
        numbers, lock = graph.numbers, self._lock
        execute, set_stream, handle = graph.graph.execute_plan_at_index, self.frontend.set_stream, self.handle

        def enqueue(stream: int, addresses: Mapping[str, int], workspace: int) -> None:
            given = {numbers[role]: address for role, address in addresses.items()}
            with lock:
                set_stream(handle, stream)
                execute(given, workspace, index, handle)

        return enqueue


def _key(call: LibraryCall, algorithm: Any) -> Any:
    return call.problem, call.workspace_bytes, repr(algorithm)


class _Graph:
    """A problem as a graph of cuDNN. `numbers` says by which number each role goes."""

    def __init__(self, frontend: Any, handle: Any, problem: ConvProblem | AttentionProblem) -> None:
        self.frontend = frontend
        self.problem = problem
        self.numbers: dict[str, int] = {}
        self.refusals = (frontend.cudnnGraphNotSupportedError, RuntimeError, ValueError)
        first = problem.x if isinstance(problem, ConvProblem) else problem.q
        self.graph = frontend.pygraph(
            io_data_type=self.data_type(first.dtype),
            intermediate_data_type=frontend.data_type.FLOAT,
            compute_data_type=frontend.data_type.FLOAT,
            handle=handle,
        )
        if isinstance(problem, ConvProblem):
            self._convolution(problem)
        else:
            self._attention(problem)

    def data_type(self, dtype: DType) -> Any:
        """The library's name of an element type."""
        return getattr(self.frontend.data_type, _DATA_TYPES[dtype])

    # ---- building

    def _input(self, role: str, tensor: TensorLayout) -> Any:
        return self.graph.tensor(
            name=role,
            dim=list(tensor.shape),
            stride=list(tensor.strides),
            data_type=self.data_type(tensor.dtype),
            uid=self._number(role),
        )

    def _number(self, role: str) -> int:
        return self.numbers.setdefault(role, len(self.numbers) + 1)

    def _convolution(self, problem: ConvProblem) -> None:
        x, w = self._input("x", problem.x), self._input("w", problem.w)
        axes = len(problem.strides)
        window = {
            "pre_padding": list(problem.pads[:axes]),
            "post_padding": list(problem.pads[axes:]),
            "stride": list(problem.strides),
            "dilation": list(problem.dilations),
        }
        if problem.is_transposed:
            value = self.graph.conv_dgrad(loss=x, filter=w, **window)
        else:
            value = self.graph.conv_fprop(image=x, weight=w, **window)
        value.set_dim(list(problem.y.shape)).set_stride(list(problem.y.strides))
        if problem.bias is not None:
            value = self.graph.bias(input=value, bias=self._input("bias", _bias(problem)))
        for step in problem.steps:
            value = self._step(value, step)
        self._output(value, "y", problem.y)

    def _step(self, value: Any, step: PointwiseStep) -> Any:
        if step.tensor is not None:
            return getattr(self.graph, step.name)(value, self._input(step.role, step.tensor))
        if step.name == "silu":
            return self.graph.swish(input=value, swish_beta=step.number)
        if step.name == "leaky_relu":
            return self.graph.leaky_relu(input=value, negative_slope=step.number)
        return getattr(self.graph, _POINTWISE[step.name])(input=value)

    def _attention(self, problem: AttentionProblem) -> None:
        options: dict[str, Any] = {}
        if problem.mask is not None:
            options["bias"] = self._input("mask", problem.mask)
        if problem.has_lengths:
            counts = TensorLayout(DType.I32, (problem.q.shape[0], 1, 1, 1), (1, 1, 1, 1))
            options["seq_len_q"], options["seq_len_kv"] = (self._input(f"{x}_lengths", counts) for x in ("q", "kv"))
            options["use_padding_mask"] = True
        options["use_causal_mask_bottom_right" if problem.has_lengths else "use_causal_mask"] = problem.causal
        q, k, v = (self._input(role, getattr(problem, role)) for role in ("q", "k", "v"))
        value, _ = self.graph.sdpa(
            name="attention",
            q=q,
            k=k,
            v=v,
            attn_scale=problem.scale,
            generate_stats=False,
            **options,
        )
        self._output(value, "o", problem.o)

    def _output(self, value: Any, role: str, tensor: TensorLayout) -> None:
        value.set_output(True).set_data_type(self.data_type(tensor.dtype))
        value.set_dim(list(tensor.shape)).set_stride(list(tensor.strides)).set_uid(self._number(role))

    # ---- choosing

    def plan(self) -> None:
        """Asks the heuristics for plans, without those that round operands or give other results each time."""
        modes = self.frontend.heur_mode
        try:
            self.graph.validate()
            self.graph.build_operation_graph()
            self.graph.create_execution_plans([modes.A, modes.FALLBACK])
            self.graph.deselect_numeric_notes(self._unwanted_notes())
            self.graph.check_support()
        except self.refusals as error:
            raise UnsupportedError(f"cuDNN has no plan for {self.problem}: {error}") from error

    def _unwanted_notes(self) -> list[Any]:
        notes = self.frontend.numerical_note
        unwanted = [notes.NONDETERMINISTIC, notes.REDUCED_PRECISION_REDUCTION, notes.DOWN_CONVERT_INPUTS]
        problem = self.problem
        if isinstance(problem, ConvProblem) and problem.x.dtype is DType.F32 and not problem.tf32:
            unwanted.append(notes.TENSOR_CORE)
        return unwanted

    def first(self, workspace_bytes: int) -> int:
        """Builds the first plan that can be built and needs no more workspace; its index."""
        for index in range(self.graph.get_execution_plan_count()):
            if self._is_built(index, workspace_bytes):
                return index
        raise UnsupportedError(f"cuDNN builds no plan for {self.problem} with {workspace_bytes} bytes of workspace")

    def _is_built(self, index: int, workspace_bytes: int) -> bool:
        """Builds a plan, if it can be and needs no more workspace: those that are not wanted are listed too."""
        try:
            self.graph.build_plan_at_index(index)
            return bool(self.graph.get_workspace_size_plan_at_index(index) <= workspace_bytes)
        except self.refusals:
            return False

    def choices(self, workspace_bytes: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The first plans that can be built, with their index; of those that are compiled for it, fewer."""
        left = MAX_ATTENTION_ALGORITHMS if isinstance(self.problem, AttentionProblem) else MAX_ALGORITHMS
        left_to_compile = min(left, MAX_COMPILED)
        for index in range(self.graph.get_execution_plan_count()):
            try:
                engine, knobs = self.graph.get_engine_and_knobs_at_index(index)
                notes = self.graph.get_behavior_notes_for_plan_at_index(index)
            except (*self.refusals, NotImplementedError):
                continue
            is_compiled = self.frontend.behavior_note.RUNTIME_COMPILATION in notes
            if (is_compiled and not left_to_compile) or not self._is_built(index, workspace_bytes):
                continue
            left_to_compile -= is_compiled
            left -= 1
            yield index, {"engine": int(engine), "knobs": {knob.name: int(value) for knob, value in knobs.items()}}
            if not left:
                return

    def chosen(self, choice: Mapping[str, Any]) -> int:
        """Builds the plan of one of `choices`; its index. Raises `UnsupportedError` for what is none, or not here."""
        engine, knobs = self._engine_in(choice)
        try:
            self.graph.validate()
            self.graph.build_operation_graph()
            self.graph.create_execution_plan(engine, knobs)
            self.graph.check_support()
            index = int(self.graph.get_execution_plan_count()) - 1
            self.graph.build_plan_at_index(index)
        except self.refusals as error:
            raise UnsupportedError(f"cuDNN has no engine {engine} for {self.problem}: {error}") from error
        return index

    def _engine_in(self, choice: Mapping[str, Any]) -> tuple[int, dict[Any, int]]:
        kinds = self.frontend.knob_type
        try:
            knobs = {getattr(kinds, name): int(value) for name, value in choice["knobs"].items()}
            return int(choice["engine"]), knobs
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UnsupportedError(f"a choice that was kept is no engine of cuDNN's: {error}") from error


def _bias(problem: ConvProblem) -> TensorLayout:
    """The bias as a tensor that broadcasts over an image."""
    assert problem.bias is not None
    channels, axes = problem.y.shape[1], len(problem.y.shape) - 2
    return TensorLayout(problem.bias, (1, channels, *(1,) * axes), (channels, 1, *(channels,) * axes))
