"""A device is opened with the libraries that there are; steps that others would do say so."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from capgraph.executors.cuda import executor
from capgraph.executors.cuda.driver.cache import KernelCache
from capgraph.executors.cuda.driver.memory import Constants
from capgraph.executors.cuda.executor import open_device
from capgraph.executors.cuda.kernel_ir.launch import Candidate, LibraryCall, Task
from capgraph.executors.cuda.lower import lowering
from capgraph.ir.errors import MissingPackageError

from tests.executors.cuda.fake import FakeCompiler, FakeDriver, MeaningLibrary, fake_device, through_meaning
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDriver]:
    made = FakeDriver()
    monkeypatch.setattr(executor, "_driver", lambda _index: made)
    monkeypatch.setattr(executor, "_constants", lambda _index: Constants(made))
    monkeypatch.setattr(executor, "_compiler", lambda arch: FakeCompiler(arch, KernelCache(tmp_path)))
    executor._libraries.cache_clear()
    yield made
    executor._libraries.cache_clear()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            MissingPackageError("convolutions need cudnn", remedy="pip install it"),
            "convolutions need cudnn: pip install it",
        ),
        (ImportError("libcudnn.so.9: cannot open shared object file"), "libcudnn.so.9: cannot open shared object file"),
    ],
    ids=["package", "shared object"],
)
def test_a_library_that_is_not_there_is_named(
    error: Exception, said: str, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(name: str, _index: int) -> Any:
        if name == "cudnn":
            raise error
        return MeaningLibrary(driver)

    monkeypatch.setattr(executor, "open_library", opened)
    device = open_device(0)
    assert device.backend.libraries == {"cublaslt", "cufft"}
    assert device.missing_libraries == {"cudnn": said}


def test_libraries_that_cannot_be_opened_are_missing(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise RuntimeError("no such shared object")

    lt = SimpleNamespace(create=refuse, cuBLASLtError=type("cuBLASLtError", (Exception,), {}))
    monkeypatch.setitem(sys.modules, "nvmath", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "nvmath.bindings", SimpleNamespace(cublasLt=lt))
    monkeypatch.setitem(sys.modules, "cudnn", SimpleNamespace(create_handle=refuse))
    device = open_device(0)
    assert device.backend.libraries == set()
    for name, library in (("cublaslt", "cuBLASLt"), ("cudnn", "cuDNN")):
        assert device.missing_libraries[name].startswith(f"{library} cannot be opened: no such shared object: pip")


def test_steps_that_a_library_would_do_say_that_it_is_not_there(tmp_path: Path) -> None:
    gpu = fake_device(tmp_path)
    gpu.missing_libraries = {"other": "install it"}

    def candidates(task: Task) -> Iterator[Candidate]:
        if task.node.op.name == "softmax":
            yield Candidate("other", (LibraryCall("other", None, {}, 0),))
        yield from through_meaning(task)

    with patch.object(lowering, "families_of", lambda _op: (candidates,)):
        program = recorded(block(), gpu)
        program.run({"x": rows(4)})
    assert [line for line in program.remarks if "without" in line] == ["1 steps: without other: install it"]
