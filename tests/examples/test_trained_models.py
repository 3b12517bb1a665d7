"""Two trained models that Core ML's converter wrote, against ONNX Runtime; skipped where their folder is not there."""

from pathlib import Path
from typing import Any

import capgraph
import numpy as np
import onnxruntime
import pytest

MODELS = Path(__file__).parents[2].parent / "shared" / "models"
RUNS = {"eager": 1, "graph": 2, "ort": 1}
"""The executors and how often they run: "graph" records the first call and replays the second."""

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason=f"there is no {MODELS}")


def picture(size: int) -> Any:
    """The fish as f32[1, 3, size, size], BGR, 0 to 255."""
    image = pytest.importorskip("PIL.Image").open(MODELS / "fish_720.jpg").convert("RGB").resize((size, size))
    return np.ascontiguousarray(np.asarray(image, np.float32).transpose(2, 0, 1)[None, ::-1])


def onnxruntime_outputs(name: str, inputs: dict[str, Any]) -> list[Any]:
    """What ONNX Runtime gives on the CPU, as the model lies there."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(MODELS / name, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


@pytest.mark.parametrize("executor", RUNS)
def test_a_picture_in_the_style_of_another(executor: str) -> None:
    given = {"inputImage": picture(720)}
    (wanted,) = onnxruntime_outputs("fns-candy.onnx", given)
    assert wanted.std() > 50  # a picture: else nothing would be compared
    with capgraph.optimize(MODELS / "fns-candy.onnx", executor=executor) as program:
        for _ in range(RUNS[executor]):
            found = program.run(given)["outputImage"]
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("executor", RUNS)
def test_labels_and_their_scores(executor: str, level: int) -> None:
    fish = picture(227)
    given = {"data": np.concatenate([fish, fish[..., ::-1], 255 - fish])}
    labels, maps = onnxruntime_outputs("squeezenet.onnx", given)
    assert len({str(scores) for scores in maps}) == 3
    with capgraph.optimize(MODELS / "squeezenet.onnx", executor=executor, level=level) as program:
        for _ in range(RUNS[executor]):
            found = program.run(given)
            assert found["classLabel"].tolist() == labels.tolist()
            assert [scores.keys() for scores in found["loss"]] == [scores.keys() for scores in maps]
            for ours, theirs in zip(found["loss"], maps, strict=True):
                np.testing.assert_allclose([ours[key] for key in theirs], list(theirs.values()), rtol=1e-3, atol=1e-6)
