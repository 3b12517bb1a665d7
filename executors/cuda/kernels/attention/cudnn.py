"""Attention by cuDNN; masks and lengths between a kernel that gets them ready and one that repairs the result.

The library adds masks to scores, so that -inf hides a key only where its score is a number; and it writes nothing for
queries of which lengths say that there is no key for them. Both would differ from what the op means. So where there are
lengths the result is filled with NaN first, and every row that holds one afterwards is computed again by an own kernel,
which is a look at the result and no more where there is none. A row all of whose keys a mask hides is written, as
nothing but its scores says so: zeros by cuDNN 9.19 (`tests/gpu/test_heavy.py`), and NaN would be repaired. Its scores
are in units of log 2, where the lowest floats of f32 and bf16 are -inf too, though they hide no key from others like
it: numbers below `_LOWEST` are made that.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .....ir.plan import element_bytes
from .....ir.types import DType
from ...kernel_ir.launch import Argument, BufferPlace, Candidate, Kernel, KernelLaunch, Launch, LibraryCall, Task
from ...kernel_ir.sources import Source, index_type
from ...kernel_ir.types import number, stored
from ...libraries.problems import AttentionProblem, TensorLayout
from ..gemm.regions import aligned, scratch_behind
from . import fma as attention_fma
from . import tensor_cores as attention_tensor_cores
from .attention import Attention
from .code import lies_in_pieces

WORKSPACE = 4 << 20
"""What plans of cuDNN may want."""

MOST_MASK_BYTES = 128 << 20
"""What a mask that is made for the library may take."""

_LOWEST = -1e38
_LEAST_STEPS = 64
_MOST_SIZE, _MOST_SIZE_BEFORE_HOPPER = 256, 128
_THREADS = 256
_PIECE = 8
"""Halves in 16 bytes."""


def lower_by_cudnn(attention: Attention, task: Task) -> Iterator[Candidate]:
    """Attention of halves, of more than a handful of queries."""
    if not _fits(attention, task):
        return
    made = _prepared(attention, task)
    if made is None:
        return
    sources = {"q": attention.q, "k": attention.k, "v": attention.v, "o": attention.o}
    is_open = attention.mask is not None or attention.lengths is not None
    problem = AttentionProblem(
        **{role: _tensor(source) for role, source in sources.items()},
        scale=attention.scale,
        causal=attention.is_causal and not made.hides_later_keys,
        mask=_tensor(made.mask) if made.mask is not None else None,
        has_lengths=made.lengths is not None,
    )
    workspace, room = scratch_behind(task, made.scratch_bytes, WORKSPACE)
    arguments = {role: source.argument for role, source in sources.items()}
    if made.mask is not None:
        arguments["mask"] = made.mask.argument
    if made.lengths is not None:
        behind = made.lengths.offset + 4 * attention.batch
        arguments |= {"q_lengths": made.lengths, "kv_lengths": BufferPlace(made.lengths.buffer, behind)}
    call = LibraryCall("cudnn", problem, arguments, attention.nbytes, attention.flops, workspace, room)
    launches: tuple[Launch, ...] = (call,)
    if is_open:
        before = [_preparation(attention, made)] if made.scratch_bytes else []
        own = attention_tensor_cores if attention_tensor_cores.fits(attention) else attention_fma
        launches = (*before, call, own.repair(attention, task.chip))
    yield Candidate("cudnn", launches, made.scratch_bytes + room)


def _fits(attention: Attention, task: Task) -> bool:
    sources = (attention.q, attention.k, attention.v, attention.o)
    most = _MOST_SIZE if task.chip.arch >= 90 else _MOST_SIZE_BEFORE_HOPPER  # Hopper is 9.0
    sizes = attention.depth, attention.width
    is_open = attention.mask is not None or attention.lengths is not None
    return (
        all(source.dtype is attention.q.dtype for source in sources)
        and attention.q.dtype in (DType.F16, DType.BF16)
        and not attention.softcap
        and attention.steps >= _LEAST_STEPS
        and max(sizes) <= most
        and all(map(lies_in_pieces, sources))
        and (not is_open or attention_fma.fits(attention, task.chip))
    )


def _tensor(source: Source) -> TensorLayout:
    return TensorLayout(source.dtype, source.shape, source.strides)


# ---- what the library gets


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The mask that the library adds, if any, and whether it is `made` in scratch; where lengths in i32 lie.

    `hides_later_keys`: the mask does what `causal` would.
    """

    mask: Source | None = None
    is_made: bool = False
    lengths: BufferPlace | None = None
    scratch_bytes: int = 0
    hides_later_keys: bool = False


