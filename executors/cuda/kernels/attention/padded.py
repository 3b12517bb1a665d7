"""Attention by cuDNN where heads do not lie in whole pieces of 16 bytes: on copies with zeros behind each head."""

import math
from collections.abc import Iterator
from dataclasses import replace

from .....ir.plan import element_bytes
from ...kernel_ir import flat
from ...kernel_ir.copies import copied
from ...kernel_ir.launch import Candidate, Chip, KernelLaunch, Task
from ...kernel_ir.layouts import layout_of
from ...kernel_ir.program import KernelProgram, raw
from ...kernel_ir.sources import Source, view_of
from ..gemm.regions import aligned, scratch_behind
from .attention import Attention
from .code import lies_in_pieces
from .cudnn import lower_by_cudnn

_PIECE = 8
"""Halves in 16 bytes."""


def lower_padded(attention: Attention, task: Task) -> Iterator[Candidate]:
    """The library between a kernel that copies what it does not take as it lies, and one that writes the result."""
    sources = (attention.q, attention.k, attention.v, attention.o)
    if element_bytes(attention.q.dtype) != 2 or all(map(lies_in_pieces, sources)):
        return
    used = 0
    whole: list[Source] = []
    for source in sources:
        place, room = scratch_behind(task, used)
        if lies_in_pieces(source):
            whole.append(source)
            continue
        shape = (*source.shape[:3], -(-source.shape[3] // _PIECE) * _PIECE)
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(4))
        nbytes = aligned(math.prod(shape) * element_bytes(source.dtype))
        if place is None or nbytes > room:
            return
        whole.append(Source(source.dtype, shape, strides, place))
        used += nbytes
    q, k, v, o = whole
    scratch, room = scratch_behind(task, used)
    before = _filled([pair for pair in zip(sources[:3], whole[:3], strict=True) if pair[0] is not pair[1]], task.chip)
    part, result = view_of(replace(o, shape=attention.o.shape)), view_of(attention.o)
    assert part is not None
    assert result is not None
    behind = copied(part, result, task.chip) if o is not attention.o else ()
    inner = replace(task, scratch=scratch, scratch_bytes=room)
    for each in lower_by_cudnn(replace(attention, q=q, k=k, v=v, o=o), inner):
        launches = (*before, *each.launches, *behind)
        yield Candidate(f"{each.name}-padded", launches, used + each.scratch_bytes)


def _filled(pairs: list[tuple[Source, Source]], chip: Chip) -> tuple[KernelLaunch, ...]:
    """One kernel that copies tensors to wider ones, zeros behind each head."""
    programs: list[KernelProgram] = []
    for source, target in pairs:
        views = view_of(source), view_of(target)
        assert views[0] is not None
        assert views[1] is not None
        program = KernelProgram(target.shape)
        condition = f"{program.coordinate(3).text} < {source.shape[3]}"
        layout = replace(raw(layout_of(views[0])), shape=target.shape)
        is_whole = source.shape == target.shape
        x = program.load(layout) if is_whole else program.fetch(layout, "0", condition=condition, default="0")
        program.store(x, raw(layout_of(views[1])))
        programs.append(program)
    return flat.launch(programs, chip)
