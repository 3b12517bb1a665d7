import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import capgraph
import numpy as np
import onnx
import pytest
from capgraph import optimize
from capgraph.ir.ops.nn.attention import attention
from onnx.backend.test.loader import load_model_tests

from tests.onnx_suite import executing as conformance
from tests.onnx_suite.executing import KNOWN_FAULTS, Finding, PlainRep, Way, faults, main, report, segment_counts
from tests.onnx_suite.importing import Case, Outcome, cases, run_case, run_models_by


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


WRONG = "AssertionError: Not equal to tolerance"
SEGMENTS = "1 session and 1 eager segment; 1 node of 2 run eagerly:"
NO_SESSION = "0 sessions and 1 eager segment; 1 node of 1 run eagerly:"
REFUSED, WRONG_BY_ITSELF = "test_adagrad_cpu", "test_maxunpool_export_with_output_shape_cpu"


@pytest.mark.parametrize(
    ("name", "error", "remark", "is_ours"),
    [
        ("test_add_cpu", WRONG, conformance.WHOLE, True),  # ONNX Runtime alone passes it
        (REFUSED, WRONG, conformance.WHOLE, True),  # the numbers are not its own
        (REFUSED, WRONG, NO_SESSION, True),
        (WRONG_BY_ITSELF, WRONG, conformance.WHOLE, False),
        (WRONG_BY_ITSELF, WRONG, SEGMENTS, False),
        (WRONG_BY_ITSELF, WRONG, NO_SESSION, True),
        (WRONG_BY_ITSELF, WRONG, "", True),  # another executor
        (WRONG_BY_ITSELF, "ExecutionError: it broke", conformance.WHOLE, True),
    ],
)
def test_only_wrong_numbers_of_onnxruntime_itself_are_its_own(
    suite: list[Case], name: str, error: str, remark: str, is_ours: bool
) -> None:
    chosen = case(suite, name)
    outcome = Outcome(name, chosen.kind, "failed", error=error, remarks=(remark,))
    assert faults([outcome], [chosen]) == [outcome] * is_ours


def test_what_passes_is_no_fault(suite: list[Case]) -> None:
    assert faults([Outcome("test_add_cpu", "Node", "passed")], [case(suite, "test_add_cpu")]) == []


