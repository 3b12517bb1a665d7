"""What is said where there is no GPU."""

import pytest
from capgraph.executors.cuda import availability
from capgraph.executors.cuda.availability import Problem, checked_index, cuda_problem
from capgraph.ir.errors import UnsupportedError
from capgraph.selection import choose_executor, targets


@pytest.fixture
def without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_problem.cache_clear()
    monkeypatch.setattr(availability, "_is_importable", lambda package: package != "cupy")


@pytest.mark.usefixtures("without_cupy")
def test_a_missing_package_is_named_with_the_way_to_install_it() -> None:
    with pytest.raises(UnsupportedError, match=r"package cupy cannot be imported") as raised:
        choose_executor("eager", "cuda")
    assert "capgraph[cuda13]" in str(raised.value)
    target = targets()[-1]
    assert target.device == "cuda"
    assert not target.is_available


def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "cuda_problem", lambda: Problem("the driver is too old", "update it"))
    with pytest.raises(UnsupportedError, match="the driver is too old"):
        checked_index("cuda:1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("cudaErrorInsufficientDriver: old", "older than CuPy needs"), ("cudaErrorNoDevice: none", "no NVIDIA GPU")],
)
def test_what_the_driver_says_is_put_into_words(text: str, expected: str) -> None:
    assert expected in availability._refused(text).text
