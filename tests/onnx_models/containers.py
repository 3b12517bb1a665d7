"""Nodes of strings, sequences and optional values."""

import numpy as np
from onnx import helper

from tests.onnx_models.draw import Draw, Unrunnable, Value, number_of
from tests.onnx_models.registry import recipe


def sequence(d: Draw) -> Value:
    """A sequence: one that is there, or a new one by a node."""
    known = [v for v in d.visible() if v.kind == "sequence"]
    if known and d.chance(0.6):
        return d.pick(*known)
    construct(d, "SequenceConstruct")
    return list(d.values.values())[-1]


@recipe("SequenceConstruct")
def construct(d: Draw, op: str) -> None:
    """One to three tensors of one type and rank."""
    x = d.some(op, "T", 0, 3)
    shapes = [x.shape if d.chance(0.6) else tuple(d.size() for _ in x.shape) for _ in range(d.whole(0, 2))]
    d.node(op, [x, *(d.like(x.element, shape) for shape in shapes)])


@recipe("SequenceEmpty")
def empty(d: Draw, op: str) -> None:
    """An empty sequence and a tensor in it."""
    element = d.element("SequenceInsert", "T")
    made = d.shared.name()
    node = helper.make_node(op, [], [made], dtype=number_of(element))
    d.nodes.append(node)
    value = Value(made, [], "sequence", element)
    d.values[made] = value
    d.node(
        "SequenceLength" if d.chance(0.3) else "SequenceInsert",
        [value] if d.chance(0.0) else [value, d.like(element, d.shape(0, 3))],
    )


@recipe("SequenceAt")
def at(d: Draw, op: str) -> None:
    """An element, from the end too."""
    s = sequence(d)
    if not s.content:
        raise Unrunnable("an empty sequence")
    d.node(op, [s, d.ints(d.whole(-len(s.content), len(s.content) - 1), d.pick("int64", "int32"))])


@recipe("SequenceErase")
def erase(d: Draw, op: str) -> None:
    """Without an element, the last one if none is named."""
    s = sequence(d)
    if len(s.content) < 2:
        raise Unrunnable("too short a sequence")
    place = d.ints(d.whole(-len(s.content), len(s.content) - 1), d.pick("int64", "int32")) if d.chance(0.7) else None
    d.node(op, [s, place])


@recipe("SequenceInsert")
def insert(d: Draw, op: str) -> None:
    """With another element, at the end if no place is named."""
    s = sequence(d)
    shape = s.content[0].shape if s.content and d.chance(0.6) else d.shape(0, 3)
    place = d.ints(d.whole(-len(s.content), len(s.content)), d.pick("int64", "int32")) if d.chance(0.7) else None
    d.node(op, [s, d.like(s.element, shape), place])


@recipe("SequenceLength")
def length(d: Draw, op: str) -> None:
    """The number of elements."""
    d.node(op, [sequence(d)])


@recipe("ConcatFromSequence")
def join(d: Draw, op: str) -> None:
    """The elements joined, along an axis that is new or not."""
    s = sequence(d)
    rank = s.content[0].ndim
    new = d.whole(0, 1)
    span = rank + new
    if span == 0:
        raise Unrunnable("no axis")
    d.node(op, [s], {"axis": d.axis(span), **({"new_axis": new} if new or d.chance(0.3) else {})})


@recipe("SplitToSequence")
def split(d: Draw, op: str) -> None:
    """Parts of one size, of given sizes, or single slices."""
    x = d.some(op, "T", 1, 3, least=1)
    axis = d.axis(x.rank)
    size = x.shape[axis]
    parts = None
    if d.chance(0.6):
        cut = d.whole(0, size)
        parts = d.ints(d.whole(1, size) if d.chance(0.5) else [cut, size - cut], d.pick("int64", "int32"))
    d.node(op, [x, parts], {"axis": axis, **d.attributes(op, keepdims=d.whole(0, 1))})


@recipe("SequenceMap")
def mapped(d: Draw, op: str) -> None:
    """A function of each element."""
    s = sequence(d)
    x = Value(d.shared.name(), s.content[0], "tensor", s.element)
    from tests.onnx_models.control import body_of

    body = body_of(d, [x], count=d.whole(1, 2), wanted=1)
    d.node(op, [s], {"body": body})


@recipe("Optional", "OptionalHasElement", "OptionalGetElement")
def optional(d: Draw, op: str) -> None:
    """A value that may be missing, and what is asked of it."""
    has_plain = d.opset >= 18
    if op == "OptionalHasElement" and has_plain and d.chance(0.15):
        d.node(op, [])
        return
    inner = sequence(d) if d.chance(0.3) else d.some("Optional", "V", 0, 3)
    if op != "Optional" and has_plain and d.chance(0.4):
        d.node(op, [inner])
        return
    made = d.shared.name()
    d.nodes.append(helper.make_node("Optional", [inner.name], [made]))
    value = Value(made, inner.content, "optional", inner.element, inner.kind)
    d.values[made] = value
    d.node("OptionalHasElement" if op == "Optional" else op, [value])


@recipe("RegexFullMatch")
def matched(d: Draw, op: str) -> None:
    """Whether words match a pattern."""
    d.node(op, [d.some(op, "T1", 0, 3)], {"pattern": d.pick("a.*", "[a-z]+", "", "(ab|A)", r"-?\d+(\.\d+)?")})


@recipe("StringSplit")
def words(d: Draw, op: str) -> None:
    """Words split at a delimiter."""
    attributes = d.attributes(op, delimiter=d.pick("", " ", "a", "."), maxsplit=d.whole(1, 2))
    d.node(op, [d.some(op, "T1", 0, 2)], attributes, (True, True))


@recipe("StringNormalizer")
def normalized(d: Draw, op: str) -> None:
    """Words without others, in one case."""
    shape = (d.whole(1, 3),) if d.chance(0.6) else (1, d.whole(1, 3))
    x = d.given(
        np.array([d.pick("a", "b", "A", "ab", "the") for _ in range(shape[-1])], object).reshape(shape), "string"
    )
    attributes = d.attributes(
        op,
        case_change_action=d.pick("NONE", "LOWER", "UPPER"),
        is_case_sensitive=d.whole(0, 1),
        stopwords=d.pick(["a"], ["the", "b"]),
    )
    d.node(op, [x], attributes)


@recipe("TfIdfVectorizer")
def counted(d: Draw, op: str) -> None:
    """Counts of n-grams."""
    x = d.new(d.element(op, "T", ["int64", "int32"]), d.shape(1, 2, 1), 0, 4)
    attributes = {
        "mode": d.pick("TF", "IDF", "TFIDF"),
        "min_gram_length": 1,
        "max_gram_length": d.whole(1, 2),
        "max_skip_count": d.whole(0, 1),
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 1, 2, 3, 4],
        "pool_int64s": [1, 2, 3, 1, 2, 2, 3],
        **d.attributes(op, weights=[0.5, 1.0, 2.0, 1.5, 3.0]),
    }
    d.node(op, [x], attributes)
