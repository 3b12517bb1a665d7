"""Every op alone beside PyTorch's kernel for the same work: both in CUDA graphs, right or wrong, and their times.

    python -m benchmarks.gpu.op_table [--only REGEX] [--stage K/N] [--candidates] [--out FOLDER]
    python -m benchmarks.gpu.op_table --merge FOLDER/op_table*.json
    python -m benchmarks.gpu.op_table --host [--only REGEX]

Operands take turns, and so do results, in sets that together exceed the cache. Ours is a program of the op alone: its
passes, its plan, and the candidates that it takes (heavy steps measured, the first guess for others); `--candidates`
times the others too. What cannot be recorded alone is called from the host, and marked: `host` where ours has a step
there, `called` where it has none, `eager` where PyTorch's cannot be captured. `--host` needs no GPU: it compares the
ops' NumPy meanings with PyTorch on the CPU, for operands that are not large.
"""

import argparse
import json
import re
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, Candidate, HostCall, KernelLaunch, Packed
from capgraph.executors.cuda.lower.lowering import LoweredStep, constant_buffers
from capgraph.executors.cuda.programs import lowering_for
from capgraph.executors.replay.measured import found_shapes
from capgraph.frontends.torch.rounding import asked_tf32
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, Value
from capgraph.ir.plan import Place as Home
from capgraph.ir.plan import Plan
from capgraph.ir.target import CUDA
from capgraph.optimization import pipeline_for
from capgraph.passes.planning.partition import CapturePolicy
from capgraph.passes.planning.planner import PlanPolicy, make_plan

from . import op_cases, op_cases_heavy, op_cases_random, op_cases_rows
from .op_cases import Case, Operand

ROWS = (
    *op_cases.CASES,
    *op_cases_rows.CASES,
    *op_cases_random.CASES,
    *op_cases_heavy.CASES,
)
ROTATED_BYTES = 192 << 20
"""What the operands and results of one measurement take together: several times the cache."""
MOST_LAUNCHES = 20
LEAST_LAUNCHES = 2
RECORDED_US = 2000
"""How long one recorded graph runs, about."""
REPLAYS = 9
LEVEL = 2
LARGEST_ON_HOST = 1 << 22

DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
    "u64": torch.uint64,
    "bool": torch.bool,
}
TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 2e-2, torch.float32: 2e-4, torch.float64: 1e-9}
"""Of the largest element."""


def all_cases() -> Iterator[Case]:
    """Every case, rows in order."""
    for each in ROWS:
        yield from each.cases()


# ---- operands


def drawn(case: Case, device: str) -> list[torch.Tensor]:
    """The operands of a case: always the same."""
    generator = torch.Generator(device).manual_seed(zlib.crc32(case.name.encode()))
    return [_operand(each, generator, device) for each in case.operands]


def _operand(operand: Operand, generator: torch.Generator, device: str) -> torch.Tensor:
    shape, mark = operand.shape, operand.mark
    options: dict[str, Any] = {"generator": generator, "device": device}
    if mark.startswith("<"):
        return torch.randint(0, int(mark[1:]), shape, **options).to(DTYPES[operand.dtype])
    if mark.startswith("@"):
        return _distinct(shape, int(mark[1:]), options).to(DTYPES[operand.dtype])
    if mark == "#" or mark.startswith("/"):
        step, start = (1, 0) if mark == "#" else (int(mark[1:]), 1)
        steps = step * (start + torch.arange(shape[-1], device=device))
        return steps.expand(shape).to(DTYPES[operand.dtype]).contiguous()
    if operand.dtype == "bool":
        return torch.rand(shape, **options) < 0.5
    if mark:
        low, high = {"+": (0.5, 1.5), "~": (-0.9, 0.9), "%": (-0.05, 0.05), "^": (1.1, 3.0)}[mark]
        return (torch.rand(shape, **options) * (high - low) + low).to(DTYPES[operand.dtype])
    numbers = torch.randn(shape, **options)
    return (numbers if DTYPES[operand.dtype].is_floating_point else numbers * 100).to(DTYPES[operand.dtype])


