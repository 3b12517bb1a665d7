"""What becomes of one model: in the two peers, and in each of our ways."""

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
from tests.onnx_models.theirs import (
    has_rounds,
    is_inexact,
    is_open,
    reference_is_wrong,
    refuses_values,
    runtime_is_wrong,
)

SLOW_S = 5.0


@dataclass
class Outcome:
    """What became of a model; `findings` say way and what, in a few words.

    `kind` is "fine", "found", "undecided" (nobody runs it), "unjudged" (who runs it is known to be wrong) or "invalid".
    """

    seed: int
    kind: str
    findings: list[tuple[str, str]] = field(default_factory=list)
    operators: tuple[str, ...] = ()
    theirs: str = ""
    opset: int = 0
    peers: str = ""


@dataclass
class Peers:
    """What the peers make of each call, and which calls are to be held to them."""

    reference: list[Any]
    runtime: list[Any]
    calls: list[int]

    def accepted(self, place: int) -> list[Any]:
        """The results of a call."""
        return [each[place] for each in (self.reference, self.runtime) if not _failed(each[place])]

    def words(self) -> str:
        """Who runs the first call: RO for both."""
        first = self.calls[0]
        return "".join(
            "-" if _failed(each[first]) else letter for letter, each in (("R", self.reference), ("O", self.runtime))
        )


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
    outcome = Outcome(case.seed, "fine", operators=operators_of(case.model), opset=case.opset)
    theirs = _peers(case)
    if not theirs.calls and not _is_valid(case.model):
        outcome.kind = "invalid"
        return outcome
    graph = attempt(lambda: ways.read(case.model.SerializeToString()))
    if not theirs.calls:
        outcome.kind = "undecided"
        if isinstance(graph, Exception) and not _is_for_users(graph):
            outcome.findings = [("read", _text(graph))]
    else:
        _hold(outcome, case, graph, theirs, chosen)
    if time.process_time() - began > SLOW_S:
        outcome.findings.append(("time", f"took more than {SLOW_S:g} s"))
    if outcome.findings:
        outcome.kind = "found"
    return outcome


def _peers(case: Case) -> Peers:
    reference = [attempt(lambda call=call: peers.run_reference(case.model, call)) for call in case.calls]
    opened = attempt(lambda: peers.session(case.model.SerializeToString()))
    runtime = [
        opened if isinstance(opened, Exception) else attempt(lambda call=call: opened.run(None, call))
        for call in case.calls
    ]
    # What the reference gives where ONNX Runtime finds a call wrong is no measure.
    runs = [
        not _failed(b) or (not _failed(a) and not refuses_values(b)) for a, b in zip(reference, runtime, strict=True)
    ]
    calls = [place for place, each in enumerate(runs) if each]
    if calls and (_failed(reference[calls[0]]) or _failed(runtime[calls[0]])) and not _is_valid(case.model):
        calls = []
    return Peers(reference, runtime, calls)


def _hold(outcome: Outcome, case: Case, graph: Any, theirs: Peers, chosen: Sequence[str]) -> None:
    outcome.peers = theirs.words()
    for place in theirs.calls:
        both = theirs.accepted(place)
        if len(both) == 2 and (told := _apart(case, place, both[0], both[1])):
            outcome.theirs = f"peers: {told}"
    if isinstance(graph, Exception):
        outcome.findings = [("read", _text(graph))]
    elif not _has_judge(case.model, theirs):
        outcome.kind = "unjudged"
    else:
        for way in chosen:
            outcome.findings += [(way, text) for text in _findings(case, graph, way, theirs)]


def _has_judge(model: onnx.ModelProto, theirs: Peers) -> bool:
    """Whether a peer that runs the model is none of those known to be wrong about it."""
    reference_runs = any(not _failed(theirs.reference[i]) for i in theirs.calls)
    runtime_runs = any(not _failed(theirs.runtime[i]) for i in theirs.calls)
    return (reference_runs and not reference_is_wrong(model)) or (runtime_runs and not runtime_is_wrong(model))


def operators_of(model: onnx.ModelProto) -> tuple[str, ...]:
    """The operators of a model, each once."""
    return tuple(dict.fromkeys(node.op_type for node in model.graph.node))


def _is_valid(model: onnx.ModelProto) -> bool:
    return attempt(lambda: onnx.checker.check_model(model, full_check=True)) is None


def _failed(result: Any) -> bool:
    return isinstance(result, Exception)


def _findings(case: Case, graph: Any, way: str, theirs: Peers) -> list[str]:
    data = case.model.SerializeToString()
    run = attempt(lambda: ways.runner(graph, way, data))
    is_file = way in ways.TARGETS
    # A file is held to what ONNX Runtime makes of the model, in calls that do not break what it was read with.
    calls = [i for i in theirs.calls if not (is_file and _failed(theirs.runtime[i]))]
    if _failed(run):
        is_refused_alike = is_file and not isinstance(run, CapgraphError) and not calls
        return [] if is_refused_alike else [_text(run)]
    found = []
    for i in calls:
        given = attempt(lambda i=i: run(case.calls[i]))
        told = _text(given) if _failed(given) else _unlike_all(case, i, theirs.accepted(i), given)
        if _failed(given) and _is_for_users(given) and len(theirs.accepted(i)) == 1 and _has_empty(case.calls[i]):
            continue  # of empty operands, with which one peer alone goes on
        if told and not (is_file and ways.breaks_what_was_taken(data, case.calls[i])):
            found.append(told if _failed(given) else f"differs: {told}")
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
        if len(judges) == 1 and told[0] in ("integers", "shape") and is_inexact(case.model):
            continue
        if told and has_rounds(case.model) and all(_are_empty(each[place], given[place]) for each in judges):
            continue
        if len(judges) == 1 and told[0] in ("NaN", "infinities"):
            continue  # one alone may be wrong about them, as orders of sums and bounds are
        if told and all(told) and not any(is_rounding(part, case.calls[call], each, given) for each in judges):
            return told[-1]
    return ""


def _are_empty(one: Any, other: Any) -> bool:
    """Whether two arrays of one rank have no elements."""
    arrays = (np.asarray(one), np.asarray(other)) if not isinstance(one, list) else ()
    return bool(arrays) and all(not each.size for each in arrays) and arrays[0].ndim == arrays[1].ndim


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


def _has_empty(inputs: dict[str, Any]) -> bool:
    return any(isinstance(each, np.ndarray) and not each.size for each in inputs.values())


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
        own = [f for f in frames if "capgraph" in f.filename] or list(frames)
        where = f" at {own[-1].filename.rsplit('/', 1)[-1]}:{own[-1].name}" if own else ""
    return f"{type(error).__name__}: {first}{where}"
