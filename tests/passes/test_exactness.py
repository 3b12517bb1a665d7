from capgraph.passes.framework.exactness import Exactness


def test_from_strict_to_loose() -> None:
    assert [each.value for each in Exactness] == ["exact", "rounding", "approximate"]