def _distinct(shape: tuple[int, ...], limit: int, options: dict[str, Any]) -> torch.Tensor:
    if shape[-1] == 1:
        return torch.randperm(limit, **options)[: shape[0]].view(shape)
    inner = 2 if len(shape) == 4 else 1  # of images distinct in each plane, and those of a plane beyond the one before
    rows = torch.rand((*shape[:-inner], limit), **options).argsort(-1)
    count = int(np.prod(shape[-inner:]))
    planes = torch.arange(rows[..., 0].numel(), device=rows.device) * (limit if inner == 2 else 0)
    return (rows[..., :count] + planes.view(*rows.shape[:-1], 1)).reshape(shape)


def _array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.cpu().numpy()


def graph_of(case: Case, tensors: Sequence[torch.Tensor]) -> Graph:
    """Our graph of a case. What is a constant there is no input."""
    b = Builder()
    values = [
        b.constant(_array(tensor)) if each.is_constant else b.input(f"x{index}", each.type)
        for index, (each, tensor) in enumerate(zip(case.operands, tensors, strict=True))
    ]
    return b.finish(case.ours(b, tuple(values)))


def inputs_of(case: Case, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The operands that are inputs of our graph."""
    return [tensor for each, tensor in zip(case.operands, tensors, strict=True) if not each.is_constant]


def given_to_torch(case: Case, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The operands as PyTorch's function takes them."""
    if case.given is None:
        return list(tensors)
    found = case.given(*tensors)
    return list(found) if isinstance(found, (tuple, list)) else [found]


# ---- right or wrong


def difference(found: Sequence[torch.Tensor], expected: Any, case: Case) -> str:
    """Why results are not those of PyTorch, empty where they are."""
    wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    count = len(found) if case.compared is None else case.compared
    for index, (ours, theirs) in enumerate(zip(found[:count], wanted[:count], strict=True)):
        if tuple(ours.shape) != tuple(theirs.shape):
            return f"result {index} is {list(ours.shape)}, not {list(theirs.shape)}"
        why = _unlike(ours, theirs, case.tolerance)
        if why:
            return f"result {index}: {why}"
    return ""


def _unlike(ours: torch.Tensor, theirs: torch.Tensor, times: float) -> str:
    if not theirs.is_floating_point():
        different = int((ours != theirs.to(ours.dtype)).sum())
        return f"{different} of {ours.numel()} elements differ" if different else ""
    a, b = ours.double(), theirs.double()
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, 0.0, (a - b).abs())
    finite = torch.where(b.isfinite(), b.abs(), 0.0)
    scale = float(finite.max()) if finite.numel() else 0.0
    error = float(gap.nan_to_num(torch.inf).max()) / max(scale, 1e-12) if gap.numel() else 0.0
    limit = times * max(TOLERANCES[ours.dtype], TOLERANCES[theirs.dtype])
    return f"error {error:.2g} of the largest, above {limit:.2g}" if not error <= limit else ""


# ---- ours