@pytest.mark.parametrize("executor", ["ort", "auto", "eager"])
def test_wrong_numbers_where_onnxruntime_refuses_fail_the_run(
    executor: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = conformance.ProgramRep.evaluate

    def off_by_one(self: conformance.ProgramRep, values: list[Any]) -> list[Any]:
        return [result + 1 for result in right(self, values)]

    monkeypatch.setattr(conformance.ProgramRep, "evaluate", off_by_one)
    assert main(["--executor", executor, "-k", "test_(adagrad|momentum)_cpu", "-j", "1"]) == 1
    assert capsys.readouterr().out.count("(ours)") == 2


def test_onnxruntime_alone_runs_models_as_they_came(suite: list[Case]) -> None:
    run_models_by(PlainRep)
    assert run_case(case(suite, "test_add_cpu")).status == "passed"
    refused = run_case(case(suite, "test_adagrad_cpu"))
    assert refused.status == "failed"
    assert refused.error.startswith("UnsupportedError")


def test_segments_are_counted() -> None:
    outcomes = [
        Outcome("a", "Node", "passed", remarks=(conformance.WHOLE,)),
        Outcome("b", "Node", "passed", remarks=("why", "0 sessions and 1 eager segment; 1 node of 1 run eagerly:")),
        Outcome("c", "Node", "passed", remarks=("why", "2 sessions and 1 eager segment; 1 node of 3 run eagerly:")),
        Outcome("d", "Node", "failed"),
        Outcome("e", "Node", "passed", remarks=("3 calls: 2 replayed",)),  # another executor
    ]
    assert segment_counts(outcomes) == {"whole": 1, "eager": 1, "segments": 1}


def test_steps_on_the_host_are_counted() -> None:
    outcomes = [
        Outcome("a", "Node", "passed", remarks=("calls: 2", "runs on the host: det: there is no kernel for this op")),
        Outcome("b", "Node", "passed", remarks=("runs on the host in calls that are not recorded: unique: why",)),
        Outcome("c", "Node", "failed"),
    ]
    assert conformance.on_device(outcomes) == 1
    lines = report({"graph": Finding(outcomes, [])}, "cuda").splitlines()
    assert lines[-1] == "passed: 1 without a step on the host"


def test_every_known_fault_is_a_case(suite: list[Case]) -> None:
    assert {each.name for each in suite} >= KNOWN_FAULTS.keys()


def suite_data(name: str) -> tuple[onnx.ModelProto, list[np.ndarray], list[np.ndarray]]:
    """The model of a node case, its inputs and the wanted outputs."""
    with warnings.catch_warnings(action="ignore"):
        (found,) = (each for each in load_model_tests(kind="node") if each.name == name)
    assert found.model is not None
    inputs, outputs = found.data_sets[0]
    return found.model, [np.asarray(each) for each in inputs], [np.asarray(each) for each in outputs]


def test_the_known_fault_is_one_rounding_and_nearer_to_the_exact_result_than_what_is_wanted() -> None:
    """Attention is found in steps that each round to f16, and then rounds once."""
    model, given, (wanted, *_) = suite_data("test_attention_4d_causal_fp16_expanded")
    names = [value.name for value in model.graph.input]
    found = next(iter(optimize(model, executor="ort").run(dict(zip(names, given, strict=True))).values()))
    wide = [each.astype(np.float64) for each in given[:3]]
    exact = attention(*wide, None, None, causal=True, scale=None, softcap=0.0, heads=0, kv_heads=0)
    ulps = np.abs(found.astype(np.float64) - wanted) / np.spacing(np.abs(wanted)).astype(np.float64)
    assert ulps.max() <= 2
    assert np.abs(found - exact).mean() < np.abs(wanted - exact).mean()
    assert np.abs(found - exact).max() < np.abs(wanted - exact).max()


def test_onnxruntime_alone_fails_the_known_fault_when_it_is_written_as_one_operator(suite: list[Case]) -> None:
    run_models_by(PlainRep)
    assert run_case(case(suite, "test_attention_4d_causal_fp16_cpu")).status == "failed"


SAMPLED = 40
"""Every how many-th case runs here; `make conformance` runs all of them."""

WRONG_IN_BOTH = re.compile("test_(maxunpool|training_dropout|resize_downsample_scales|attention_4d_causal)")
"""Where ONNX Runtime gives other numbers than the suite wants."""


def test_no_case_gives_wrong_numbers_that_onnxruntime_alone_does_not_give(
    suite: list[Case], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONNX_HOME", str(tmp_path))
    chosen = [each for index, each in enumerate(suite) if index % SAMPLED == 0 or WRONG_IN_BOTH.match(each.name)]
    run_models_by(Way("ort", 2))
    outcomes = [run_case(each) for each in chosen if each.kind != "Real"]
    failed = {outcome.name for outcome in outcomes if outcome.status == "failed"}
    assert len(failed) > 5
    assert {outcome.name for outcome in faults(outcomes, chosen)} <= KNOWN_FAULTS.keys()
    counts = segment_counts(outcomes)
    assert counts["whole"] > 50
    assert counts["eager"] + counts["segments"] > 5  # what ONNX Runtime cannot run, counted


@pytest.mark.parametrize("executor", ["ort", "auto"])
def test_the_command(
    executor: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONNX_HOME", raising=False)
    out = tmp_path / "found" / "conformance.json"
    assert main(["--executor", executor, "-k", "test_(abs|adagrad)_cpu", "-j", "1", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "passed: 1 whole, 1 eager" in text
    assert [outcome["status"] for outcome in json.loads(out.read_text())[executor]] == ["passed", "passed"]


def test_every_executor_in_one_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONNX_HOME", raising=False)
    calls = Counter[str]()
    call = capgraph.Program.run

    def counted(self: capgraph.Program, inputs: Any) -> dict[str, Any]:
        calls[self.target.executor] += 1
        return call(self, inputs)

    monkeypatch.setattr(capgraph.Program, "run", counted)
    assert main(["--executor", "eager,graph,ort", "-k", "test_abs_cpu", "-j", "1"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.endswith(":")] == ["eager:", "graph:", "ort:"]
    assert calls == {"eager": 1, "graph": 2, "ort": 1}  # what records is called until it replays


def test_failures_say_whose_they_are() -> None:
    failed = [Outcome(name, "Node", "failed", error="wrong") for name in ("mine", "theirs")]
    finding = Finding(failed, failed[:1])
    assert finding.is_surprising
    assert report({"eager": finding}).splitlines()[:2] == [
        "eager: mine (ours): wrong",
        "eager: theirs (ONNX Runtime's too): wrong",
    ]
    assert not Finding(failed, []).is_surprising


def test_an_executor_that_is_not_there_makes_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--executor", "eager,moon"])
    assert "there is no executor 'moon'" in capsys.readouterr().err


def test_what_the_import_left_foreign_is_read_again_with_the_values_at_hand(suite: list[Case]) -> None:
    run_models_by(Way("graph", 2))
    for name in ("test_dft_axis_cpu", "test_col2im_cpu", "test_stft_cpu"):
        outcome = run_case(case(suite, name))
        assert outcome.status == "passed"
        assert outcome.foreign
        assert any("of which 1 replayed" in remark for remark in outcome.remarks)
