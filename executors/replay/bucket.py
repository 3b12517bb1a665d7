"""One bucket, captured: a plan with memory, a recording for each captured segment that was admitted, and its inputs."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from ...ir.analysis import all_nodes
from ...ir.errors import CaptureError
from ...ir.graph import Node
from ...ir.op import Trait
from ...ir.plan import CutReason, Measured, Place, Plan, Segment, Step, StepKind
from ..progress import step_name
from .capture import record
from .counters import BucketReport, Counters
from .measured import cut_to_found
from .modes import InputPolicy
from .recorder import BoundPlan, Cut, Recording
from .static_inputs import StaticInputs
from .strided import StridedInputs
from .verification import output_problem, segment_problem, tail_poison


@dataclass
class SegmentRun:
    """A segment of the plan; without a recording it runs eagerly, if it was to be captured because of `refusal`."""

    segment: Segment
    recording: Recording | None = None
    refusal: str = ""


class Bucket:
    """A bound plan that replays: `calls` so far, `replays` of recordings in each.

    Not thread-safe: buckets share their arena.
    """

    def __init__(
        self,
        bound: BoundPlan,
        policies: Mapping[str, InputPolicy],
        fills: Mapping[str, Any],
        counters: Counters,
        stored: frozenset[int] = frozenset(),
    ) -> None:
        self.bound = bound
        self.calls = 0
        self.replays = 0
        self.is_verified = False
        self.stored = stored
        """The inputs that a store holds, by index."""
        self.strided = StridedInputs(bound.plan)
        self._counters = counters
        self._seconds = 0.0
        self._runs = [SegmentRun(segment) for segment in bound.plan.segments]
        self._actions: list[Callable[[], None]] = []
        self._has_copies = bool(bound.plan.copies)
        self._measured: Measured = bound.plan.measured
        self._inputs = StaticInputs(bound, policies, fills, counters, self._repoint, self._rerecord, stored)
        self._fixed_tails = frozenset(fills)
        self._refresh()

    # ---- running

    def run(self, values: Sequence[Any]) -> None:
        """One call with inputs of the bucket's sizes or smaller ones, up to `results`.

        Raises `ExecutionError` when a kernel fails, `CaptureError` when memory is not where it was recorded.
        """
        bound = self.bound
        bound.start()
        self._inputs.bring(values)
        for action in self._actions:
            action()
        self.calls += 1
        self._counters.size_reads += bool(self._measured.shapes)

    def apart(self, values: Sequence[Any]) -> list[Any]:
        """The inputs, with copies of those in the arena, such as the last results: steps and other inputs go there."""
        bound, arena = self.bound, self.bound.arena
        first, behind = arena.address, arena.address + arena.nbytes
        return [
            each.copy() if isinstance(each, np.ndarray) and first <= bound.address_of(each) < behind else each
            for each in values
        ]

    def results(self, shapes: Mapping[int, Cut | None], *, copies: bool) -> list[Any]:
        """Outputs of `run` by index, cut to `shapes`: copies, or where they lie but for those that lie in a state.

        They are taken before the states get their new content, which some may be views of the old. Sizes that the run
        found are read first, all at once.
        """
        bound = self.bound
        shapes = cut_to_found(bound, shapes)
        if copies:
            found = [bound.copy_of_result(index, shape) for index, shape in shapes.items()]
        else:
            found = [self._static_result(index, shape) for index, shape in shapes.items()]
        if self._has_copies:
            bound.finish()
        if copies:
            bound.forget()
        return found

    def _static_result(self, index: int, shape: Cut | None) -> Any:
        in_state = self.bound.plan.buffer_of(self.bound.plan.graph.outputs[index]).place is Place.STATE
        return self.bound.copy_of_result(index, shape) if in_state else self.bound.result(index, shape)

    @property
    def recordings(self) -> list[Recording]:
        """The recordings that a call replays."""
        return [run.recording for run in self._runs if run.recording is not None]

    @property
    def is_recorded_whole(self) -> bool:
        """Whether every segment is replayed: nothing runs eagerly."""
        return all(run.recording is not None for run in self._runs)

    @property
    def policies(self) -> Sequence[InputPolicy]:
        """How each input reaches the recordings."""
        return self._inputs.policies

    @property
    def nbytes(self) -> int:
        """What the recordings take."""
        return sum(recording.nbytes for recording in self.recordings)

    # ---- capturing

    def capture(self, values: Sequence[Any], expected: Sequence[Any], warm_ups: int) -> None:
        """Warms up, records every captured segment, and admits what gives the `expected` outputs over poison.

        `values` may be smaller than the bucket. Raises `CaptureError` when a segment cannot be recorded or the outputs
        are wrong; a segment that alone gives other results than its steps is refused and runs eagerly.
        """
        start = perf_counter()
        for _ in range(warm_ups):
            self._run_eagerly(values)
        for run in self._runs:
            if run.segment.is_captured:
                run.recording = record(self.bound, run.segment)
        if not is_random(self.bound.plan):
            self._verify(values, expected)
        self._refresh()
        self._inputs.decide(values)
        self.bound.forget()
        self._seconds = perf_counter() - start
        self._counters.captures += bool(self.recordings)
        self._counters.capture_seconds += self._seconds

    def _run_eagerly(self, values: Sequence[Any]) -> None:
        self.bound.start()
        for index, given in enumerate(values):
            self.bound.load(index, given, self._inputs.fills[index])
        for run in self._runs:
            self.bound.run(run.segment)
        self.bound.finish()

    def _load_poisoned(self, values: Sequence[Any]) -> None:
        """Inputs whose padded rows hold the worst that they may hold."""
        for index, (value, given) in enumerate(zip(self.bound.plan.graph.inputs, values, strict=True)):
            is_fixed = value.name in self._fixed_tails or not hasattr(given, "dtype")
            self.bound.load(index, given, self._inputs.fills[index] if is_fixed else tail_poison(given))

    def _verify(self, values: Sequence[Any], expected: Sequence[Any]) -> None:
        bound = self.bound
        bound.start()
        bound.poison()
        self._load_poisoned(values)
        for run in self._runs:
            self._verify_segment(run)
        given = self.results({i: getattr(each, "shape", None) for i, each in enumerate(expected)}, copies=True)
        problem = output_problem(expected, given, bound.plan.graph.output_names[: len(expected)])
        if problem:
            raise CaptureError(f"verification failed: {problem}", remedy="report it with the text form of the graph")
        self.is_verified = True

    def _verify_segment(self, run: SegmentRun) -> None:
        if run.recording is None:
            self.bound.run(run.segment)
            return
        problem = segment_problem(self.bound, run.segment, run.recording)
        if problem:
            run.recording.close()
            run.recording, run.refusal = None, problem
            self._counters.refused_segments += 1

    def _repoint(self, index: int) -> None:
        for recording in self.recordings:
            if not recording.repoint(index):
                self._rerecord()
                return

    def _rerecord(self) -> None:
        for run in self._runs:
            if run.recording is not None:
                run.recording.close()
                run.recording = record(self.bound, run.segment)
        self._refresh()

    def move_states(self, states: Mapping[str, Any]) -> None:
        """Goes over to other memory for states, and records anew what refers to the old one.

        Raises `CaptureError` where that cannot be recorded.
        """
        self.bound.move_states(states)
        self._rerecord()

    def _refresh(self) -> None:
        self._actions = [
            partial(self.bound.run, run.segment) if run.recording is None else run.recording.replay
            for run in self._runs
        ]
        self.replays = len(self.recordings)

    # ---- the rest

    @property
    def refusals(self) -> tuple[str, ...]:
        """Which segments run eagerly although they were to be captured, and why."""
        refused = [run for run in self._runs if run.refusal]
        return tuple(f"steps {p.segment.start} to {p.segment.stop - 1}: {p.refusal}" for p in refused)

    def cuts(self, chosen: Container[CutReason] = frozenset()) -> tuple[str, ...]:
        """Which steps are not captured, and why, but for the reasons in `chosen`."""
        plan: Plan = self.bound.plan
        cuts = [cut for segment in plan.segments for cut in segment.cuts if cut.reason not in chosen]
        return tuple(_cut_line(plan.steps[cut.step].node, cut.reason, self._measured) for cut in cuts)

    def report(self) -> BucketReport:
        """The bucket for `stats()`."""
        plan: Plan = self.bound.plan
        names = [value.name for value in plan.graph.inputs]
        eager = [run for run in self._runs if run.recording is None]
        return BucketReport(
            sizes=tuple(plan.sizes.items()),
            nbytes=self.nbytes,
            segments=len(self.recordings),
            eager_segments=len(self._runs) - len(self.recordings),
            eager_steps=sum(_does_work(step) for run in eager for step in plan.steps_of(run.segment)),
            kernels=sum(map(len, self.recordings)),
            calls=self.calls,
            seconds=self._seconds,
            verified=self.is_verified,
            refusals=self.refusals,
            cuts=self.cuts(),
            bounded=self._measured.notes,
            rewrites=tuple(plan.rewrites.items()),
            policies=tuple(zip(names, (policy.value for policy in self._inputs.policies), strict=True)),
        )

    def close(self) -> None:
        """Gives the recordings back."""
        for recording in self.recordings:
            recording.close()
        self._runs, self._actions = [], []
        self.bound.forget()


def is_random(plan: Plan) -> bool:
    """Whether two runs of the plan may differ, so that it cannot be compared with eager."""
    return any(node.op.has(Trait.IMPURE) for node in all_nodes(plan.graph))


def _cut_line(node: Node, reason: CutReason, measured: Measured) -> str:
    why = measured.refusals.get(node.outputs[0].name) if node.outputs else None
    return f"{step_name(node)}: {reason.value}" + (f"; it has no bound: {why}" if why else "")


def _does_work(step: Step) -> bool:
    return step.kind is StepKind.COMPUTE and bool(step.node.inputs)
