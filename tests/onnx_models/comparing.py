"""What becomes of one model: in the two peers, and in each of our ways."""

import re
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from capgraph.ir.errors import CapgraphError, InternalError, ModelError

from tests.onnx_models import peers, ways
from tests.onnx_models.cases import Case
from tests.onnx_models.draw import Unrunnable
from tests.onnx_models.judging import difference, quantizes, tolerance
from tests.onnx_models.operands import Known
from tests.onnx_models.parts import inlined, part_of
from tests.onnx_models.reference_errors import reference_is_wrong
from tests.onnx_models.rounding import contents, is_rounding, jumps
from tests.onnx_models.runtime_errors import lacks_kernel, pools_nothing_of_files, refuses_values, runtime_is_wrong
from tests.onnx_models.unspecified import is_inexact, is_open

SLOW_S = 5.0
"""Of the thread that compares: the threads of ONNX Runtime spin, on each core one."""


@dataclass
class Outcome:
    """What became of a model; `findings` say way and what, in a few words.

    `kind` is "fine", "found", "undecided" (nobody runs it), "unjudged" (who runs it is known to be wrong about each of
    its outputs), "limit" (refused, as docs/onnx.md says) or "invalid".
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

    case: Case
    reference: list[Any]
    runtime: list[Any]
    calls: list[int]

    def accepted(self, call: int) -> list[Any]:
        """The results of a call."""
        return [each[call] for each in (self.reference, self.runtime) if not _failed(each[call])]

    def words(self) -> str:
        """Who runs the first call: RO for both."""
        first = self.calls[0]
        return "".join(
            "-" if _failed(each[first]) else letter for letter, each in (("R", self.reference), ("O", self.runtime))
        )

    @cached_property
    def is_valid(self) -> bool:
        """Whether onnx finds nothing wrong with the model."""
        return _is_valid(self.case.model)

    @cached_property
    def parts(self) -> list[Case]:
        """The case cut down to each of its outputs."""
        return [part_of(self.case, place) for place in range(len(self.case.model.graph.output))]

    @cached_property
    def _inlined(self) -> tuple[Case, list[Case]]:
        """The case without functions, of whose values nothing is known, and cut down to each of its outputs."""
        whole = inlined(self.case)
        if whole is self.case:
            return whole, self.parts
        return whole, [part_of(whole, place) for place in range(len(self.parts))]

    @cached_property
    def known(self) -> list[Known | None]:
        """What every value holds in each call; None where a node does not run alone."""
        return [_contents(self._inlined[0], call) for call in self.case.calls]

    @cached_property
    def judges(self) -> dict[tuple[int, int], dict[str, Any]]:
        """Of each output in each call what those say of it (R, O) who are not known to be wrong on the way to it."""
        return {(call, place): self.judges_of(call, place) for call in self.calls for place in range(len(self.parts))}

    def judges_of(self, call: int, place: int) -> dict[str, Any]:
        """Those of an output in a call."""
        model = self._inlined[1][place].model
        judges = {} if is_open(model, self.known[call]) else self._not_wrong(model, call)
        return {
            letter: results[place]
            for letter, results in judges.items()
            if len(results) == len(self.parts) and _is_typed(self.case.model, place, results[place])
        }

    def judges_of_all(self, call: int) -> dict[str, Any]:
        """Those of everything in the model, what no output hangs on too."""
        return self._not_wrong(self._inlined[0].model, call)

    def _not_wrong(self, model: onnx.ModelProto, call: int) -> dict[str, Any]:
        known = self.known[call]
        peers = (("R", self.reference[call], reference_is_wrong), ("O", self.runtime[call], runtime_is_wrong))
        return {
            letter: results
            for letter, results, is_wrong in peers
            if not _failed(results) and not is_wrong(model, known)
        }

    def pools_nothing(self, call: int, place: int) -> bool:
        """Whether ONNX Runtime takes what an output hangs on for more than it is, of files."""
        return pools_nothing_of_files(self._inlined[1][place].model, self.known[call])

    def jumps(self, call: int) -> bool:
        """Whether a rounding decides what runs in a call."""
        return jumps(self._inlined[0], self.case.calls[call])

    def judged(self, calls: Sequence[int], by: str = "RO") -> list[int]:
        """The outputs that one of these is a judge of in one of the calls."""
        places = range(len(self.parts))
        return [place for place in places if any(set(by) & self.judges[call, place].keys() for call in calls)]


def attempt(function: Callable[[], Any]) -> Any:
    """The result, or the exception."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function()
    except Exception as error:  # noqa: BLE001  # runners raise anything
        return error


