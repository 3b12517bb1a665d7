"""Attention, rotary embedding and recurrent cells."""

import math
from functools import partial

from .....ir.types import DType
from .facts import Case, Fact, Mask, Number, Rules, Tail, Unsafe, is_equal, met
from .sizes import grows, narrowed


def _met(*tails: Tail | None) -> Tail | None:
    present = [tail for tail in tails if tail is not None]
    return met(present, "operands") if present else None


# ---- attention

_Q, _K, _V, _MASK, _LENGTHS = range(5)


def attention(case: Case) -> list[Fact]:
    """Samples and queries by themselves. Padded keys must be hidden from every query, and their values be zeros."""
    rank = len(case.tails(_Q))
    steps = 2 if rank == 4 else 1
    heads = {1, 3} if rank == 4 else {2}
    for operand in (_Q, _K, _V):
        if any(case.tails(operand)[axis] is not None for axis in heads):
            raise Unsafe(f"heads carry {case.symbol}")
    batch = _met(*(case.tails(operand)[0] for operand in (_Q, _K, _V)))
    queries = _met(case.tails(_Q)[steps], _mask_tail(case, 2))
    _require_mask_aligned(case, batch, queries)
    if case.optional(_LENGTHS) is not None:
        case.require_in_range(_LENGTHS)
        if queries is not None and case.node.attrs["causal"]:
            raise Unsafe(f"which keys a query sees depends on the number of queries, {case.symbol}")
    if case.node.attrs["causal"] and not all(_is_plain_prefix(t) for t in (queries, case.tails(_K)[steps])):
        raise Unsafe(f"real queries or keys of {case.symbol} are not the first")
    _require_hidden_keys(case, steps, queries)
    tails: list[Tail | None] = [None] * rank
    tails[0], tails[steps] = batch, queries
    return [Fact(tuple(tails))]


def _is_plain_prefix(tail: Tail | None) -> bool:
    return tail is None or (tail.is_prefix and tail.inner == 1)


def _mask_tail(case: Case, axis: int) -> Tail | None:
    """The tail of the mask along an axis of the scores [B, H, T, S]."""
    fact = case.optional(_MASK)
    place = axis - 4
    return fact.tails[place] if fact is not None and -place <= len(fact.tails) else None


def _require_mask_aligned(case: Case, batch: Tail | None, queries: Tail | None) -> None:
    if case.optional(_MASK) is None:
        return
    if _mask_tail(case, 1) is not None:
        raise Unsafe(f"heads carry {case.symbol}")
    shape = case.shape(_MASK)
    for axis, tail in ((0, batch), (2, queries)):
        place = axis - 4
        carried = _mask_tail(case, axis)
        if tail is not None and carried is None and -place <= len(shape) and shape[place] != 1:
            raise Unsafe(f"an axis that carries {case.symbol} meets one of size {shape[place]}")
    _met(batch, _mask_tail(case, 0))


def _require_hidden_keys(case: Case, steps: int, queries: Tail | None) -> None:
    keys = _met(case.tails(_K)[steps], case.tails(_V)[steps])
    if keys is None:
        return
    _require_same_dim(case, steps)
    values = case.tails(_V)[steps]
    if values is None or values.number is None or math.isinf(values.number):
        raise Unsafe(f"values behind the real keys of {case.symbol} count", [Mask(_V, steps, 0)])
    if _is_hidden_by_order(case, keys, queries):
        return
    mask = case.optional(_MASK)
    if mask is None or _mask_tail(case, 3) is None:
        reason = f"padded keys of {case.symbol} are seen"
        raise Unsafe(reason, replace=lambda insertion, node: insertion.mask_keys(node, steps, keys))
    hiding: Number = False if case.value(_MASK).tensor.dtype is DType.BOOL else -math.inf
    tail = _mask_tail(case, 3)
    if tail is None or tail.number != hiding:
        axis = len(mask.tails) - 1
        raise Unsafe(f"padded keys of {case.symbol} are seen", [Mask(_MASK, axis, hiding)])


def _require_same_dim(case: Case, steps: int) -> None:
    """Keys and values have one number, though it may go by two symbols: padded are both or none."""
    if (case.tails(_K)[steps] is None) is not (case.tails(_V)[steps] is None):
        raise Unsafe(f"just one of keys and values carries {case.symbol}")


def _is_hidden_by_order(case: Case, keys: Tail, queries: Tail | None) -> bool:
    """Causal attention on as many queries as keys: no real query sees a key behind the real ones."""
    is_causal = case.node.attrs["causal"] and case.optional(_LENGTHS) is None
    return bool(is_causal) and queries is not None and is_equal(queries.extent, keys.extent)


# ---- variable-length attention

_COUNTS, _KV_LENGTHS = 3, 4


