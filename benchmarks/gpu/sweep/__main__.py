"""Every model of the sweep on one GPU: right, in how many recordings, and how fast beside PyTorch.

    python -m benchmarks.gpu.sweep [--only NAMES] [--skip NAMES] [--stage K/N] [--dtypes float16,bfloat16,float32]
                                   [--timed float16] [--batches 1,8] [--doors optimize,compile,reduce-overhead]
                                   [--no-peers] [--peers FILE] [--small] [--workers 12] [--seconds 520] [--busy]
                                   [--profiles FOLDER] [--out FILE.jsonl] [--table FILE]

Each model runs in a process of its own, several at a time; what is measured is measured under a lock, by one process
alone. A model that crashes or takes longer than `--limit` seconds is a row. Rows are appended as they come, so that a
run that is stopped keeps what it has: `--out` of several stages may be one file. NAMES are whole names or their
beginnings, and are run in the order given. `--peers` takes the rows of PyTorch from an earlier run on the same kind of
machine. Times are medians of calls back to back with inputs in place, in microseconds.
"""

import argparse
import fcntl
import importlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from . import report
from .subject import Subject
from .table import SUBJECTS


@dataclass(slots=True)
class Running:
    """A model's process and when it began."""

    subject: Subject
    process: Any
    begin: float