class Ours:
    """The program of a case: its plan, and the candidates of its steps."""

    def __init__(self, gpu: Any, case: Case) -> None:
        self.gpu, self.case = gpu, case
        tensors = drawn(case, "cuda")
        self.graph = graph_of(case, tensors)
        graph = self.graph.clone()
        pipeline_for(LEVEL, "cuda").run(graph, check="none")
        backend = gpu.backend
        self.plan: Plan = make_plan(
            graph,
            {},
            CUDA,
            PlanPolicy(
                lowering=lowering_for(backend, CapturePolicy()), resident=[value.name for value in graph.inputs]
            ),
        )
        self.lowered: tuple[LoweredStep, ...] = backend.lower(self.plan)
        self.contents = constant_buffers(self.plan)

    @property
    def is_whole(self) -> bool:
        """Whether no step needs the host."""
        return not self.plan.dynamic and all(
            not lowered.candidates or _on_device(lowered.candidates[0]) for lowered in self.lowered
        )

    def kernels(self, every: bool) -> Iterator[Any]:
        """The kernels that will be needed: of first guesses, of all candidates of heavy steps."""
        for lowered in self.lowered:
            is_heavy = lowered.task is not None and self.gpu.selector._is_tuned(lowered.task.node)
            for candidate in lowered.candidates if every or is_heavy else lowered.candidates[:1]:
                yield from (each.kernel for each in candidate.launches if isinstance(each, KernelLaunch))

    def timed(self, inputs: Sequence[Sequence[torch.Tensor]]) -> tuple[float, list[torch.Tensor], str]:
        """Microseconds, results and the names of the candidates, over sets of inputs that take turns."""
        turns = [_Memory(self, each) for each in inputs]
        chosen = self.gpu.choose(self.lowered)
        took = self.seconds(turns, chosen)
        self.run(turns[0], chosen)
        names = ", ".join(each.name for each in chosen if each is not None and each.launches)
        return took * 1e6, self._cut([turns[0].read(value) for value in self.plan.graph.outputs]), names

    def _cut(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        """Results without counts, cut to what was found."""
        measured = self.plan.measured
        if measured.output is None:
            return results
        counts = results.pop(measured.output).tolist()
        shapes = found_shapes(measured, counts, {index: tuple(each.shape) for index, each in enumerate(results)})
        return [each[tuple(slice(size) for size in shapes[index] or ())] for index, each in enumerate(results)]

    def others(self, inputs: Sequence[Sequence[torch.Tensor]]) -> Iterator[tuple[str, float]]:
        """The other candidates of each step, and what all takes with one of them."""
        turns = [_Memory(self, each) for each in inputs]
        chosen = self.gpu.choose(self.lowered)
        for index, lowered in enumerate(self.lowered):
            for candidate in filter(_on_device, lowered.candidates):
                if candidate is not chosen[index] and not self.gpu.fails_to_compile(lowered.step, candidate):
                    yield candidate.name, self.seconds(turns, (*chosen[:index], candidate, *chosen[index + 1 :])) * 1e6

    def run(self, turn: "_Memory", chosen: Sequence[Candidate | None]) -> None:
        stream = self.gpu.capture_stream
        torch.cuda.synchronize()
        for call in self._calls(turn, chosen):
            call(stream)
        self.gpu.driver.synchronize(stream)

    def seconds(self, turns: Sequence["_Memory"], chosen: Sequence[Candidate | None]) -> float:
        driver, stream = self.gpu.driver, self.gpu.capture_stream
        calls = [self._calls(turn, chosen) for turn in turns]
        self.run(turns[0], chosen)
        begin, end, elapsed = driver.timer()
        once = _timed(lambda: [call(stream) for call in calls[-1]], begin, end, elapsed, stream)
        count = launches_for(once)
        driver.begin_capture(stream)
        try:
            for index in range(count):
                for call in calls[index % len(calls)]:
                    call(stream)
            graph = driver.end_capture(stream)
        finally:
            driver.abort_capture(stream)
        graph.launch(stream)
        found = [_timed(lambda: graph.launch(stream), begin, end, elapsed, stream) for _ in range(REPLAYS)]
        graph.close()
        return statistics.median(found) / count

    def _calls(self, turn: "_Memory", chosen: Sequence[Candidate | None]) -> list[Callable[[int], None]]:
        return [
            self.gpu.bound(launch, turn.address)
            for each in chosen
            if each is not None
            for launch in each.launches
            if not isinstance(launch, HostCall)
        ]


def _on_device(candidate: Candidate) -> bool:
    return not any(isinstance(launch, HostCall) for launch in candidate.launches)


def _timed(work: Callable[[], Any], begin: Any, end: Any, elapsed: Any, stream: int) -> float:
    begin(stream)
    work()
    end(stream)
    return float(elapsed())


def launches_for(seconds: float) -> int:
    """How often something of that duration is recorded in one graph."""
    return max(LEAST_LAUNCHES, min(MOST_LAUNCHES, int(RECORDED_US * 1e-6 / max(seconds, 1e-7))))


class _Memory:
    """One set of a plan's memory: inputs where they are, an arena, and constants of its own."""

    def __init__(self, ours: Ours, inputs: Sequence[torch.Tensor]) -> None:
        self.ours = ours
        plan = ours.plan
        self.arena = torch.zeros(max(plan.arena_bytes, 1), dtype=torch.uint8, device="cuda")
        self.inputs = {
            plan.views[value].buffer: tensor for value, tensor in zip(plan.graph.inputs, inputs, strict=True)
        }
        self.copies: dict[Any, torch.Tensor] = {}

    def base(self, buffer: int) -> int:
        each = self.ours.plan.buffers[buffer]
        if each.place is Home.ARENA:
            return self.arena.data_ptr() + each.offset
        if each.place is Home.CONSTANT:
            return self._copied(buffer, self.ours.gpu.constants.plain(self.ours.contents[buffer]))
        return self.inputs[buffer].data_ptr()

    def address(self, argument: Any) -> int:
        if isinstance(argument, BufferPlace):
            return self.base(argument.buffer) + argument.offset
        assert isinstance(argument, Packed)
        return self._copied(argument, self.ours.gpu.constants.packed(argument))

    def _copied(self, key: Any, memory: Any) -> int:
        if key not in self.copies:
            made = self.copies[key] = torch.empty(max(memory.nbytes, 1), dtype=torch.uint8, device="cuda")
            torch.cuda.synchronize()
            self.ours.gpu.driver.copy(made.data_ptr(), memory.address, memory.nbytes, self.ours.gpu.capture_stream)
            self.ours.gpu.driver.synchronize(self.ours.gpu.capture_stream)
        return self.copies[key].data_ptr()

    def read(self, value: Value) -> torch.Tensor:
        """A result, where it lies."""
        view = self.ours.plan.views[value]
        self.base(view.buffer)
        place = self.ours.plan.buffers[view.buffer].place
        if place is Home.ARENA:
            whole = self.arena[self.ours.plan.buffers[view.buffer].offset :]
        else:
            whole = self.copies[view.buffer] if place is Home.CONSTANT else self.inputs[view.buffer]
            whole = whole.contiguous().reshape(-1).view(torch.uint8)
        item = view.dtype.numpy.itemsize
        part = whole[view.offset : view.offset + view.extent]
        strides = tuple(stride // item for stride in view.strides)
        return part.view(DTYPES[view.dtype.value]).as_strided(view.shape, strides)


# ---- theirs


def torch_us(case: Case, given: Sequence[Sequence[torch.Tensor]]) -> tuple[float, Any, bool]:
    """Microseconds of PyTorch's function, its result, and whether it was recorded."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        expected = case.theirs(*given[0])
        once = _torch_seconds(lambda: case.theirs(*given[-1]))
    torch.cuda.synchronize()
    count = launches_for(once)
    graph = torch.cuda.CUDAGraph()
    kept: list[Any] = []
    try:
        with torch.no_grad(), torch.cuda.graph(graph, stream=side):
            for index in range(count):
                kept.append(case.theirs(*given[index % len(given)]))
    except RuntimeError:
        torch.cuda.synchronize()
        with torch.no_grad():
            found = [_torch_seconds(lambda: case.theirs(*given[-1])) for _ in range(REPLAYS)]
        return statistics.median(found) * 1e6, expected, False
    graph.replay()
    found = [_torch_seconds(graph.replay) for _ in range(REPLAYS)]
    return statistics.median(found) * 1e6 / count, expected, True


def _torch_seconds(work: Callable[[], Any]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    kept = work()
    end.record()
    end.synchronize()
    del kept
    return float(begin.elapsed_time(end)) * 1e-3


# ---- one case


@dataclass(frozen=True)
class Found:
    """A row of the table. `candidates` are those that ours took, `notes` what to say, `others` what else there is."""

    name: str
    op: str
    ours_us: float | None
    torch_us: float | None
    candidates: str = ""
    notes: str = ""
    others: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.ours_us is None or not self.torch_us else self.ours_us / self.torch_us

    @property
    def figures(self) -> str:
        """The ratio, and the microseconds of ours and of PyTorch's."""
        texts = ("-" if each is None else f"{each:.2f}" for each in (self.ours_us, self.torch_us))
        return " ".join([f"{'-' if self.ratio is None else f'{self.ratio:.3f}':>7}", *(f"{text:>9}" for text in texts)])

    def line(self) -> str:
        return f"{self.figures}  {self.name:46} {self.candidates[:24]:24} {self.notes}".rstrip()


def measured(ours: Ours, shows_others: bool) -> Found:
    case = ours.case
    sets = _sets(case)
    took, expected, is_recorded = torch_us(case, [given_to_torch(case, each) for each in sets])
    notes = [] if is_recorded else ["eager"]
    others = ""
    if ours.is_whole:
        inputs = [inputs_of(case, each) for each in sets]
        mine, results, candidates = ours.timed(inputs)
        why = difference(results, expected, case)
        if shows_others:
            others = ", ".join(f"{name} {each:.2f}" for name, each in ours.others(inputs))
    else:
        mine, results, has_host_steps = _called(ours, inputs_of(case, sets[0]))
        candidates, why = "", difference(results, expected, case)
        notes.append("host" if has_host_steps else "called")
    if why:
        notes.append(f"WRONG {why}")
    return Found(case.name, case.op, round(mine, 3), round(took, 3), candidates, "; ".join(notes), others)


def _called(ours: Ours, inputs: Sequence[torch.Tensor]) -> tuple[float, list[torch.Tensor], bool]:
    """Microseconds of calls from the host, results, and whether any step ran there."""
    import capgraph

    program = capgraph.optimize(ours.graph, executor="graph", device="cuda", capture={"progress": None})
    named = dict(zip((value.name for value in ours.graph.inputs), inputs, strict=True))
    results = list(program.run(named).values())
    program.run(named)
    torch.cuda.synchronize()
    times: list[float] = []
    while len(times) < REPLAYS and sum(times) < 0.2:
        start = time.perf_counter()
        program.run(named)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    covered = program.coverage
    has_host_steps = covered is None or covered.fallbacks > 0
    return statistics.median(times) * 1e6, [torch.as_tensor(each).cuda() for each in results], has_host_steps


def _sets(case: Case) -> list[list[torch.Tensor]]:
    """Sets of operands that take turns: as many as exceed the cache."""
    first = drawn(case, "cuda")
    size = sum(each.numel() * each.element_size() for each in first)
    count = max(1, min(MOST_LAUNCHES, ROTATED_BYTES // max(size, 1) + 1))
    return [first, *([each.clone() for each in first] for _ in range(count - 1))]


# ---- the table


def table(found: Iterable[Found]) -> str:
    """The cases, each with its dtypes side by side, by their worst ratio, the worst first, with what they come to."""
    rows = sorted(found, key=lambda each: -(each.ratio or float("inf")))
    ratios = sorted(each.ratio for each in rows if each.ratio is not None)
    if not ratios:
        return "no case was measured"
    above = sum(ratio > 1.25 for ratio in ratios)
    marks = {mark: sum(mark in each.notes for each in rows) for mark in ("host", "WRONG", "FAILED")}
    head = (
        f"{len(rows)} cases of {len({each.op for each in rows})} ops, microseconds; ours / torch: median "
        f"{statistics.median(ratios):.2f}, worst {ratios[-1]:.2f}, {above} above 1.25; "
        + ", ".join(f"{count} {mark}" for mark, count in marks.items())
    )
    columns = f"{'case':54} {'dtype':>5} {'ratio':>7} {'ours':>9} {'torch':>9}  ..."
    left_out = [f"not here, as {why}: {ops}" for why, ops in op_cases_heavy.NOT_HERE.items()]
    return "\n".join([head, columns, *_side_by_side(rows), *left_out])


def _side_by_side(rows: Iterable[Found]) -> list[str]:
    """A line for each case, with its dtypes in the order of the rows."""
    cases: dict[str, list[str]] = {}
    for row in rows:
        case, _, dtype = row.name.rpartition(" ")
        notes = f" ({row.notes})" if row.notes else ""
        cases.setdefault(case, []).append(f"{dtype:>5} {row.figures}{notes}")
    return [" ".join([f"{case:54}", *texts]) for case, texts in cases.items()]


def _chosen(arguments: argparse.Namespace) -> list[Case]:
    part, parts = (int(each) for each in arguments.stage.split("/"))
    wanted = [case for case in all_cases() if re.search(arguments.only, case.name)]
    return wanted[part - 1 :: parts]


def run(arguments: argparse.Namespace) -> list[Found]:
    """Plans and compiles all cases first, then measures one after another."""
    from capgraph.executors.cuda.executor import open_device

    gpu = open_device(0, tf32=asked_tf32())
    begun = time.perf_counter()
    found: list[Found] = []
    planned: list[Ours] = []
    with gpu.driver.active:
        for case in _chosen(arguments):
            made = _attempt(case, found, lambda case=case: Ours(gpu, case))
            planned += [] if made is None else [made]
        at = time.perf_counter()
        gpu.compiler.compile(kernel for each in planned for kernel in each.kernels(arguments.candidates))
        compiled = time.perf_counter()
        for each in planned:
            row = _attempt(each.case, found, lambda each=each: measured(each, arguments.candidates))
            if row is not None:
                found.append(row)
                print(row.line() + (f" | {row.others}" if row.others else ""), flush=True)
    measuring = time.perf_counter() - compiled
    print(f"planned in {at - begun:.1f} s, compiled in {compiled - at:.1f}, measured in {measuring:.1f}")
    return found


def _attempt(case: Case, found: list[Found], work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # noqa: BLE001  # one broken case must not cost the others their device time
        text = str(error).strip().partition("\n")[0]
        found.append(Found(case.name, case.op, None, None, notes=f"FAILED {type(error).__name__}: {text[:160]}"))
        print(found[-1].line(), flush=True)
        return None


def check_on_host(arguments: argparse.Namespace) -> list[str]:
    """The ops' NumPy meanings beside PyTorch on the CPU; the names of cases that differ."""
    wrong: list[str] = []
    for case in _chosen(arguments):
        if sum(int(np.prod(each.shape)) for each in case.operands) > LARGEST_ON_HOST:
            continue
        tensors = drawn(case, "cpu")
        try:
            with torch.no_grad(), np.errstate(all="ignore"):
                expected = case.theirs(*given_to_torch(case, tensors))
                arrays = [_array(each) for each in inputs_of(case, tensors)]
                results = [np.array(each) for each in evaluate_graph(graph_of(case, tensors), arrays)]
            why = difference([_tensor(each) for each in results], expected, case)
        except Exception as error:  # noqa: BLE001  # all that is wrong with cases is wanted at once
            why = f"{type(error).__name__}: {str(error)[:200]}"
        if why:
            wrong.append(case.name)
            print(f"{case.name}: {why}", flush=True)
    return wrong


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names match")
    parser.add_argument("--stage", default="1/1", help="every N-th case, from the K-th on")
    parser.add_argument("--candidates", action="store_true", help="time all candidates of every step")
    parser.add_argument("--out", type=Path, help="folder for what was found")
    parser.add_argument(
        "--merge", nargs="+", type=Path, help="print what stages found as one table, which benchmarks/results keeps"
    )
    parser.add_argument("--host", action="store_true", help="check the cases without a GPU")
    arguments = parser.parse_args()
    if arguments.merge:
        rows = [Found(**each) for path in arguments.merge for each in json.loads(path.read_text())]
        print(table({each.name: each for each in rows}.values()))
        return
    if arguments.host:
        sys.exit(bool(check_on_host(arguments)))
    found = run(arguments)
    print(table(found).partition("\n")[0])
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        path = arguments.out / f"op_table-{arguments.stage.replace('/', '-')}.json"
        path.write_text(json.dumps([asdict(each) for each in found], indent=0) + "\n")


if __name__ == "__main__":
    main()
