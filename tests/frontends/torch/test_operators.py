"""Two samples of every operator of PyTorch: equal to eager PyTorch, and native where docs/torch-operators.md says so.

All samples: `make test-ops`.
"""

from itertools import islice
from pathlib import Path

import pytest
import torch

from tests.frontends.torch.operator_samples import Row, captured, check, claimed, operators, page, samples

PARTS = 24
"""The operators are shared out over so many tests: asking for their names takes seconds, and so is left to the run."""

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # PyTorch warns of its own operators' old forms
]


@pytest.mark.parametrize("part", range(PARTS))
def test_samples(part: int) -> None:
    torch.set_num_threads(1)
    promises = claimed()
    faults: list[str] = []
    for name in list(operators())[part::PARTS]:
        native, total = promises.get(name, (0, 0))
        for index, sample in enumerate(islice(samples(name), 2)):
            try:
                outcome = check(sample, captured)
            except Exception as error:  # noqa: BLE001  # all that fail are named
                faults.append(f"{name}, sample {index}: {type(error).__name__}: {error}")
                continue
            if native == total and outcome.kind != "native":
                faults.append(f"{name}, sample {index}: {outcome}, but the page says that all its samples are native")
    assert not faults, "\n".join(faults)


def test_a_wrong_result_is_found() -> None:
    sample = next(samples("add"))
    with pytest.raises(AssertionError):
        check(sample, lambda given: ([result + 1 for result in captured(given)[0]], captured(given)[1]))


def test_the_page_is_read_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row("add", 3, 3, ()), Row("svd", 0, 2, ("aten.svd.default",)), Row("max (binary)", 1, 2, ())]
    (tmp_path / "page.md").write_text(page(rows))
    monkeypatch.setattr("tests.frontends.torch.operator_samples.PAGE", tmp_path / "page.md")
    assert claimed() == {"add": (3, 3), "svd": (0, 2), "max (binary)": (1, 2)}
    assert "| svd | 0 of 2 | `aten.svd.default` |" in page(rows)
