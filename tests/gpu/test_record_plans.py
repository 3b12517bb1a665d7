"""Plans of an MLP and of BERT on a GPU: eager and recorded, against PyTorch in f64, over poisoned memory."""

import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load, and below when they run
    cupy = pytest.importorskip("cupy", reason="recording on a GPU needs the package cupy")
    torch = pytest.importorskip("torch", reason="the results are compared with PyTorch")
    pytest.importorskip("onnxscript", reason="modules are exported through torch.onnx")

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["mlp", "bert"])
def test_recorded_plans_equal_torch(name: str, dtype: str, tmp_path: Path):
    if name == "bert":
        pytest.importorskip("transformers", reason="BERT is made from its configuration")
    from benchmarks.gpu import models
    from benchmarks.gpu.findings import Findings
    from benchmarks.gpu.record_plans import run_model

    findings = Findings(tmp_path / "found.json")
    model, batches = (models.mlp(dtype, layers=8), (1, 16)) if name == "mlp" else (models.bert(dtype, layers=2), (1,))
    rows = run_model(model, batches, findings)
    assert not findings.failed
    assert len(rows) == (4 if name == "mlp" else 3)
    assert all(row["passed"] for row in rows)
    assert [row["graphs"] for row in rows if row["mode"] == "piecewise"] == ([] if name == "mlp" else [3])