def compared(case: Case, chosen: Sequence[str] = ways.WAYS, theirs: Peers | None = None) -> Outcome:
    """The case in all ways, beside what the peers make of it."""
    began = time.thread_time()
    outcome = Outcome(case.seed, "fine", operators=operators_of(case.model), opset=case.opset)
    theirs = peers_of(case) if theirs is None else theirs
    if not theirs.calls and not theirs.is_valid:
        outcome.kind = "invalid"
        return outcome
    graph = attempt(lambda: ways.read(case.model.SerializeToString()))
    if not theirs.calls:
        outcome.kind = "undecided"
        if isinstance(graph, Exception) and not _is_for_users(graph):
            outcome.findings = [("read", _text(graph))]
    else:
        _hold(outcome, case, graph, theirs, chosen)
    if time.thread_time() - began > SLOW_S:
        outcome.findings.append(("time", f"took more than {SLOW_S:g} s"))
    if outcome.findings:
        outcome.kind = "found"
    return outcome


def peers_of(case: Case) -> Peers:
    """What the peers make of the case."""
    reference = [attempt(lambda call=call: peers.run_reference(case.model, call)) for call in case.calls]
    opened = attempt(lambda: peers.session(case.model.SerializeToString()))
    runtime = [
        opened if isinstance(opened, Exception) else attempt(lambda call=call: peers.answers(opened, call))
        for call in case.calls
    ]
    # What the reference gives where ONNX Runtime finds a call wrong is no measure.
    runs = [
        not _failed(b) or (not _failed(a) and not refuses_values(b)) for a, b in zip(reference, runtime, strict=True)
    ]
    calls = [place for place, each in enumerate(runs) if each]
    if calls and (_failed(reference[calls[0]]) or _failed(runtime[calls[0]])) and not _is_valid(case.model):
        calls = []
    return Peers(case, reference, runtime, calls)


def _contents(case: Case, call: dict[str, Any]) -> Known | None:
    try:
        return contents(case.model, call)
    except (Unrunnable, KeyError):
        return None


def _hold(outcome: Outcome, case: Case, graph: Any, theirs: Peers, chosen: Sequence[str]) -> None:
    outcome.peers = theirs.words()
    for call in theirs.calls:
        both = theirs.accepted(call)
        if len(both) == 2 and (told := _apart(case, call, both[0], both[1])):
            outcome.theirs = f"peers: {told}"
    if not theirs.judged(theirs.calls):
        outcome.kind = "unjudged"
    elif ways.is_a_limit(graph):
        outcome.kind = "limit"
    elif isinstance(graph, ModelError) and not theirs.is_valid:
        outcome.kind = "invalid"  # onnx refuses it, too
    elif isinstance(graph, Exception):
        outcome.findings = _of_error(graph, "read", theirs, theirs.calls, lambda part: ways.read(_bytes(part)))
    else:
        for way in chosen:
            outcome.findings += _findings(case, graph, way, theirs)


def operators_of(model: onnx.ModelProto) -> tuple[str, ...]:
    """The operators of a model, each once."""
    return tuple(dict.fromkeys(node.op_type for node in model.graph.node))


def _bytes(case: Case) -> bytes:
    return bytes(case.model.SerializeToString())


def _is_valid(model: onnx.ModelProto) -> bool:
    return attempt(lambda: onnx.checker.check_model(model, full_check=True)) is None


def _failed(result: Any) -> bool:
    return isinstance(result, Exception)


def _findings(case: Case, graph: Any, way: str, theirs: Peers) -> list[tuple[str, str]]:
    is_file = way in ways.TARGETS
    # A file is held to what ONNX Runtime makes of the model, in calls that do not break what it was read with.
    calls = [i for i in theirs.calls if not (is_file and _failed(theirs.runtime[i]))]
    run = attempt(lambda: ways.runner(graph, way, _bytes(case)))
    if _failed(run):
        is_refused_alike = is_file and not isinstance(run, CapgraphError) and not calls
        is_theirs = is_refused_alike or (is_file and lacks_kernel(run))
        return [] if is_theirs else _of_error(run, way, theirs, theirs.calls, lambda part: _opened(part, way))
    found = []
    for i in calls:
        given = attempt(lambda i=i: run(case.calls[i]))
        if _failed(given):
            told = _of_error(given, way, theirs, [i], lambda part, i=i: _opened(part, way)(part.calls[i]))
        else:
            # What ONNX Runtime gets wrong of the model it gets wrong of the file.
            told = [(way, f"differs: {each}") for each in _differences(theirs, i, given, way)]
        if told and not (is_file and ways.breaks_what_was_taken(_bytes(case), case.calls[i])):
            found += told
    return list(dict.fromkeys(found))


