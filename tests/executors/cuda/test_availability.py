"""What is said where there is no GPU."""

import re
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from capgraph import optimize
from capgraph.executors.backends import choose_executor, targets
from capgraph.executors.base import Request
from capgraph.executors.cuda import executor as availability
from capgraph.executors.cuda.executor import Problem, checked_index, cuda_problem
from capgraph.ir.errors import UnsupportedError

from tests.executors.replay.programs import block


@pytest.fixture
def without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_problem.cache_clear()
    monkeypatch.setattr(availability, "_is_importable", lambda package: package != "cupy")


@pytest.mark.usefixtures("without_cupy")
def test_a_missing_package_is_named_with_the_way_to_install_it() -> None:
    with pytest.raises(UnsupportedError, match=r"package cupy cannot be imported") as raised:
        choose_executor("eager", Request(device="cuda"))
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


def played(driver: int, runtime: int, devices: int, refusal: str = "") -> ModuleType:
    """CuPy, as far as it is asked: versions and devices."""

    class Refused(RuntimeError):
        pass

    def version() -> int:
        if refusal:
            raise Refused(refusal)
        return driver

    module: Any = ModuleType("cupy")
    module.cuda = SimpleNamespace(
        runtime=SimpleNamespace(
            CUDARuntimeError=Refused,
            driverGetVersion=version,
            runtimeGetVersion=lambda: runtime,
            getDeviceCount=lambda: devices,
        )
    )
    return module  # type: ignore[no-any-return]


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(availability, "_is_importable", lambda _package: True)
    cuda_problem.cache_clear()
    yield
    cuda_problem.cache_clear()


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize(
    ("cupy", "said", "remedy"),
    [
        (played(0, 13000, 0), "no NVIDIA GPU answers: no driver", "nvidia-smi"),
        (
            played(12040, 13000, 1),
            "the driver is for CUDA 12.4, the installed packages are for CUDA 13.0",
            "update the driver",
        ),
        (played(13000, 13000, 0), "no NVIDIA GPU answers: no device", "nvidia-smi"),
        (played(0, 0, 0, "cudaErrorInsufficientDriver: old"), "is older than CuPy needs", "update the driver"),
        (
            played(0, 0, 0, "cudaErrorNoDevice: no CUDA-capable device"),
            "no NVIDIA GPU answers: cudaErrorNoDevice",
            "driver",
        ),
    ],
    ids=["no driver", "older driver", "no device", "driver refuses", "nothing answers"],
)
def test_what_is_in_the_way_is_said_before_a_program_is_made(
    cupy: ModuleType, said: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for executor in ("eager", "graph"):
        with pytest.raises(UnsupportedError, match=f"device='cuda' cannot be used: .*{said}") as raised:
            optimize(block(), executor=executor, device="cuda")
        assert remedy in str(raised.value)


@pytest.mark.usefixtures("asked_anew")
def test_devices_are_numbered_from_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", played(13010, 13000, 2))
    assert [checked_index(name) for name in ("cuda", "cuda:0", "cuda:1")] == [0, 0, 1]
    for name in ("cuda:2", "cuda:x", "cuda:-1", "cuda:\u00b2", "cuda0", "cuda:", "cuda:0:1", f"cuda:{'9' * 5000}"):
        with pytest.raises(UnsupportedError, match=re.escape(f"there is no {name!r}")) as raised:
            checked_index(name)
        assert "cuda:0 to cuda:1" in str(raised.value)
