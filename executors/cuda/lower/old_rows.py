"""Attention over caches that are states: rows of earlier calls are read before the kernel waits for its predecessor.

Of such a cache a plan writes one row of each sample, at a place that lies in device memory. What is read of that row
too early is read again. All other rows are from earlier calls, which have ended: the plan's first kernel starts behind
all that was enqueued before, as it is not allowed to overlap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ....ir.graph import Value
from ....ir.ops.known import ATTENTION, TENSOR_SCATTER
from ....ir.plan import Place as Home
from ....ir.plan import Plan, StepKind
from ..kernel_ir.launch import Candidate, KernelLaunch
from ..kernel_ir.sources import Source, source_of
from ..kernels.attention.attention import attention_of
from ..kernels.attention.tensor_cores import OldRows, early_launch, shape_named
from .lowering import LoweredStep

Chosen = tuple[Candidate | None, ...]


def with_old_rows(plan: Plan, lowered: Sequence[LoweredStep], chosen: Sequence[Candidate | None]) -> Chosen:
    """The chosen candidates of a plan's steps, in which attention reads old rows early."""
    found = list(chosen)
    for index, (each, candidate) in enumerate(zip(lowered, chosen, strict=True)):
        if each.step.node.op is ATTENTION and candidate is not None:
            early = _early(plan, lowered, each, candidate)
            found[index] = candidate if early is None else early
    return tuple(chosen) if found == list(chosen) else tuple(_begun_alone(found))


def _early(plan: Plan, lowered: Sequence[LoweredStep], step: LoweredStep, candidate: Candidate) -> Candidate | None:
    attention = None if step.task is None else attention_of(step.task)
    shape = shape_named(candidate.name)
    if attention is None or shape is None:
        return None
    places = [_place_of_new_row(plan, lowered, value) for value in step.step.node.operands[1:3]]
    if places[0] is None or places[1] is None:
        return None
    launch = early_launch(attention, shape, OldRows(places[0], places[1]))
    return None if launch is None else replace(candidate, launches=(launch,))


def _place_of_new_row(plan: Plan, lowered: Sequence[LoweredStep], cache: Value) -> Source | None:
    """Where the place lies of the one row that a plan writes of a cache; None where more may be new."""
    write = cache.producer
    if write is None or write.op is not TENSOR_SCATTER or write.attrs["mode"] != "linear" or len(write.operands) < 3:
        return None
    old, update, positions = write.operands[:3]
    is_row = len(update.shape) == 4 and write.attrs["axis"] % 4 == 2 and update.shape[2] == 1
    if not is_row or plan.views[old] != plan.views[cache]:
        return None
    buffer = plan.views[cache].buffer
    if plan.buffers[buffer].place is not Home.STATE or old not in plan.graph.inputs:
        return None
    writers = [
        each.step.node
        for each in lowered
        if each.step.kind is not StepKind.ALIAS
        and any(plan.views[value].buffer == buffer for value in each.step.node.outputs)
    ]
    is_copied = any(plan.views[plan.graph.inputs[source]].buffer == buffer for source in plan.copies.values())
    return source_of(plan.views[positions]) if writers == [write] and not is_copied else None


def _begun_alone(chosen: Sequence[Candidate | None]) -> Iterator[Candidate | None]:
    """The candidates with a first kernel that starts when all before it has ended."""
    is_first = True
    for each in chosen:
        first = None if each is None or not each.launches else each.launches[0]
        if each is not None and is_first and isinstance(first, KernelLaunch):
            yield replace(each, launches=(replace(first, may_overlap=False), *each.launches[1:]))
        else:
            yield each
        is_first = is_first and first is None