class Rows:
    """A file of JSON lines that several processes append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: Mapping[str, Any]) -> None:
        """Appends a row."""
        with self.path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(row, default=str) + "\n")


def chosen(only: str, skip: str, stage: str) -> list[Subject]:
    """The subjects of one stage, in the order of `only`: every n-th, so that stages are alike."""
    wanted = [name for each in (only or "*").split(",") for name in SUBJECTS if _begins(name, each)]
    names = [name for name in dict.fromkeys(wanted) if not skip or not _begins(name, skip)]
    index, count = (int(each) for each in stage.split("/"))
    return [SUBJECTS[name] for name in names[index - 1 :: count]]


def _begins(name: str, listed: str) -> bool:
    return any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in listed.split(","))


def work_of(arguments: argparse.Namespace) -> Any:
    from .worker import Work

    doors = tuple(arguments.doors.split(","))
    return Work(
        dtypes=tuple(arguments.dtypes.split(",")),
        timed=() if arguments.timed == "none" else tuple(arguments.timed.split(",")),
        batches=tuple(int(each) for each in arguments.batches.split(",")),
        doors=tuple(each for each in doors if not (arguments.no_peers or arguments.peers) or each != "reduce-overhead"),
        small=arguments.small,
        device=arguments.device,
        profiles=arguments.profiles,
        lock=arguments.out.with_suffix(".lock"),
        is_busy=arguments.busy,
    )


def sweep(subjects: Sequence[Subject], arguments: argparse.Namespace, rows: Rows, begin: float) -> list[str]:
    """Runs them all, at most so many at a time, until time is up. The names of those that were not done by then."""
    waiting, running = list(subjects), list[Running]()
    work, context = work_of(arguments), multiprocessing.get_context(start_method())
    while (waiting or running) and time.monotonic() - begin < arguments.seconds:
        while waiting and len(running) < arguments.workers:
            running.append(_started(context, waiting.pop(0), work, rows))
        for each in list(running):
            _look_after(each, rows, arguments.limit)
            if not each.process.is_alive():
                each.process.join()
                running.remove(each)
        time.sleep(0.05)
    for each in running:
        each.process.kill()  # all of them, before any is waited for
    for each in running:
        each.process.join()
    return [each.subject.name for each in running] + [each.name for each in waiting]


def start_method() -> str:
    """Forks where that leaves the GPU to the children: "spawn", where each loads all packages again, if not."""
    return "fork" if _answers(_exit_if_gpu_is_taken) else "spawn"


def _answers(work: Any, *args: Any) -> bool:
    return not _Forked(work, *args).wait()


class _Forked:
    """A process that runs a function and ends with its exit status, as this one has its packages."""

    def __init__(self, work: Any, *args: Any) -> None:
        self._process = multiprocessing.get_context("fork").Process(target=work, args=args)
        self._process.start()

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode or 0


def _exit_if_gpu_is_taken() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.init()  # fails behind a fork if anything has asked CUDA for its devices before


def _started(context: Any, subject: Subject, work: Any, rows: Rows) -> Running:
    process = context.Process(target=_in_process, args=(subject.name, work, rows))
    process.start()
    return Running(subject, process, time.monotonic())


def _in_process(name: str, work: Any, rows: Rows) -> None:
    from .worker import quiet, run

    with quiet(rows.path.with_suffix(".log")):
        run(SUBJECTS[name], work, lambda row: rows.add({"model": name, **row}))


def _look_after(each: Running, rows: Rows, limit: float) -> None:
    """A process that takes too long is ended; one that died by itself leaves a row."""
    seconds = time.monotonic() - each.begin
    if seconds > limit:
        each.process.kill()
        each.process.join()
    if each.process.is_alive() or not each.process.exitcode:
        return
    why = f"not ready after {seconds:.0f} s" if seconds > limit else f"its process ended with {each.process.exitcode}"
    rows.add({"model": each.subject.name, "error_text": why})


def knows_backend() -> bool:
    """Whether torch.compile finds the backend by its name, which an installed package tells."""
    return "capgraph" in entry_points(group="torch_dynamo_backends").names


def preload(subjects: Sequence[Subject]) -> None:
    """Loads once what all processes need, except for packages that wake the GPU, which would be lost to forks."""
    for name in ("capgraph.pytorch.backend", "torch._inductor.compile_fx", "torch._dynamo"):
        _load_package(name)
    tried = {
        name: _Forked(_exit_if_it_wakes_the_gpu, name) for name in sorted({each.package for each in subjects} - {""})
    }
    for name, process in tried.items():
        if process.wait():
            print(f"{name} wakes the GPU: each process loads it", flush=True)
        else:
            _load_package(name)


def _exit_if_it_wakes_the_gpu(name: str) -> None:
    _load_package(name)
    sys.exit(not _answers(_exit_if_gpu_is_taken))


def _load_package(name: str) -> None:
    _load(importlib.import_module, name)
    if name == "transformers":
        module = importlib.import_module(name)
        for each in ("BertModel", "LlamaForCausalLM", "GPT2LMHeadModel", "T5ForConditionalGeneration", "CLIPModel"):
            _load(lambda each: getattr(module, each), each)


def _load(load: Any, name: str) -> None:
    try:
        load(name)
    except ImportError as error:
        print(f"{name} was not loaded: {error}", flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, with * behind a beginning")
    parser.add_argument("--skip", default="")
    parser.add_argument("--stage", default="1/1")
    parser.add_argument("--dtypes", default="float16")
    parser.add_argument("--timed", default="float16", help="the dtypes whose calls are timed, or none")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--doors", default="optimize,compile,reduce-overhead")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--peers", type=Path, help="rows of an earlier run, whose reduce-overhead is taken")
    parser.add_argument("--small", action="store_true", help="small modules, as tests/gpu takes them")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=520, help="end what still runs then; that takes up to 30 more")
    parser.add_argument("--limit", type=float, default=240, help="the seconds that one model may take")
    parser.add_argument("--busy", action="store_true", help="time while other processes work, in twice as many rounds")
    parser.add_argument("--profiles", type=Path, help="a folder for explain() and profile() of each model")
    parser.add_argument("--out", type=Path, default=Path("build/sweep.jsonl"))
    parser.add_argument("--table", type=Path, help="write the table of all rows in --out there")
    parser.add_argument("--report", action="store_true", help="only print the table of what --out has")
    return parser.parse_args()


def main() -> int:
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking CUDA itself would leave nothing to forks
    arguments = parsed()
    rows = Rows(arguments.out)
    if not arguments.report:
        if "compile" in arguments.doors.split(",") and not knows_backend():
            print("torch.compile knows no backend capgraph here: install the package", flush=True)
            return 2
        if arguments.profiles is not None:
            arguments.profiles.mkdir(parents=True, exist_ok=True)
        subjects = chosen(arguments.only, arguments.skip, arguments.stage)
        missing = [each.name for each in subjects if not each.is_installed]
        begin = time.monotonic()
        print(f"{len(subjects)} models; not installed: {', '.join(missing) or 'none'}", flush=True)
        preload(subjects)
        print(f"loaded in {time.monotonic() - begin:.1f} s; {start_method()}", flush=True)
        left = sweep([each for each in subjects if each.is_installed], arguments, rows, begin)
        print(f"time was up before the end of {len(left)}: {', '.join(left)}" if left else "all ended", flush=True)
    kept = [row for row in report.read([arguments.peers] if arguments.peers else []) if _is_peer(row)]
    lines = report.table([*kept, *report.read([arguments.out])])
    print("\n".join(lines), flush=True)
    if arguments.table is not None:
        arguments.table.write_text("\n".join(lines) + "\n")
    return 0


def _is_peer(row: Mapping[str, Any]) -> bool:
    return row.get("door") in ("reduce-overhead", "eager")


if __name__ == "__main__":
    sys.exit(main())
