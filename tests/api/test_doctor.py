import json
import subprocess
import sys
from typing import Any

import pytest
from capgraph.cli.commands import doctor
from capgraph.cli.commands.doctor import examine, find_problems


def test_findings_are_plain_data() -> None:
    found = examine()
    assert json.loads(json.dumps(found)) == found
    assert next(p for p in found["packages"] if p["name"] == "numpy")["version"]
    assert found["devices"][0]["name"] == "host"
    assert [e["executor"] for e in found["executors"] if e["is_available"]] == ["ort", "eager", "graph"]


def test_both_builds_of_onnxruntime_are_a_problem() -> None:
    assert find_problems({"onnxruntime": "1", "onnxruntime-gpu": None}) == []
    (problem,) = find_problems({"onnxruntime": "1", "onnxruntime-gpu": "1"})
    assert "pip uninstall onnxruntime onnxruntime-gpu" in problem


def test_a_gpu_is_seen_through_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*command: Any, **_options: Any) -> Any:
        return subprocess.CompletedProcess(command, 0, "NVIDIA H200, 143771 MiB, 580.95.05\nodd line\n", "")

    monkeypatch.setattr(subprocess, "run", answer)
    found = [device for device in examine()["devices"] if device["name"] != "host"]
    assert found == [{"name": "cuda:0", "description": "NVIDIA H200, 143771 MiB, driver 580.95.05"}]


@pytest.mark.parametrize("fault", [FileNotFoundError(), subprocess.TimeoutExpired("nvidia-smi", 1)])
def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def fail(*_command: Any, **_options: Any) -> Any:
        raise fault

    monkeypatch.setattr(doctor.subprocess, "run", fail)
    assert [device["name"] for device in examine()["devices"]] == ["host"]


def test_nothing_heavy_is_imported() -> None:
    heavy = "('onnx', 'onnxruntime', 'torch', 'cupy', 'PIL')"
    program = (
        "import sys; from capgraph.cli.commands.doctor import examine; examine(); "
        f"sys.exit(any(n in sys.modules for n in {heavy}))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