def varlen_attention(case: Case) -> list[Fact]:
    """Tokens behind the last sequence are of none, padded sequences have none, and lengths hide padded keys."""
    for operand in (_Q, _K, _V):
        first_head_axis = 1 if operand == _Q else 2
        if any(tail is not None for tail in case.tails(operand)[first_head_axis:]):
            raise Unsafe(f"heads carry {case.symbol}")
    tokens, keys = case.tails(_Q)[0], _met(case.tails(_K)[1], case.tails(_V)[1])
    _require_same_dim(case, 1)
    if not (_is_plain_prefix(tokens) and _is_plain_prefix(keys)):
        raise Unsafe(f"real tokens or keys of {case.symbol} are not the first")
    if not grows(narrowed(case.node.attrs["longest"], case.ranges), case.symbol, case.ranges):
        raise Unsafe(f"its longest sequence gets shorter where {case.symbol} gets longer")
    _met(*(case.tails(operand)[0] for operand in (_K, _V, _COUNTS, _KV_LENGTHS)))
    _require_no_tokens(case)
    case.require_in_range(_KV_LENGTHS)
    values = case.tails(_V)[1]
    if values is not None and (values.number is None or math.isinf(values.number)):
        raise Unsafe(f"values behind the real keys of {case.symbol} count", [Mask(_V, 1, 0)])
    return [Fact((None if tokens is None else Tail(case.shape(_Q)[0], fill=0), None, None))]


def _require_no_tokens(case: Case) -> None:
    """Sees to it that padded sequences have no tokens, which would be taken from the real ones."""
    (tail,) = case.tails(_COUNTS)
    if tail is None or tail.number == 0:
        return
    if tail.is_free or not case.fact(_COUNTS).source:
        raise Unsafe(f"padded sequences of {case.symbol} can have tokens", [Mask(_COUNTS, 0, 0)])
    case.fills[case.fact(_COUNTS).source] = 0


def rotary_embedding(case: Case) -> list[Fact]:
    """Samples and steps by themselves, each with its own angles."""
    x = case.tails(0)
    rank = len(x)
    steps = 2 if rank == 4 else 1
    if any(tail is not None for axis, tail in enumerate(x) if axis not in (0, steps)):
        raise Unsafe(f"heads carry {case.symbol}")
    if case.optional(3) is not None:
        case.require_unpadded(1, 2)
        case.require_in_range(3)
        tables = [3]
    else:
        tables = [1, 2]
    tails = list(x)
    for index, axis in ((0, 0), (1, steps)):
        entries = [case.tails(table)[index] for table in tables]
        for table, entry in zip(tables, entries, strict=True):
            size = case.shape(table)[index]
            if entry is None and tails[axis] is not None and size != 1:
                raise Unsafe(f"an axis that carries {case.symbol} meets one of size {size}")
        tails[axis] = _met(tails[axis], *entries)
    return [Fact(tuple(tail.filled(None) if tail is not None else None for tail in tails))]


# ---- recurrent cells


def recurrent(case: Case, states: tuple[int, ...]) -> list[Fact]:
    """Samples by themselves, with their own initial states (operands `states`) and lengths."""
    layout = case.node.attrs["layout"]
    batch_axis, time_axis = (1, 0) if layout == 0 else (0, 1)
    case.require_unpadded(1, 2, 3, 7)
    x = case.tails(0)
    if x[2] is not None:
        raise Unsafe(f"the features of a step carry {case.symbol}")
    state_axis = 1 if layout == 0 else 0
    present = [i for i in states if case.optional(i) is not None]
    for operand in present:
        if any(tail is not None for axis, tail in enumerate(case.tails(operand)) if axis != state_axis):
            raise Unsafe(f"the features of a state carry {case.symbol}")
    lengths = case.optional(4)
    batch = _met(x[batch_axis], *(case.tails(i)[state_axis] for i in present), *(lengths.tails if lengths else ()))
    if lengths is not None:
        case.require_in_range(4)
    time = x[time_axis]
    if time is not None:
        _require_real_steps(case, time)
    last = [batch if axis == state_axis else None for axis in range(3)]
    every: list[Tail | None] = [None] * 4
    every[0 if layout == 0 else 1] = time.filled(None) if time is not None else None
    every[2 if layout == 0 else 0] = batch
    return [Fact(tuple(every)), *(Fact(tuple(last)) for _ in case.node.outputs[1:])]


def _require_real_steps(case: Case, time: Tail) -> None:
    """Running forward, real steps only see real ones before them; the last state and the way back need lengths."""
    lengths = case.optional(4)
    if not time.is_prefix or time.inner != 1 or time.is_free:
        raise Unsafe(f"real steps of {case.symbol} are not the first")
    if lengths is not None and lengths.real_extent == time.extent:
        return
    if lengths is not None:
        raise Unsafe(f"its lengths may reach into the padding of {case.symbol}")
    is_last_read = any(value.has_uses for value in case.node.outputs[1:])
    if case.node.attrs["direction"] != "forward" or is_last_read:
        reason = f"its last state and its way back see the padding of {case.symbol}"
        raise Unsafe(reason, replace=lambda insertion, node: insertion.give_lengths(node, time))


RULES: Rules = {
    "attention": attention,
    "varlen_attention": varlen_attention,
    "rotary_embedding": rotary_embedding,
    "lstm": partial(recurrent, states=(5, 6)),
    "gru": partial(recurrent, states=(5,)),
    "rnn": partial(recurrent, states=(5,)),
}
