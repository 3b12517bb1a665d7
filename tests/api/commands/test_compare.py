import json
from pathlib import Path
from typing import Any

import capgraph
import pytest
from capgraph.cli import main

from tests.api.models import affine, model, save


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(save(affine(), tmp_path))


def test_the_table_has_a_row_for_each_executor(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", path, "--executors", "eager, ort", "--runs", "2", "--dim", "batch=4"]) == 0
    text = capsys.readouterr().out
    assert "2 sets of inputs against the reference evaluator, 2 timed runs" in text
    assert [line.split()[0] for line in text.splitlines() if "host" in line] == ["eager", "ort"]
    assert "one session of ONNX Runtime runs the whole graph" in text
    assert {"error", "latency", "set-up", "memory", "segments", "fallbacks"} <= set(text.splitlines()[2].split())
    (row,) = [line.split() for line in text.splitlines() if line.startswith("ort ") and "host" in line]
    assert row[-4:] == ["1", "0", "4", "yes"]


def test_an_executor_that_cannot_run_fails_the_command_after_the_others(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", path, "--executors", "moon,eager,ort@cuda:99", "--runs", "1"]) == 1
    captured = capsys.readouterr()
    assert "moon cannot run: there is no executor 'moon' (try: one of" in captured.out
    assert [line.split()[0] for line in captured.out.splitlines() if line.endswith("yes")] == ["eager"]
    assert "cannot run: moon, ort@cuda:99" in captured.err


def test_what_is_skipped_is_listed_and_fails_nothing(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capgraph.executors.ort.executor.problem_here", lambda: ("both are installed", "choose one"))
    assert main(["compare", path, "--runs", "1"]) == 0
    assert "skipped ort: both are installed (try: choose one)" in capsys.readouterr().out


@pytest.mark.parametrize("names", ["", ",", "eager,,ort"])
def test_names_that_are_empty_make_no_sense(names: str, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["compare", path, "--executors", names])
    assert caught.value.code == 2
    assert "separated by commas" in capsys.readouterr().err


def test_json_holds_everything(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", path, "--executors", "eager", "--runs", "1", "--draws", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sizes"] == {"batch": 3}
    assert found["results"][0]["outputs"][0]["ulps"] <= 1
    assert {"segments", "fallbacks", "setup_seconds", "memory_bytes"} <= found["results"][0].keys()


def test_files_are_inputs(tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    np.save(tmp_path / "x.npy", np.ones((7, 3), np.float32))
    argv = ["compare", path, "--executors", "eager", "--runs", "1", "--json", "--input", f"x={tmp_path / 'x.npy'}"]
    assert main(argv) == 0
    assert json.loads(capsys.readouterr().out)["sizes"] == {"batch": 7}


def test_the_page_is_written_and_not_over_the_model(tmp_path: Path, path: str) -> None:
    page = tmp_path / "page.html"
    assert main(["compare", path, "--executors", "eager", "--runs", "1", "--html", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert main(["compare", path, "--executors", "eager", "--html", path]) == 1


def test_a_wrong_number_fails_the_command(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = capgraph.Program.run

    def off(self: Any, inputs: Any) -> dict[str, Any]:
        return {name: value + 1 for name, value in run(self, inputs).items()}

    monkeypatch.setattr(capgraph.Program, "run", off)
    assert main(["compare", path, "--executors", "eager", "--runs", "1"]) == 1
    captured = capsys.readouterr()
    assert "outputs differ from the reference in: eager" in captured.err
    assert "no" in captured.out


def test_many_outputs_and_remarks_are_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"y{i} = Mul(x, x) " for i in range(12))
    outputs = ", ".join(f"float[2] y{i}" for i in range(12))
    many = save(model(f"main (float[2] x) => ({outputs}) {{ {lines} }}"), tmp_path)
    assert main(["compare", str(many), "--executors", "eager", "--runs", "1"]) == 0
    assert "y7" in (text := capsys.readouterr().out)
    assert "y8" not in text


def test_two_models_with_each_other(tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", path, path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["relative"] == 0
    text = "main (float[batch, 3] x) => (float[batch, 3] y) { y = Neg(x) }"
    other = str(save(model(text), tmp_path, "other.onnx"))
    assert main(["compare", path, other]) == 1
    captured = capsys.readouterr()
    assert "of its largest value" in captured.out
    assert "other.onnx gives other results for: y" in captured.err
    assert main(["compare", path, other, "--atol", "1e3"]) == 0
    assert main(["compare", path, other, "--html", str(tmp_path / "page.html")]) == 1


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("main (float[batch, 64] x) => (float[batch, 64] y) { y = Neg(x) }", "takes x as f32[batch, 64]"),
        ("main (float[batch, 3] x, float[3] z) => (float[batch, 3] y) { y = Add(x, z) }", "has no such input"),
        (None, "there is no model file"),
    ],
)
def test_models_that_take_other_inputs_are_not_run(
    other: str | None, said: str, tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    second = tmp_path / "other.onnx"
    if other is not None:
        save(model(other), tmp_path, second.name)
    assert main(["compare", path, str(second)]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert second.name in told


def test_a_tolerance_holds_for_executors_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "main (float[n, 64] x) => (float[n, 64] y) { h = Cast<to = 10>(x)  e = Exp(h)  y = Cast<to = 1>(e) }"
    path = str(save(model(text), tmp_path))
    command = ["compare", path, "--executors", "ort", "--runs", "1"]
    assert main(command) == 0
    assert main([*command, "--rtol", "0"]) == 1
    assert main([*command, "--rtol", "0", "--atol", "1"]) == 0
    assert "outputs differ from the reference in: ort" in capsys.readouterr().err
