"""Random ONNX models beside onnx's reference evaluator and ONNX Runtime, in every executor and as written files.

python -m tests.fuzz_onnx [--models N] [--seed S] [--processes N] [--out F] [--only SEED] [--operator OP]
"""

import argparse
import json
import os
import resource
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.onnx_models.cases import Case, drawn_case
from tests.onnx_models.comparing import Outcome, Peers, compared, operators_of, peers_of
from tests.onnx_models.reducing import reduced
from tests.supervision import Finished, run_tasks

LIMIT_S = 60.0
MOST_BYTES = (4 + 2 * (os.cpu_count() or 1)) << 30
"""Of a process. Each of the 256 sessions that foreign operators may leave has a thread a core, whose stack is 8 MiB."""
CHUNK = 50


def outcome(seed: int) -> Outcome:
    """What becomes of the model of a seed."""
    case = drawn_case(seed)
    return Outcome(seed, "not drawn") if case is None else outcome_of(case, peers_of(case))


def outcome_of(case: Case, theirs: Peers) -> Outcome:
    """What becomes of a case beside the peers."""
    found = compared(case, theirs=theirs)
    if found.findings:
        way, text = found.findings[0]
        smaller = reduced(case, way, text)
        found.operators = operators_of(smaller.model)
        found.peers = compared(smaller, ()).peers
        found.theirs += "" if smaller is not case else " whole"
    return found


def tried(task: str, first: int) -> Iterator[Outcome | None]:
    """The outcomes of a chunk of seeds, in two steps each: the peers run first, which crash and hang as they like.

    The task is the first seed, and the operator after a space if there is one.
    """
    start, _, operator = task.partition(" ")
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    if first % 2:
        yield None  # the peers were lost
    for seed in range(int(start) + (first + 1) // 2, int(start) + CHUNK):
        case = drawn_case(seed, operator or None)
        theirs = None if case is None else peers_of(case)
        if theirs is not None:
            _ = theirs.known, theirs.calls or theirs.is_valid  # which may end the process as well
        yield None
        yield Outcome(seed, "not drawn") if case is None or theirs is None else outcome_of(case, theirs)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Random ONNX models.")
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", type=int)
    parser.add_argument("--operator")
    options = parser.parse_args(argv)
    if options.only is not None:
        return show(options.only, options.operator)
    began = time.monotonic()
    firsts = range(options.seed, options.seed + options.models, CHUNK)
    tasks = [f"{first} {options.operator or ''}".strip() for first in firsts]
    kinds, operators, causes = Counter[str](), Counter[str](), defaultdict[str, list[Any]](list)
    for step in run_tasks(tried, tasks, workers=options.processes, limit_s=LIMIT_S):
        first = int(step.task.split()[0])
        if isinstance(step, Finished):
            if (first - options.seed + CHUNK) % (20 * CHUNK) == 0:
                print(f"to seed {first + CHUNK - 1}: {dict(kinds)}", flush=True)
            if time.monotonic() - began > options.seconds:
                break
            continue
        seed = first + step.index // 2
        if step.index % 2 == 0 or (step.result is None and step.lost is None):
            kinds["peers lost"] += step.lost is not None
            continue
        found = step.result or Outcome(seed, "lost", [("process", step.lost or "")])
        kinds[found.kind] += 1
        operators.update(found.operators)
        for way, text in found.findings:
            print(f"{seed} {way}: {text}", flush=True)
            causes[f"{'+'.join(sorted(found.operators)[:4])}: {text}"].append((seed, way, found))
        if found.kind in ("fine", "found") and "peers" in found.theirs:
            kinds["peers differ"] += 1
    report(causes, kinds, time.monotonic() - began)
    print(f"operators: {len(operators)}; fewest: {operators.most_common()[-12:]}")
    if options.out:
        lines = {
            text: [(seed, way, f.peers, f.theirs, f.operators) for seed, way, f in each]
            for text, each in causes.items()
        }
        options.out.write_text(json.dumps(lines, indent=1))
    return 1 if causes else 0


def report(causes: dict[str, list[Any]], kinds: Counter[str], seconds: float) -> None:
    """One line for each cause."""
    for text, each in sorted(causes.items(), key=lambda item: -len(item[1])):
        ways = Counter(way for _, way, _ in each)
        smallest = sorted(
            {(len(f.operators), seed, f.operators, f"{f.peers} {f.theirs}", f.opset) for seed, _, f in each}
        )[:4]
        cases = "; ".join(f"{seed} {'+'.join(ops[:5])}@{opset} {theirs}" for _, seed, ops, theirs, opset in smallest)
        print(f"{len(each)}x {text}  [{' '.join(f'{w} {n}' for w, n in ways.items())}] {cases}")
    total = sum(n for kind, n in kinds.items() if kind != "peers differ")
    print(f"{total} models in {seconds:.0f} s: {dict(kinds)}", flush=True)


def show(seed: int, operator: str | None) -> int:
    """The model of a seed and what becomes of it."""
    import onnx

    case = drawn_case(seed, operator)
    if case is None:
        print("not drawn")
        return 0
    print(onnx.printer.to_text(case.model))
    for call in case.calls:
        print({name: getattr(value, "shape", value) for name, value in call.items()})
    print(compared(case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
