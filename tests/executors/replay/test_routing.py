from typing import Any

import pytest
from capgraph.executors.replay.options import ReplayOptions
from capgraph.executors.replay.routing import Router, dims_between, input_symbols, make_buckets
from capgraph.executors.replay.safety import Analysis, padded_graph
from capgraph.ir.builder import Builder
from capgraph.ir.errors import InputError
from capgraph.ir.graph import Graph
from capgraph.passes.planning.padding import SafetyReport


def report(is_safe: bool, least: int = 0) -> SafetyReport:
    """A made-up report."""
    return SafetyReport(is_safe, ("rule at node",), "" if is_safe else "it is summed over", least=least)


def graph() -> Graph:
    b = Builder()
    return b.finish({"y": b.op("exp", b.input("x", "f32[B, T]"))})


def router(*safe: str, **options: Any) -> Router:
    made = ReplayOptions(**{"dynamic": {"B": (1, 8), "T": (1, 64)}, "buckets": {"T": [16, 64]}, **options})
    analysis = Analysis(prove=lambda _graph, dim, /, *, largest, least: report(dim in safe, least))
    return Router(padded_graph(graph(), list(made.dynamic), analysis), input_symbols(graph()), made)


def test_what_is_safe_from_1_on_is_not_padded_at_size_0() -> None:
    analysis = Analysis(prove=lambda _graph, _dim, /, *, largest, least: report(least == 1, least))
    made = ReplayOptions(dynamic={"B": (0, 8), "T": (0, 64)}, buckets={"B": [0, 8], "T": [64]})
    padded = padded_graph(graph(), ["B", "T"], analysis)
    assert "from size 1 on" in padded.lines()[0]
    routes = Router(padded, input_symbols(graph()), made)
    assert dict(routes.route({"B": 1, "T": 20}).key or ()) == {"B": 8, "T": 64}
    assert dict(routes.route({"B": 0, "T": 64}).key or ()) == {"B": 0, "T": 64}
    refused = routes.route({"B": 0, "T": 20})
    assert refused.key is None
    assert "proven from size 1 on only" in refused.reason


def test_a_call_goes_to_the_smallest_bucket_that_it_fits() -> None:
    route = router("B", "T").route({"B": 3, "T": 20})
    assert dict(route.key or ()) == {"B": 4, "T": 64}
    assert (route.rows, route.padded_rows) == (60, 4 * 64 - 60)


def test_only_safe_dims_are_padded() -> None:
    only_batch = router("B")
    assert dict(only_batch.route({"B": 3, "T": 16}).key or ()) == {"B": 4, "T": 16}
    route = only_batch.route({"B": 3, "T": 17})
    assert route.key is None
    assert route.reason == "no bucket has just that T, which is not padded: it is summed over"


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"B": 9, "T": 16}, "B is outside of its range 1 to 8"),
        ({"B": 0, "T": 16}, "B is outside of its range 1 to 8"),
        ({"T": 16}, "the shapes of the inputs do not tell B"),
    ],
)
def test_why_a_call_is_not_served(sizes: dict[str, int], reason: str) -> None:
    assert router("B", "T").route(sizes).reason == reason


def test_what_no_bucket_serves_may_be_captured_exactly() -> None:
    exact = router("B", beyond="exact")
    assert dict(exact.route({"B": 9, "T": 17}).key or ()) == {"B": 9, "T": 17}
    assert dict(exact.route({"B": 3, "T": 17}).key or ()) == {"B": 3, "T": 17}
    assert exact.route({"T": 17}).key is None


def test_combinations_may_be_listed() -> None:
    listed = router("B", "T", buckets={("B", "T"): [(1, 64), (8, 16)]})
    assert dict(listed.route({"B": 2, "T": 10}).key or ()) == {"B": 8, "T": 16}
    assert listed.route({"B": 2, "T": 17}).reason == "no bucket is that large"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamic": {"C": (1, 2)}}, "there is no symbolic dim 'C'"),
        ({"dynamic": {"B": (4, 2)}}, "the range 4 to 2 is empty"),
        ({"dynamic": {"B": (4,)}}, "the range of 'B' is"),
        ({"dynamic": {"B": (1, 8)}, "buckets": {"T": [4]}}, "buckets name 'T', which has no range"),
        ({"buckets": {"T": [65]}}, "bucket 65 is not a size from 1 to 64"),
        ({"buckets": {("B",): [(1,)]}}, "combinations of B leave dims out"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _router_of(options)


def _router_of(options: dict[str, Any]) -> Router:
    from capgraph.executors.replay.routing import checked_ranges

    made = ReplayOptions(**{"dynamic": {"B": (1, 8), "T": (1, 64)}, **options})
    checked_ranges(made.dynamic, input_symbols(graph()))
    return Router(padded_graph(graph(), (), Analysis()), input_symbols(graph()), made)


def test_a_dim_whose_every_size_has_a_bucket_is_never_padded() -> None:
    ranges = {"B": (1, 5), "T": (16, 16)}
    assert dims_between(make_buckets(ranges, {}), ranges) == ["B"]
    assert dims_between(make_buckets(ranges, {"B": [1, 2, 3, 4, 5]}), ranges) == []


def test_a_proof_that_the_checker_refutes_is_counted_and_told() -> None:
    def refuse(graph: Graph, _dim: str, /, *, largest: int | None, least: int) -> Any:
        return graph, SafetyReport(False, failure="the checker refutes it", least=least, is_refuted=True)

    analysis = Analysis(prove=lambda _graph, _dim, /, *, largest, least: report(False, least), repair=refuse)
    padded = padded_graph(graph(), ["B"], analysis, {"B": 8})
    assert padded.safe == frozenset()
    assert len(padded.refuted) == 2
    assert padded.lines()[1:] == (
        "a proof was not accepted, B from size 0 on: the checker refutes it",
        "a proof was not accepted, B from size 1 on: the checker refutes it",
    )
