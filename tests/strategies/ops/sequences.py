"""Operands of attention, rotary embedding and recurrent cells."""

from collections.abc import Sequence

from capgraph.ir.dims import Dim
from capgraph.ir.op import Op
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, sample
from tests.strategies.sizes import at_home

ACTIVATIONS = (
    "Relu",
    "Tanh",
    "Sigmoid",
    "Softsign",
    "Softplus",
    "LeakyRelu",
    "ThresholdedRelu",
    "Elu",
    "Affine",
    "ScaledTanh",
    "HardSigmoid",
)


def _small(d: GraphDraw) -> Dim:
    """A size of which products stay small."""
    dim = d.known_dim()
    size = at_home(dim)
    return dim if size is not None and size <= 6 else 2


def attention(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    batch, steps, keys = _small(d), _small(d), _small(d)
    shared, heads, depth = d.choose.integer(1, 2), d.choose.integer(1, 2), d.choose.integer(1, 3)
    is_flat, size = d.choose.chance(40), d.choose.integer(1, 3)
    q = d.shaped(dtypes["q"], _heads(batch, heads * shared, steps, depth, is_flat))
    k = d.shaped(dtypes["k"], _heads(batch, heads, keys, depth, is_flat))
    v = d.shaped(dtypes["v"], _heads(batch, heads, keys, size, is_flat))
    full = (batch, heads * shared, steps, keys)
    mask = d.broadcastable(dtypes["mask"], full, to=True) if d.choose.chance(50) else None
    lengths = d.steering(DType.I64, (batch,), 0, keys + 1) if d.choose.chance(30) else None
    scale = d.choose.pick((None, 1.0, 0.5))
    counts = {"heads": heads * shared, "kv_heads": heads} if is_flat else {}
    return sample(q, k, v, mask, lengths, scale=scale, **counts, **d.options(op, "causal", "softcap"))


def _heads(batch: Dim, heads: int, steps: Dim, size: int, is_flat: bool) -> Sequence[Dim]:
    return (batch, steps, heads * size) if is_flat else (batch, heads, steps, size)


def varlen_attention(d: GraphDraw, op: Op) -> Sample:
    """As many tokens as `longest` for each sequence, so that lengths up to that always fit."""
    dtypes = d.dtypes(op)
    rows, keys, longest = _small(d), _small(d), d.choose.integer(1, 3)
    shared, heads = d.choose.integer(1, 2), d.choose.integer(1, 2)
    depth, size = d.choose.integer(1, 3), d.choose.integer(1, 3)
    q = d.shaped(dtypes["q"], (rows * longest, heads * shared, depth))
    k = d.shaped(dtypes["k"], (rows, keys, heads, depth))
    v = d.shaped(dtypes["v"], (rows, keys, heads, size))
    counts = d.steering(DType.I64, (rows,), 0, longest + 1)
    lengths = d.steering(DType.I64, (rows,), 0, keys + 1)
    scale = d.choose.pick((None, 1.0, 0.5))
    limit = q.shape[0] if d.choose.chance(20) else longest
    return sample(q, k, v, counts, lengths, scale=scale, longest=limit, **d.options(op, "causal", "softcap"))


def rotary_embedding(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    dtype, batch, steps = dtypes["x"], _small(d), _small(d)
    heads, depth = d.choose.integer(1, 2), 2 * d.choose.integer(1, 2)
    is_flat = d.choose.chance(40)
    shape: Sequence[Dim] = (batch, steps, heads * depth) if is_flat else (batch, heads, steps, depth)
    rotated = d.choose.pick((0, 2))
    half = (rotated or depth) // 2
    positions = None
    table: Sequence[Dim] = (batch, steps, half)
    if d.choose.chance(50):
        table = (d.choose.integer(1, 4), half)
        positions = d.steering(dtypes["positions"], (batch, steps), 0, table[0])
    wide = DType.F32 if dtype.is_small_float and d.choose.chance(30) else dtype
    cos, sin = d.shaped(wide, table), d.shaped(wide, table)
    return sample(
        d.shaped(dtype, shape),
        cos,
        sin,
        positions,
        heads=heads if is_flat else d.choose.pick((0, heads)),
        rotary_dim=rotated,
        **d.options(op),
    )


def recurrent(d: GraphDraw, op: Op) -> Sample:
    """lstm, gru and rnn differ in the rows of their weights for each hidden unit, and in their states."""
    gates, per_direction = {"lstm": (4, 3), "gru": (3, 2), "rnn": (1, 1)}[op.name]
    dtypes = d.dtypes(op)
    dtype, steps, batch = dtypes["x"], _small(d), _small(d)
    width, hidden = d.choose.integer(1, 3), d.choose.integer(1, 2)
    options = d.options(op)
    count, layout = 2 if options["direction"] == "bidirectional" else 1, d.choose.integer(0, 1)
    state = (batch, count, hidden) if layout else (count, batch, hidden)
    x = d.shaped(dtype, (batch, steps, width) if layout else (steps, batch, width))
    inputs = [
        x,
        d.shaped(dtype, (count, gates * hidden, width)),
        d.shaped(dtype, (count, gates * hidden, hidden)),
        d.maybe(dtype, (count, 2 * gates * hidden)),
        d.steering(dtypes["lengths"], (batch,), 0, steps + 1) if d.choose.chance(40) else None,
        d.maybe(dtype, state),
    ]
    if op.name == "lstm":
        inputs += [d.maybe(dtype, state), d.maybe(dtype, (count, 3 * hidden))]
    if d.choose.chance(40):
        options["activations"] = tuple(d.choose.pick(ACTIVATIONS) for _ in range(per_direction * count))
        options["activation_alpha"] = (0.5,) * d.choose.integer(0, 2)
    return sample(*inputs, layout=layout, **options)


SAMPLERS: dict[str, Sampler] = {
    "attention": attention,
    "varlen_attention": varlen_attention,
    "rotary_embedding": rotary_embedding,
    "lstm": recurrent,
    "gru": recurrent,
    "rnn": recurrent,
}
