import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from capgraph import conformance
from capgraph.conformance import KNOWN_FAULTS, PlainRep, Way, faults, main, piece_counts
from capgraph.frontends.onnx.conformance import Case, Outcome, cases, run_case, run_models_by


@pytest.fixture(scope="module")
def suite() -> list[Case]:
    return cases()


@pytest.fixture(autouse=True)
def reference_afterwards() -> Iterator[None]:
    yield
    run_models_by(None)


def case(suite: list[Case], name: str) -> Case:
    (found,) = (each for each in suite if each.name == name)
    return found


@pytest.mark.parametrize("executor", ["ort", "eager"])
@pytest.mark.parametrize(
    "name", ["test_add_cpu", "test_if_seq_cpu", "test_operator_conv_cpu", "test_affine_grid_2d_cpu"]
)
def test_a_case_passes(suite: list[Case], name: str, executor: str) -> None:
    run_models_by(Way(executor, 2))
    outcome = run_case(case(suite, name))
    assert (outcome.status, outcome.error) == ("passed", "")
    assert bool(outcome.remarks) is (executor == "ort")


def test_what_onnxruntime_alone_passes_is_our_fault(suite: list[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [case(suite, "test_add_cpu"), case(suite, "test_adagrad_cpu")]
    outcomes = [Outcome(each.name, each.kind, "failed", error="wrong") for each in chosen]
    assert [outcome.name for outcome in faults(outcomes, chosen)] == ["test_add_cpu"]
    assert faults([Outcome("test_add_cpu", "Node", "passed")], chosen) == []


def test_onnxruntime_alone_runs_models_as_they_came(suite: list[Case]) -> None:
    run_models_by(PlainRep)
    assert run_case(case(suite, "test_add_cpu")).status == "passed"
    refused = run_case(case(suite, "test_adagrad_cpu"))
    assert refused.status == "failed"
    assert refused.error.startswith("UnsupportedError")


def test_pieces_are_counted() -> None:
    outcomes = [
        Outcome("a", "Node", "passed", remarks=(conformance.WHOLE,)),
        Outcome("b", "Node", "passed", remarks=("why", "0 sessions and 1 eager piece; 1 node of 1 run eagerly:")),
        Outcome("c", "Node", "passed", remarks=("why", "2 sessions and 1 eager piece; 1 node of 3 run eagerly:")),
        Outcome("d", "Node", "failed"),
    ]
    assert piece_counts(outcomes) == {"whole": 1, "eager": 1, "pieces": 1}


def test_every_known_fault_is_a_case(suite: list[Case]) -> None:
    assert {each.name for each in suite} >= KNOWN_FAULTS.keys()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONNX_HOME", raising=False)
    out = tmp_path / "found" / "conformance.json"
    assert main(["--executor", "ort", "-k", "test_(abs|adagrad)_cpu", "-j", "1", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "passed: 1 whole, 1 eager" in text
    assert [outcome["status"] for outcome in json.loads(out.read_text())] == ["passed", "passed"]
