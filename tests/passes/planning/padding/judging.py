"""The one helper of the rules' tests: a graph as text, the verdict, and garbage sent through to hold the verdict."""

from textwrap import dedent

import numpy as np
from capgraph.ir.analysis import input_symbols
from capgraph.ir.constant import Array
from capgraph.ir.dims import evaluate
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.ir.verify import verify
from capgraph.passes.planning.padding import mask_padding, padding_safety, real_size_input

from tests.passes.planning.padding.poison import leak

OTHER_SIZES = {"B": 2, "T": 4, "P": 3}
CALLS = ((0, 3), (0, 1), (1, 2), (3, 5), (4, 4))
"""Real and padded sizes."""


def safe(text: str, least: int = 0, **fills: int) -> Graph:
    """Holds that `S` may be padded as it is, with these fills and no others, and that no garbage gets through.

    With a `least` size of 1 it is not safe from 0 on.
    """
    graph = _graph(text)
    assert not least or not padding_safety(graph, "S", largest=8).is_safe
    report = padding_safety(graph, "S", largest=8, least=least)
    assert report.is_safe, report.failure
    assert dict(report.fills) == fills
    assert report.proof
    _send_garbage(graph, graph, least)
    return graph


def maskable(text: str, reason: str, least: int = 0) -> Graph:
    """Holds that `S` may be padded with a mask only, and that no garbage gets through then. Gives the masked graph.

    With a `least` size of 1 masks do not help from 0 on.
    """
    graph = _graph(text)
    assert not least or mask_padding(graph, "S", largest=8) is None
    report = padding_safety(graph, "S", largest=8, least=least)
    assert not report.is_safe
    assert reason in report.failure
    masked = mask_padding(graph, "S", largest=8, least=least)
    assert masked is not None
    verify(masked)
    assert real_size_input(masked, "S") == masked.inputs[-1].name
    _send_garbage(graph, masked, least)
    return masked


def unsafe(text: str, reason: str) -> None:
    """Holds that `S` may not be padded, even with masks, and that the reason names the node."""
    graph = _graph(text)
    report = padding_safety(graph, "S", largest=8, least=1)
    assert not report.is_safe
    assert reason in report.failure
    assert "=" in report.failure or "output" in report.failure or "input" in report.failure
    assert mask_padding(graph, "S", largest=8, least=1) is None
    assert mask_padding(graph, "S", largest=8) is None


def _graph(text: str) -> Graph:
    graph = parse(dedent(text))
    verify(graph)
    return graph


def _send_garbage(graph: Graph, masked: Graph, least: int) -> None:
    generator = np.random.default_rng(0)
    for real, padded in CALLS:
        if real < least:
            continue
        sizes = {name: OTHER_SIZES.get(name, real) for name in input_symbols(graph)}
        inputs = _inputs(graph, sizes, generator)
        for seed in range(3):
            assert leak(graph, masked, "S", sizes, padded, inputs, seed, least) == ""


def _inputs(graph: Graph, sizes: dict[str, int], generator: np.random.Generator) -> list[Array]:
    made: list[Array] = []
    for value in graph.inputs:
        shape = tuple(evaluate(dim, sizes) for dim in value.shape)
        kind = value.tensor.dtype.numpy.kind
        most = min(1, *sizes.values())  # indices and lengths that are valid for every size
        drawn = generator.integers(0, most, shape, endpoint=True) if kind in "biu" else generator.normal(0, 1, shape)
        made.append(np.asarray(drawn).astype(value.tensor.dtype.numpy))
    return made
