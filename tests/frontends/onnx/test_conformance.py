import json

import pytest

from tests.onnx_suite import importing as conformance
from tests.onnx_suite.importing import Case, Outcome, cases, main, run_case, summary, surprises, table


@pytest.fixture(scope="module")
def suite() -> list[Case]:
    return cases()


def test_the_whole_suite_is_found(suite):
    assert len(suite) > 1_900
    assert {case.kind for case in suite} == {"Node", "Simple", "Real", "PyTorchConverted", "PyTorchOperator"}


def test_every_exception_is_of_a_case_that_exists(suite):
    names = {case.name for case in suite}
    assert names >= conformance.SKIPPED.keys()
    assert names >= conformance.KNOWN_FAILURES.keys()


@pytest.mark.parametrize("name", ["test_add_cpu", "test_sequence_insert_at_back_cpu", "test_operator_conv_cpu"])
def test_a_case_passes(suite, name):
    (case,) = (case for case in suite if case.name == name)
    outcome = run_case(case)
    assert (outcome.status, outcome.error) == ("passed", "")
    assert outcome.operators


def test_a_wrong_result_fails(suite, monkeypatch):
    (case,) = (case for case in suite if case.name == "test_add_cpu")
    monkeypatch.setattr(
        conformance.CapgraphBackendRep, "run", lambda _self, inputs, **_options: (inputs[0] - inputs[1],)
    )
    outcome = run_case(case)
    assert outcome.status == "failed"
    assert outcome.is_native
    assert "AssertionError" in outcome.error


def test_what_is_skipped_says_why(suite):
    (case,) = (case for case in suite if case.name == "test_gradient_of_add_cpu")
    assert run_case(case) == Outcome(case.name, case.kind, "skipped", error=conformance.SKIPPED[case.name])


OUTCOMES = [
    Outcome("test_a", "Node", "passed", ("Add",), is_native=True),
    Outcome("test_b", "Node", "failed", ("Add",), is_native=True, error="wrong"),
    Outcome("test_c", "Simple", "passed", ("Loop", "Add"), foreign=("onnx.Loop",)),
    Outcome("test_d", "Simple", "skipped"),
]


def test_the_summary():
    found = summary(OUTCOMES)
    assert [found[key] for key in ("passed", "failed", "skipped", "native")] == [2, 1, 1, 1]
    assert found["failures"] == {"Add": [{"name": "test_b", "error": "wrong"}]}
    assert found["foreign"] == {"onnx.Loop": 1}


def test_the_table_is_aligned():
    lines = table(OUTCOMES).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[-1].split() == ["all", "2", "1", "1", "1"]


def test_what_is_not_as_expected(monkeypatch):
    monkeypatch.setattr(conformance, "KNOWN_FAILURES", {"test_a": "once"})
    assert surprises(OUTCOMES) == ["test_a", "test_b"]


def test_the_command_line(tmp_path, capsys):
    out = tmp_path / "found" / "conformance.json"
    assert main(["--out", str(out), "-k", "^test_relu_cpu$", "-j", "1", "--round-trip"]) == 0
    assert json.loads(out.read_text())["passed"] == 1
    assert "PyTorch" not in capsys.readouterr().out
