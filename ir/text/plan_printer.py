"""The text form of a plan: its buffers, and its steps under the segments that they belong to, in columns.

    plan @main at B=2: arena of 256 bytes, at least 256, aligned to 256
    buffers
      #0  arena  +0    32 bytes  before..0  x
      #1  arena  +256  32 bytes  0..after   y
    steps
      0..0 captured
        0  compute  #1  by lanes1, host  %y: f32[2, 4] = softmax(%x)

A buffer has its place, the offset where it lies in the arena, its size, the first and last step that need it, and what
is in it. A step has what it does, where its results lie (`#1+16` is 16 bytes into buffer 1; strides, in bytes, where
they are not row-major), its scratch, the candidates that the device has for it where they are given, and its node.
Below it may stand the launches of the first candidate.
"""

from collections.abc import Iterator, Mapping, Sequence

from ..graph import Value
from ..plan import Buffer, Place, Plan, Segment, Step
from .printer import print_node


def print_plan(
    plan: Plan,
    candidates: Mapping[int, Sequence[str]] | None = None,
    launches: Mapping[int, Sequence[str]] | None = None,
) -> str:
    """The text of `plan` and of the plans of its bodies, ending with a newline.

    `candidates` names what a device has for a step, by the step's index, best guess first; `launches` are lines about
    the first of them.
    """
    texts = [_plan_text(plan, candidates or {}, launches or {})]
    texts += [print_plan(body) for body in plan.bodies.values()]
    return "\n".join(texts)


def _plan_text(plan: Plan, candidates: Mapping[int, Sequence[str]], launches: Mapping[int, Sequence[str]]) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in plan.sizes.items())
    head = (
        f"plan @{plan.graph.name}{f' at {sizes}' if sizes else ''}: arena of {plan.arena_bytes:,} bytes, "
        f"at least {plan.lower_bound:,}, aligned to {plan.alignment}"
    )
    lines = [head, "buffers", *_indented(_columns([_buffer_cells(each, len(plan.steps)) for each in plan.buffers]), 2)]
    lines.append("steps")
    rows = dict(zip(plan.steps, _columns([_step_cells(plan, each, candidates) for each in plan.steps]), strict=True))
    for segment in plan.segments:
        lines.append(f"  {_segment_text(segment)}")
        for step in plan.steps_of(segment):
            lines += [f"    {rows[step]}", *_indented(launches.get(step.index, ()), 7)]
    for output, state in plan.copies.items():
        lines.append(f"copy %{plan.graph.outputs[output].name} into state %{plan.graph.inputs[state].name}")
    return "\n".join(lines) + "\n"


def _buffer_cells(buffer: Buffer, steps: int) -> list[str]:
    first = "before" if buffer.first < 0 else str(buffer.first)
    last = "after" if buffer.last >= steps else str(buffer.last)
    offset = f"+{buffer.offset:,}" if buffer.place is Place.ARENA else ""
    size = f"{buffer.nbytes:,} bytes"
    return [f"#{buffer.id}", buffer.place.value, offset, size, f"{first}..{last}", buffer.label]


def _segment_text(segment: Segment) -> str:
    reasons = dict.fromkeys(f"{cut.step}: {cut.reason.value}" for cut in segment.cuts)
    kind = "captured" if segment.is_captured else "eager"
    return f"{segment.start}..{segment.stop - 1} {kind}{' - ' if reasons else ''}{'; '.join(reasons)}"


def _step_cells(plan: Plan, step: Step, candidates: Mapping[int, Sequence[str]]) -> list[str]:
    places = " ".join(_place_text(plan, value) for value in step.node.outputs)
    own = [f"scratch #{step.scratch}"] if step.scratch is not None else []
    names = candidates.get(step.index, ())
    own += [f"by {', '.join(names)}"] if names else []
    return [str(step.index), step.kind.value, places, "; ".join(own), print_node(step.node)]


def _place_text(plan: Plan, value: Value) -> str:
    view = plan.views.get(value)
    if view is None:
        return f"#{plan.dynamic[value]}"
    offset = f"+{view.offset}" if view.offset else ""
    return f"#{view.buffer}{offset}{'' if view.is_contiguous else f' strides {list(view.strides)}'}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width] for row in rows)
    return ["  ".join(cells).rstrip() for cells in padded]


def _indented(lines: Sequence[str], blanks: int) -> Iterator[str]:
    return (" " * blanks + line for line in lines)