def _prepared(attention: Attention, task: Task) -> _Prepared | None:
    """None where there is no mask of such a dtype, or no room for what has to be made."""
    mask, lengths = attention.mask, attention.lengths
    if mask is None and lengths is None:
        return _Prepared()
    place, room = scratch_behind(task, 0)
    if mask is None:
        nbytes = aligned(8 * attention.batch)
        return _Prepared(lengths=place, scratch_bytes=nbytes) if place is not None and nbytes <= room else None
    if mask.dtype is DType.F64:
        return None
    if lengths is None and _is_added_as_it_is(attention, mask):
        shown = tuple(1 if stride == 0 else size for size, stride in zip(mask.shape, mask.strides, strict=True))
        return _Prepared(Source(mask.dtype, shown, mask.strides, mask.argument, mask.constant))
    shape = _made_shape(attention, mask)
    pitch = -(-shape[3] // _PIECE) * _PIECE
    dtype = attention.q.dtype if mask.dtype in (DType.BOOL, attention.q.dtype) else DType.F32
    nbytes = aligned(math.prod(shape[:3]) * pitch * element_bytes(dtype))
    if place is None or nbytes > min(room, MOST_MASK_BYTES):
        return None
    strides = (shape[1] * shape[2] * pitch, shape[2] * pitch, pitch, 1)
    return _Prepared(Source(dtype, shape, strides, place), True, None, nbytes, lengths is not None)


def _is_added_as_it_is(attention: Attention, mask: Source) -> bool:
    """Whether the library can read it: rows of floats, which begin at whole pieces in halves, none of them too low."""
    is_half = mask.dtype is attention.q.dtype
    starts = mask.starts_a_piece and all(stride % _PIECE == 0 for stride in mask.strides[:3])
    is_read = mask.strides[3] == 1 and (mask.dtype is DType.F32 or (is_half and starts))
    return is_read and (mask.dtype is DType.F16 or _is_known_to_stay_finite(mask))


def _is_known_to_stay_finite(mask: Source) -> bool:
    if mask.constant is None:
        return False
    content = mask.constant.array.astype(np.float32, copy=False)
    return not bool(((content < _LOWEST) & (content != -np.inf)).any())


def _made_shape(attention: Attention, mask: Source) -> tuple[int, int, int, int]:
    """The shape of the mask that is made: as the one that there is, but for what lengths hide."""
    batch, heads, steps = (
        1 if stride == 0 else size for size, stride in zip(mask.shape[:3], mask.strides[:3], strict=True)
    )
    if attention.lengths is not None:
        batch = attention.batch
        steps = attention.steps if attention.is_causal else steps
    return batch, heads, steps, attention.keys


# ---- the kernel before


def _preparation(attention: Attention, made: _Prepared) -> KernelLaunch:
    """One kernel that makes the mask, or the lengths with a result that is filled with NaN."""
    o = attention.o
    parts: list[tuple[int, str]] = []
    parameters: list[str] = []
    arguments: list[Argument] = []
    nbytes = 0
    if made.is_made:
        assert made.mask is not None
        assert attention.mask is not None
        parts.append(_masking(attention, made.mask))
        parameters += [f"const {stored(attention.mask.dtype)}* mask", f"{stored(made.mask.dtype)}* made"]
        arguments += [attention.mask.argument, made.mask.argument]
        nbytes += attention.mask.nbytes + made.mask.nbytes
    if attention.lengths is not None:
        parameters.append("const i64* lengths")
        arguments.append(attention.lengths.argument)
    if made.lengths is not None:
        parts += [_lengths_code(attention), _filling(o)]
        parameters += ["int* counts", f"{stored(o.dtype)}* o"]
        arguments += [made.lengths, o.argument]
        nbytes += o.nbytes
    code, first = "", 0
    for blocks, text in parts:
        code += f"""
  if (blockIdx.x >= {first}u && blockIdx.x < {first + blocks}u) {{
    const i64 thread = (i64)(blockIdx.x - {first}u) * {_THREADS} + threadIdx.x;
    {text}
  }}"""
        first += blocks
    text = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({", ".join(parameters)}) {{
  begin();{code}
}}
"""
    return KernelLaunch(Kernel(text, (first, 1, 1), (_THREADS, 1, 1)), tuple(arguments), nbytes, may_overlap=True)


def _blocks(threads: int) -> int:
    return -(-threads // _THREADS)


def _filling(o: Source) -> tuple[int, str]:
    """Blocks and statements that fill the result with NaN, eight elements a thread."""
    batch, heads, steps, width = o.shape
    pieces = width // _PIECE
    is_whole = o.starts_a_piece and all(stride % _PIECE == 0 for stride in o.strides[:3])
    kind = f"pack<{stored(o.dtype)}, {_PIECE}>"
    store = f"*({kind}*)to = filled;" if is_whole else f"for (int i = 0; i < {_PIECE}; i++) to[i] = filled.v[i];"
    threads = batch * heads * steps * pieces
    return (
        _blocks(threads),
        f"""if (thread < {threads}) {{
      i64 place = thread;
      const i64 piece = place % {pieces}; place /= {pieces};
      const i64 t = place % {steps}; place /= {steps};
      {stored(o.dtype)}* const to = o + place / {heads} * {o.strides[0]} + place % {heads} * {o.strides[1]} +
                                  t * {o.strides[2]} + piece * {_PIECE};
      {kind} filled;
#pragma unroll
      for (int i = 0; i < {_PIECE}; i++) filled.v[i].bits = 0x7fff;
      {store}
    }}""",
    )


def _masking(attention: Attention, made: Source) -> tuple[int, str]:
    """Blocks and statements that write what is added to scores: -inf where a key is hidden."""
    mask = attention.mask
    assert mask is not None
    _, heads, steps, keys = made.shape
    pieces = made.strides[2] // _PIECE
    wide = "(i64)" if index_type(mask) != "int" else ""
    at = " + ".join(
        f"{wide}{name} * {stride}" for name, stride in zip(("b", "h", "t"), mask.strides[:3], strict=True) if stride
    )
    width = _PIECE * element_bytes(mask.dtype)
    is_whole = (
        mask.strides[3] == 1
        and keys % _PIECE == 0
        and all(stride % _PIECE == 0 for stride in mask.strides[:3])
        and (not isinstance(mask.argument, BufferPlace) or mask.argument.offset % min(width, 16) == 0)
    )
    kind = f"pack<{stored(mask.dtype)}, {_PIECE}>"
    given = (
        f"const {kind} given = *(const {kind}*)(mask + {at or 0} + first);"
        if is_whole
        else f"{kind} given = {{}};\n#pragma unroll\n      for (int i = 0; i < {_PIECE}; i++) "
        f"if (first + i < {keys}) given.v[i] = mask[{at or 0} + (first + i) * {mask.strides[3]}];"
    )
    hidden = ["key >= length"] if attention.lengths is not None else []
    if attention.lengths is not None and attention.is_causal:
        hidden.append(f"key > t + length - {attention.steps}")
    length = f"const i64 length = lengths[b * {attention.lengths.strides[0]}];" if attention.lengths is not None else ""
    value = "get(given.v[i])"
    if mask.dtype is DType.BOOL:
        value += " ? 0.0f : -INFINITE"
    elif mask.dtype is not DType.F16:
        value = f"{value} == -INFINITE ? -INFINITE : greatest({value}, {number(_LOWEST, 'float')})"
    result = f"pack<{stored(made.dtype)}, {_PIECE}>"
    threads = made.shape[0] * heads * steps * pieces
    return (
        _blocks(threads),
        f"""if (thread < {threads}) {{
      i64 place = thread;
      const int first = place % {pieces} * {_PIECE}; place /= {pieces};
      const int t = place % {steps}; place /= {steps};
      const int h = place % {heads}, b = place / {heads};
      {length}
      {given}
      {result} added;
#pragma unroll
      for (int i = 0; i < {_PIECE}; i++) {{
        const int key = first + i;
        put(added.v[i], {f"{' || '.join(hidden)} ? -INFINITE : " if hidden else ""}{value});
      }}
      *({result}*)(made + thread * {_PIECE}) = added;
    }}""",
    )


def _lengths_code(attention: Attention) -> tuple[int, str]:
    """Blocks and statements that write how many queries and keys each sample has, in i32."""
    assert attention.lengths is not None
    return (
        _blocks(attention.batch),
        f"""if (thread < {attention.batch}) {{
      const i64 length = lengths[thread * {attention.lengths.strides[0]}];
      counts[thread] = {attention.steps};
      counts[{attention.batch} + thread] = length < 0 ? 0 : length > {attention.keys} ? {attention.keys} : (int)length;
    }}""",
    )
