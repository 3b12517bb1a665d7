import sys
from importlib import metadata
from typing import Any

import pytest
from capgraph.executors.ort import library
from capgraph.executors.ort.executor import OrtExecutor
from capgraph.ir.errors import MissingPackageError, UnsupportedError
from capgraph.ir.text.parser import parse


def install(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Makes the environment look as if only these packages were there, of those that are asked for."""
    modules = {name.removesuffix("-gpu") for name in packages}

    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(library, "_is_found", modules.__contains__)
    monkeypatch.setattr(library, "onnxruntime", library.onnxruntime.__wrapped__)  # without what it remembers
    library.required.cache_clear()


@pytest.mark.parametrize(
    ("packages", "problem", "remedy"),
    [
        (("onnx", "onnxruntime"), "", ""),
        (("onnx", "onnxruntime-gpu"), "", ""),
        (("onnx",), "onnxruntime is not installed", "pip install"),
        (("onnxruntime",), "onnx is not installed", "pip install"),
        (("onnx", "onnxruntime", "onnxruntime-gpu"), "both onnxruntime and onnxruntime-gpu", "pip uninstall"),
    ],
)
def test_what_is_installed(
    packages: tuple[str, ...], problem: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, *packages)
    found = library.problem_here()
    assert found[0].startswith(problem)
    assert found[1].startswith(remedy)
    target = OrtExecutor().target()
    assert target.is_available is not bool(problem)
    assert (target.problem, target.remedy) == found


def test_a_missing_package_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "onnx")
    with pytest.raises(MissingPackageError, match="onnxruntime is not installed"):
        library.onnxruntime()


class Refusing:
    """A finder that lets nothing of a package be found."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("package", ["onnxruntime", "onnx"])
def test_a_package_that_only_its_metadata_is_left_of_is_not_installed(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Refusing(package), *sys.meta_path])
    library.required.cache_clear()
    assert library.problem_here()[0].startswith(f"{package} is not installed")


def test_a_build_under_another_name_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "onnx", "onnxruntime")
    monkeypatch.setattr(library, "_is_installed", lambda _distribution: False)
    assert library.problem_here() == ("", "")


def test_a_broken_package_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "onnxruntime", library.onnxruntime.__wrapped__)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # importing it fails
    with pytest.raises(MissingPackageError, match="installed and cannot be imported") as caught:
        library.onnxruntime()
    assert 'executor="eager"' in (caught.value.remedy or "")


def test_two_builds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "onnx", "onnxruntime", "onnxruntime-gpu")
    with pytest.raises(UnsupportedError, match="installed last wins silently") as caught:
        library.onnxruntime()
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in (caught.value.remedy or "")


def test_compiling_says_so_before_anything_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "onnx")
    monkeypatch.setattr("capgraph.executors.ort.executor.onnxruntime", library.onnxruntime)
    with pytest.raises(MissingPackageError, match="onnxruntime is not installed"):
        OrtExecutor().compile(parse("graph @main() { return }"))


def test_its_exceptions_are_known() -> None:
    failures = library.failures()
    assert all(issubclass(failure, Exception) for failure in failures)
    assert {"Fail", "InvalidArgument", "NoSuchFile", "NotImplemented"} <= {failure.__name__ for failure in failures}
