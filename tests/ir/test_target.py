from capgraph.ir.target import Target


def test_a_target_without_a_problem_is_available() -> None:
    assert Target("eager", "host").is_available
    assert not Target("graph", "cuda", captures=True, problem="no GPU", remedy="use the host").is_available
