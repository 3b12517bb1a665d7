import pytest
from capgraph.executors.eager import EagerExecutor
from capgraph.ir.errors import UnsupportedError
from capgraph.selection import choose_executor, targets


@pytest.mark.parametrize(("executor", "device"), [("auto", "auto"), ("eager", "host"), ("auto", "host")])
def test_eager_is_chosen(executor: str, device: str) -> None:
    assert isinstance(choose_executor(executor, device), EagerExecutor)


@pytest.mark.parametrize(("executor", "device"), [("graph", "auto"), ("ort", "host"), ("", "auto"), ("auto", "cuda")])
def test_what_cannot_run_is_refused_with_a_way_around(executor: str, device: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        choose_executor(executor, device)
    assert caught.value.remedy


def test_every_executor_says_what_keeps_it_from_running() -> None:
    found = {target.executor: target for target in targets()}
    assert found["eager"].is_available
    assert all(found[name].problem for name in ("graph", "ort"))