def _opened(part: Case, way: str) -> Any:
    return ways.runner(ways.read(_bytes(part)), way, _bytes(part))


def _of_error(
    error: Exception, way: str, theirs: Peers, calls: Sequence[int], again: Callable[[Case], Any]
) -> list[tuple[str, str]]:
    """The error as a finding, unless it comes from outputs alone that nobody is a judge of."""
    failing = [place for place, part in enumerate(theirs.parts) if _failed(attempt(lambda part=part: again(part)))]
    by = "O" if way in ways.TARGETS else "RO"
    if failing:
        judged = [theirs.parts[place] for place in set(failing) & set(theirs.judged(calls, by))]
        # of an output alone ONNX Runtime may tell that the call is wrong, where the whole model needs what it lacks; it
        # may get wrong what no output of a function hangs on
        is_judged = any(
            theirs_of_part.judges_of_all(call).keys() & set(by) and (way == "read" or not theirs_of_part.jumps(call))
            for theirs_of_part in map(peers_of, judged)
            for call in set(calls) & set(theirs_of_part.calls)
        )
    else:  # only as a whole, or by what no output hangs on
        is_judged = any(theirs.judges_of_all(call).keys() & set(by) and not theirs.jumps(call) for call in calls)
    return [(way, _text(error))] if is_judged else []


def _differences(theirs: Peers, call: int, given: Sequence[Any], way: str) -> list[str]:
    """What is different of each output from what all judges have, where rounding does not explain it."""
    if len(given) != len(theirs.parts):
        return [f"{len(given)} outputs"]
    found = []
    is_file = way in ways.TARGETS
    for place in theirs.judged([call], "O" if is_file else "RO"):
        part, judges = theirs.parts[place], theirs.judges[call, place]
        told = [_apart(part, call, [each], [given[place]]) for each in judges.values()]
        if not all(told) or (is_file and ways.breaks_what_was_taken(_bytes(part), part.calls[call])):
            continue
        if is_file and theirs.pools_nothing(call, place):
            continue
        if not _is_excused(part, call, judges, given[place], told, way) and not _agrees(part, call, given[place], way):
            found.append(told[-1])
    return list(dict.fromkeys(found))


def _agrees(part: Case, call: int, given: Any, way: str) -> bool:
    """Whether a judge says the same of the output alone: one peer often fails at what another output needs."""
    judges = peers_of(part).judges_of(call, 0)
    told = [_apart(part, call, [each], [given]) for each in judges.values()]
    return not all(told) or (bool(told) and _is_excused(part, call, judges, given, told, way))


def _is_excused(part: Case, call: int, judges: Mapping[str, Any], given: Any, told: Sequence[str], way: str) -> bool:
    """Whether one peer alone is no judge of it, or rounding explains it."""
    part = inlined(part)
    if len(judges) == 1 and is_inexact(part.model, _contents(part, part.calls[call]), told[0]):
        return True
    return any(is_rounding(part, part.calls[call], [each], [given], way) for each in judges.values())


def _is_typed(model: onnx.ModelProto, place: int, result: Any) -> bool:
    """Whether a peer's result has the type that the model declares: the reference evaluator often has not."""
    ty = model.graph.output[place].type
    declared = ty.tensor_type.elem_type or ty.sequence_type.elem_type.tensor_type.elem_type
    arrays = [each for each in (result if isinstance(result, list) else [result]) if isinstance(each, np.ndarray)]
    if not declared or any(each.dtype.kind in "OUS" for each in arrays):
        return True
    return all(each.dtype == onnx.helper.tensor_dtype_to_np_dtype(declared) for each in arrays)


def _apart(case: Case, call: int, expected: Sequence[Any], given: Sequence[Any]) -> str:
    if len(expected) != len(given):
        return f"{len(given)} outputs"
    if case.is_random:
        expected, given = [np.zeros_like(each) for each in expected], [np.zeros_like(each) for each in given]
    read = [*case.calls[call].values(), *expected]
    allowed = tolerance(case.model, read)
    steps = quantizes(case.model)
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
        own = [f for f in frames if "capgraph" in f.filename] or list(frames)
        where = f" at {own[-1].filename.rsplit('/', 1)[-1]}:{own[-1].name}" if own else ""
    return f"{type(error).__name__}: {first}{where}"
