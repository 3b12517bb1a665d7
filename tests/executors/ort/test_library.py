from importlib import metadata

import pytest
from capgraph.executors.ort import library
from capgraph.executors.ort.executor import OrtExecutor
from capgraph.ir.errors import MissingPackageError, UnsupportedError
from capgraph.ir.parser import parse


def install(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Makes the environment look as if only these packages were there."""

    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(library, "onnxruntime", library.onnxruntime.__wrapped__)  # without what it remembers


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
    assert {"Fail", "InvalidArgument", "NotImplemented"} <= {failure.__name__ for failure in failures}
