"""What becomes of one model: in the two peers, and in each of our ways."""

import hashlib
import re
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from capgraph.ir.errors import CapgraphError, InternalError

from tests.onnx_models import peers, ways
from tests.onnx_models.cases import Case
from tests.onnx_models.judging import difference, quantises, tolerance
from tests.onnx_models.rounding import is_rounding
from tests.onnx_models.theirs import is_open, reference_is_wrong, refuses_values, runtime_is_wrong

SLOW_S = 5.0


@dataclass
class Outcome:
    """`kind` is "fine", "undecided" (nobody runs it), or "found"; `findings` say way and what, in a few words."""

    seed: int
    kind: str
    findings: list[tuple[str, str]] = field(default_factory=list)
    operators: tuple[str, ...] = ()
    theirs: str = ""
    seconds: float = 0.0
    opset: int = 0
    detail: str = ""
    peers: str = ""
    judges: bool = True


def attempt(function: Callable[[], Any]) -> Any:
    """The result, or the exception."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function()
    except Exception as error:  # noqa: BLE001  # runners raise anything
        return error


def compared(case: Case, chosen: Sequence[str] = ways.WAYS) -> Outcome:
    """The case in all ways."""
    began = time.process_time()
    operators = operators_of(case.model)
    outcome = Outcome(case.seed, "fine", operators=operators, opset=case.opset)
    data = case.model.SerializeToString()
    reference = [attempt(lambda call=call: peers.run_reference(case.model, call)) for call in case.calls]
    opened = attempt(lambda: peers.session(data))
    runtime = [
        opened if isinstance(opened, Exception) else attempt(lambda call=call: opened.run(None, call))
        for call in case.calls
    ]
    calls = [i for i in range(len(case.calls)) if not (_failed(reference[i]) and _failed(runtime[i]))]
    if not _is_valid(case.model) and (not calls or any(map(_failed, (reference[calls[0]], runtime[calls[0]])))):
        outcome.kind = "invalid"
        return outcome
    graph = attempt(lambda: ways.read(data))
    if not calls:
        outcome.kind = "undecided"
        if isinstance(graph, Exception) and not _is_for_users(graph):
            outcome.kind = "found"
            outcome.findings = [("read", _text(graph))]
        return outcome
    outcome.peers = "".join(c if not _failed(r[calls[0]]) else "-" for c, r in (("R", reference), ("O", runtime)))
    accepted = [[each[i] for each in (reference, runtime) if not _failed(each[i])] for i in calls]
    for i, both in zip(calls, accepted, strict=True):
        if len(both) == 2 and (told := _apart(case, i, both[0], both[1])):
            outcome.theirs = f"peers: {told}"
    outcome.judges = _judges(case.model, reference, runtime, calls)
    if not outcome.judges and not isinstance(graph, Exception):
        return outcome
    if isinstance(graph, Exception) and _is_for_users(graph) and all(refuses_values(each) for each in runtime):
        return outcome
    if isinstance(graph, Exception):
        outcome.findings = [("read", _text(graph))]
    else:
        for way in chosen:
            outcome.findings += [(way, text) for text in _findings(case, graph, way, calls, accepted, runtime)]
    if outcome.findings:
        outcome.kind = "found"
        outcome.detail = hashlib.sha256(data).hexdigest()[:8]
    outcome.seconds = time.process_time() - began
    if outcome.seconds > SLOW_S:
        outcome.findings.append(("time", f"took more than {SLOW_S:g} s"))
        outcome.kind = "found"
    return outcome


def _judges(model: onnx.ModelProto, reference: Sequence[Any], runtime: Sequence[Any], calls: Sequence[int]) -> bool:
    """Whether a peer that runs the model is none of those known to be wrong about it."""
    reference_runs = not all(_failed(reference[i]) for i in calls)
    runtime_runs = not all(_failed(runtime[i]) for i in calls)
    return (reference_runs and not reference_is_wrong(model)) or (runtime_runs and not runtime_is_wrong(model))


def operators_of(model: onnx.ModelProto) -> tuple[str, ...]:
    """The operators of a model, each once."""
    return tuple(dict.fromkeys(node.op_type for node in model.graph.node))


def _is_valid(model: onnx.ModelProto) -> bool:
    return attempt(lambda: onnx.checker.check_model(model, full_check=True)) is None


def _failed(result: Any) -> bool:
    return isinstance(result, Exception)


def _findings(
    case: Case, graph: Any, way: str, calls: Sequence[int], accepted: Sequence[Sequence[Any]], runtime: Sequence[Any]
) -> list[str]:
    run = attempt(lambda: ways.runner(graph, way, case.model.SerializeToString()))
    is_file = way in ways.TARGETS
    if _failed(run):
        if is_file and not isinstance(run, CapgraphError) and all(_failed(result) for result in runtime):
            return []  # ONNX Runtime does not run the model itself
        return [_text(run)]
    found = []
    for i, both in zip(calls, accepted, strict=True):
        given = attempt(lambda i=i: run(case.calls[i]))
        if _failed(given):
            is_theirs = refuses_values(runtime[i]) and _is_for_users(given)
            if not is_theirs and not (is_file and _failed(runtime[i])):
                found.append(_text(given))
            continue
        if is_file and _failed(runtime[i]):
            continue  # ONNX Runtime does not run the model itself
        if told := _unlike_all(case, i, both, given):
            found.append(f"differs: {told}")
    return list(dict.fromkeys(found))


def _unlike_all(case: Case, call: int, accepted: Sequence[Any], given: Sequence[Any]) -> str:
    """What is different of an output from what all peers have, where rounding does not explain it."""
    told = [_apart(case, call, each, given) for each in accepted]
    if not all(told) or len({len(each) for each in (*accepted, given)}) > 1:
        return told[-1] if all(told) else ""
    if is_open(case.model, list(case.calls[call].values())):
        return ""
    for place in range(len(given)):
        part = replace(case, only=place)
        judges = [each for each in accepted if _is_typed(case.model, place, each[place])]
        told = [_apart(part, call, each[place : place + 1], given[place : place + 1]) for each in judges]
        if len(judges) == 1 and told[0] in ("NaN", "infinities"):
            continue  # one alone may be wrong about them, as orders of sums and bounds are
        if told and all(told) and not any(is_rounding(part, case.calls[call], each, given) for each in judges):
            return told[-1]
    return ""


def _is_typed(model: onnx.ModelProto, place: int, result: Any) -> bool:
    """Whether a peer's result has the type that the model declares: the reference evaluator often has not."""
    declared = model.graph.output[place].type.tensor_type.elem_type
    if not isinstance(result, np.ndarray) or not declared or result.dtype.kind in "OUS":
        return True
    return bool(result.dtype == onnx.helper.tensor_dtype_to_np_dtype(declared))


def _apart(case: Case, call: int, expected: Sequence[Any], given: Sequence[Any]) -> str:
    if len(expected) != len(given):
        return f"{len(given)} outputs"
    if case.is_random:
        expected, given = [np.zeros_like(each) for each in expected], [np.zeros_like(each) for each in given]
    contents = [*case.calls[call].values(), *expected]
    allowed = tolerance(case.model, contents)
    steps = quantises(case.model)
    return next((s for a, b in zip(expected, given, strict=True) if (s := difference(a, b, allowed, steps=steps))), "")


def _is_for_users(error: Exception) -> bool:
    return isinstance(error, CapgraphError) and not isinstance(error, InternalError)


def _text(error: Exception) -> str:
    """The error's class and text, without names and numbers; of one that is not for users where it comes from."""
    first = re.sub(r"%?\bv\d+\w*|'[^']*'|\d+", "#", str(error).strip().splitlines()[0] if str(error).strip() else "")[
        :160
    ]
    where = ""
    if not _is_for_users(error):
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "capgraph" in f.filename or "/wt/" in f.filename] or list(frames)
        where = f" at {own[-1].filename.rsplit('/', 1)[-1]}:{own[-1].name}" if own else ""
    return f"{type(error).__name__}: {first}{where}"
