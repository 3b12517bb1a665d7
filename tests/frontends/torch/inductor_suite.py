"""PyTorch's own cases of inductor on the CPU, with this backend in inductor's place.

    python -m tests.frontends.torch.inductor_suite SOURCES [NAME ...] [--executor ort] [--part 0/1] [--results FILE]

SOURCES is a folder with the sources of PyTorch 2.6 (`git clone --depth 1 --branch v2.6.0` of its repository; wheels
come without tests): each case of test/inductor/test_torchinductor.py runs under no_grad, for at most two minutes. One
that fails runs again with the graphs of AOT autograd as they are in the place of inductor: where that fails too it
looks at inductor's own code, needs gradients, or is about another version of PyTorch, and is not compared. Results
are lines of JSON; cases that FILE has are not run again, and one during which the process ends is counted and passed
over.
"""

import argparse
import ast
import importlib
import importlib.util
import json
import os
import signal
import subprocess  # runs this file
import sys
import time
import traceback
import unittest
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

CLASSES = ("SweepInputsCpuTest", "CpuTests")
DRAWS = frozenset(
    f"test_{name}_cpu"
    for name in (
        *("dropout_deterministic", "like_rands", "rand_like_deterministic", "randint"),
        "randn_with_dtype_and_device",
    )
)
"""Cases that look at which numbers are drawn."""
LIMIT_S = 120
OUTCOMES = ("passed", "failed", "crashed", "draws", "not compared", "skipped")


class Late(Exception):
    """A case that ran for too long."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments().parse_args(argv)
    if options.worker:
        run_cases(options)
        return 0
    command = [sys.executable, "-W", "ignore", "-m", "tests.frontends.torch.inductor_suite", "--worker"]
    count = -1
    while count < len(known(options.results)):
        count = len(known(options.results))
        if not subprocess.run([*command, *(argv or sys.argv[1:])], check=False).returncode:
            break
        print("the process ended within a case", flush=True)
    found = known(options.results)
    for name, outcome in found.items():
        if outcome in ("failed", "crashed"):
            print(f"{outcome}: {name}")
    counts = Counter(found.values())
    print(", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES), f"on {options.executor}")
    return 1 if counts["failed"] + counts["crashed"] else 0


def known(results: Path) -> dict[str, str]:
    """The outcome of each case in a file of results: the last one."""
    if not results.exists():
        return {}
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    return {line["case"]: line["outcome"] for line in lines}


def run_cases(options: argparse.Namespace) -> None:
    """Runs the cases that are not among the results yet."""
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _late)
    part, parts = map(int, options.part.split("/"))
    place = Place()
    with place.taken():
        suite = _suite(options.sources)
        suite.compile_fx = place  # type: ignore[attr-defined]
        cases = [
            (kind, name)
            for kind in (getattr(suite, each) for each in CLASSES)
            for name in unittest.TestLoader().getTestCaseNames(kind)
            if "aoti" not in name and (not options.names or name in options.names)
        ]
        done = known(options.results)
        for kind, name in cases[part::parts]:
            if name in done:
                continue
            _note(options.results, name, "crashed")
            outcome, text = _outcome(place, options.executor, kind, name)
            _note(options.results, name, outcome, text)
            if options.names or outcome == "failed":
                print(f"{name}: {outcome}\n{text}", flush=True)


def _outcome(place: "Place", executor: str, kind: Any, name: str) -> tuple[str, str]:
    from capgraph.pytorch.backend import backend

    place.compiler = lambda module, examples: backend(module, examples, options={"executor": executor})
    problem, is_skipped = _problem(kind, name)
    if is_skipped or not problem:
        return ("skipped" if is_skipped else "passed"), problem
    if name in DRAWS:
        return "draws", problem
    place.compiler = _as_it_is
    return ("not compared" if _problem(kind, name)[0] else "failed"), problem


def _problem(kind: Any, name: str) -> tuple[str, bool]:
    """What is wrong with a case, empty when nothing is; whether it was skipped, and why."""
    import torch

    result = unittest.TestResult()
    signal.alarm(LIMIT_S)
    try:
        with torch.no_grad():
            kind(name).run(result)
    except (Exception, unittest.SkipTest) as error:  # noqa: BLE001  # whatever a case raises
        return "".join(traceback.format_exception(error))[-2000:], False
    finally:
        signal.alarm(0)
    if result.skipped:
        return result.skipped[0][1], True
    problems = [text for _, text in (*result.failures, *result.errors)]
    return (problems[0][-2000:] if problems else ""), False


def _as_it_is(module: Any, examples: Any) -> Any:
    """The graph of AOT autograd, run by PyTorch."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    run = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(graph.forward), keep_inference_input_mutations=True)
    return run(module, examples)


class Place:
    """What stands in inductor's place."""

    compiler: Callable[[Any, Any], Any] = staticmethod(_as_it_is)

    def __call__(self, module: Any, examples: Any, **_: Any) -> Any:
        return self.compiler(module, examples)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Within it torch.compile's default backend is this."""
        import torch
        from torch._dynamo.backends import registry

        registry._lazy_import()
        compiled = torch.compile

        def ours(model: Any = None, *, backend: Any = "inductor", **given: Any) -> Any:
            if backend != "inductor":
                return compiled(model, backend=backend, **given)
            return compiled(
                model, backend=self, **{name: given[name] for name in ("dynamic", "fullgraph") if name in given}
            )

        with (
            mock.patch.dict(registry._COMPILER_FNS, {"inductor": self}),
            mock.patch.dict(registry._BACKENDS, {"inductor": None}),
            mock.patch.object(torch, "compile", ours),
        ):
            yield


def _suite(sources: Path) -> ModuleType:
    """The module of the cases; what it imports of PyTorch and this version lacks is there in name."""
    path = sources / "test/inductor/test_torchinductor.py"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch") and node.col_offset == 0:
            _provide(str(node.module), [each.name for each in node.names])
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    suite = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = suite
    spec.loader.exec_module(suite)
    return suite


def _provide(module: str, names: Sequence[str]) -> None:
    try:
        found = importlib.import_module(module)
    except ImportError:
        found = sys.modules[module] = ModuleType(module)
    for name in names:
        if not hasattr(found, name):
            try:
                importlib.import_module(f"{module}.{name}")
            except ImportError:
                setattr(found, name, _Absent())


class _Absent:
    """A decorator that is not there in this version, or a function of no use here."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, function: Any = None, *_: Any, **__: Any) -> Any:
        return self if function is None else function


def _note(results: Path, case: str, outcome: str, text: str = "") -> None:
    with results.open("a") as file:
        file.write(json.dumps({"case": case, "outcome": outcome, "at": round(time.time()), "text": text}) + "\n")


def _late(*_: Any) -> None:
    raise Late


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="PyTorch's cases of inductor.")
    parser.add_argument("sources", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--executor", default="ort")
    parser.add_argument("--part", default="0/1", help="which of how many parts of the cases")
    parser.add_argument("--results", type=Path, default=Path("inductor_suite.jsonl"))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
