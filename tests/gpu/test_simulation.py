"""Predicted times of plans that the simulation was not made with, against what a GPU takes for them."""

import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load, and below when they run
    cupy = pytest.importorskip("cupy", reason="recording on a GPU needs the package cupy")
    torch = pytest.importorskip("torch", reason="some of the plans that costs are fitted to are PyTorch modules")
    pytest.importorskip("onnxscript", reason="modules are exported through torch.onnx")

pytestmark = [
    pytest.mark.alone,
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]


def test_every_held_out_plan_is_predicted_within_a_fifth(tmp_path: Path):
    """Eager and recorded, each of them: the plans and this bar were written down before the plans were first run."""
    from benchmarks.gpu.findings import Findings
    from benchmarks.gpu.held_out import PLANS
    from benchmarks.gpu.record_plans import environment, warm_up
    from benchmarks.gpu.simulate_check import check

    findings = Findings(tmp_path / "found.json")
    findings.stage("environment", environment)
    findings.stage("warm-up", warm_up)
    found = check(findings, PLANS)
    print(found.text())
    assert not findings.failed
    assert [each["plan"] for each in found.predicted] == list(PLANS)
    assert found.beyond == [], found.text()
