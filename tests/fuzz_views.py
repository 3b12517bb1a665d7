"""Fuzzing of aliasing: random programs of views, writes in place and breaks of the graph, beside eager PyTorch.

    python -m tests.fuzz_views [--programs N] [--seed N] [--broken N] [--executor eager|ort|graph]
        [--processes N] [--minutes N]

Programs come in bundles: one function of several that share nothing, so that one compile serves many. Most bundles go
to the backend as a graph; of `--broken` in a hundred Dynamo makes the graphs, with breaks between statements. Results
and arguments, and what more writes make of them, must be those of eager PyTorch, and share memory as there. What
differs is printed as one program; the exit status is 1 when anything did. Where PyTorch's own graph, run by PyTorch,
fails or differs too, the fault is none of ours: that is counted.
"""

import argparse
import gc
import linecache
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from traceback import walk_tb
from typing import Any

import torch
from capgraph.pytorch.backend import backend
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

BUNDLE = 20
SMALL_BUNDLE = 4
"""Of programs whose arguments are views of each other: where PyTorch takes one of them not, each is tried alone."""
BREAK = "torch._dynamo.graph_break()"
CHUNK = 2
SECONDS = 30
"""Between two lines of what is done."""
MOST_ELEMENTS = 64
TEXT = "<programs>"
SHARING = 7
"""The seeds, of 20, whose arguments are views of each other: one in three of these PyTorch's wrappers cannot take."""

NOT_TAKEN = "incorrect out shape after application of ViewMeta sequence"
"""What PyTorch raises, for aot_eager and inductor too, where arguments are views of each other, one of them transposed,
and one is written to. Whether a break of the graph makes such arguments is up to the backend."""


@dataclass(frozen=True)
class RandomProgram:
    """A program as text: arguments, which may be views of each other, statements on them, and what it returns."""

    arguments: tuple[str, ...]
    statements: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def parts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The statements before and after the break of the graph; all are before it where there is none."""
        place = self.statements.index(BREAK) if BREAK in self.statements else len(self.statements)
        return self.statements[:place], self.statements[place + 1 :]

    def __str__(self) -> str:
        returned = f"return {', '.join(self.results)}"
        return "\n".join(f"    {line}" for line in (*self.arguments, "# ----", *self.statements, returned))


# ---- drawing


class Draw:
    """Draws a program and runs it as it goes: statements that PyTorch refuses are not taken."""

    def __init__(self, seed: int, prefix: str = "", *, shares: bool = False) -> None:
        self._random = random.Random(seed)
        self._prefix = prefix
        self._shares = shares
        self._scope: dict[str, Any] = {}
        self._tensors: list[str] = []
        self._memories: set[int] = set()

    def program(self, *, is_broken: bool = False) -> RandomProgram:
        """A program whose names begin with the prefix; a broken one has breaks of the graph."""
        while True:
            program = self._program(is_broken)
            if not (is_broken or self._shares) or not _is_refused(program):
                return program

    def _program(self, is_broken: bool) -> RandomProgram:
        self._scope, self._tensors = {"torch": torch}, []
        arguments = self._lines(self._random.choice((1, 1, 2, 3)), self._argument)
        self._memories = {self._scope[name].untyped_storage().data_ptr() for name in self._tensors}
        statements = self._lines(self._random.randint(3, 9), self._statement)
        count = min(len(self._tensors), self._random.randint(1, 4))
        results = dict.fromkeys([*self._random.sample(self._tensors, count), self._tensors[-1]])
        if self._random.random() < 0.9:
            statements = _needed(statements, results)
        if is_broken:
            statements.insert(self._random.randrange(1, len(statements) + 1) if statements else 0, BREAK)
        return RandomProgram(tuple(arguments), tuple(statements), tuple(results))

    def _lines(self, count: int, draw: Callable[[], str]) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            line = draw()
            try:
                exec(line, self._scope)
            except (RuntimeError, IndexError, ValueError, TypeError):
                continue
            name = line.split(" = ")[0]
            is_new = name.isidentifier()
            if is_new and self._scope[name].numel() > MOST_ELEMENTS:
                continue
            found.append(line)
            if is_new:
                self._tensors.append(name)
        return found

    def _new(self, expression: str) -> str:
        return f"{self._prefix}t{len(self._tensors)} = {expression}"

    def _argument(self) -> str:
        drawn = self._random
        if self._tensors and self._shares:
            return self._new(self._view(drawn.choice(self._tensors)))
        shape = drawn.choice(((4,), (3, 4), (2, 3), (2, 3, 2), (1, 5), ()))
        count = 2 + 2 * torch.Size(shape).numel()
        memory = f"torch.arange({count}{drawn.choice(('.', '.', '.', ''))})"
        memory += ".to(torch.complex64)" if drawn.random() < 0.06 else ""
        dense = f"{memory}[{drawn.choice((0, 0, 2))}:][:{torch.Size(shape).numel()}].view({shape})"
        return self._new(dense + drawn.choice(("", "", "", ".mT" if len(shape) > 1 else "[::2]" if shape else "")))

    def _statement(self) -> str:
        name = self._random.choice(self._tensors[-6:])
        kind = self._random.random()
        if kind < 0.45 or (kind < 0.75 and torch._debug_has_internal_overlap(self._scope[name])):
            return self._new(self._view(name))
        return self._write(name) if kind < 0.75 else self._new(self._fresh(name))

    def _axis(self, name: str) -> int:
        rank = self._scope[name].dim()
        return self._random.randrange(-rank, rank) if rank else 0

    def _adds_exactly(self, name: str) -> bool:
        """Whether sums are the same in any order."""
        value = self._scope[name]
        parts = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        return bool(((parts == parts.round()) & (parts.abs() < 1 << 20)).all()) if parts.is_floating_point() else True

    @property
    def _has_complex(self) -> bool:
        """PyTorch's own zeros of complex numbers have signs by their place in memory: no bits of them are looked at."""
        return any(self._scope[name].is_complex() for name in self._tensors)

    def _slice(self) -> str:
        drawn = self._random
        ends = (drawn.choice(("", "0", "1", "2", "-2")), drawn.choice(("", "2", "3", "-1")), drawn.choice(("", "2")))
        return ":".join(ends)

    def _index(self, name: str) -> str:
        drawn, rank = self._random, self._scope[name].dim()
        each = [drawn.choice((":", self._slice(), "0", "-1", "None")) for _ in range(drawn.randint(1, max(rank, 1)))]
        return ", ".join([*each, *drawn.choice(((), (), ("...",)))])

    def _view(self, name: str) -> str:
        drawn, tensor = self._random, self._scope[name]
        axis, other, shape = self._axis(name), self._axis(name), tuple(tensor.shape)
        order = drawn.sample(range(tensor.dim()), tensor.dim())
        calls = [
            *("view(-1)", "reshape(-1)", "flatten()", "squeeze()", "detach()", f"unsqueeze({axis})", "mT", "t()"),
            *(f"transpose({axis}, {other})", f"permute({order})", f"movedim({axis}, {other})", f"view({shape[::-1]})"),
            *(
                f"narrow({axis}, {drawn.randrange(3)}, {drawn.randrange(4)})",
                f"select({axis}, {drawn.randrange(-2, 2)})",
            ),
            *(f"unbind({axis})[{drawn.randrange(-1, 2)}]", f"split({drawn.randint(1, 3)}, {axis})[-1]"),
            *(f"chunk(2, {axis})[{drawn.randrange(2)}]", f"unfold({axis}, 2, {drawn.randint(1, 2)})", "diagonal()"),
            *(
                f"diagonal({drawn.randrange(-1, 2)})",
                f"expand({(2, *shape)})",
                f"expand_as({drawn.choice(self._tensors)})",
            ),
            *(() if self._has_complex else ("view(torch.int32)", "view(torch.int16)")),
            *("view(torch.float32)", "real", "imag", "conj()", "swapdims(0, -1)"),
            *(f"tensor_split(2, {axis})[{drawn.randrange(2)}]", "view_as(torch.ones(6))", "unflatten(0, (2, -1))"),
        ]
        if drawn.random() < 0.3:
            return f"{name}[{self._index(name)}]"
        if tensor.is_complex() and drawn.random() < 0.3:
            return f"torch.{drawn.choice(('real', 'imag', 'view_as_real'))}({name})"
        return f"{name}.{drawn.choice(calls)}"

    def _write(self, name: str) -> str:
        drawn = self._random
        other, axis = drawn.choice(self._tensors), self._axis(name)
        number = drawn.choice((-3, -1, 0, 2, 5))
        return drawn.choice(
            (
                f"{name}.{drawn.choice(('add_', 'sub_', 'mul_', 'fill_'))}({number})",
                f"{name}.{drawn.choice(('zero_', 'neg_', 'abs_', 'relu_'))}()",
                f"{name}.{drawn.choice(('copy_', 'add_', 'sub_'))}({other})",
                f"{name}.{drawn.choice(('clamp_(-20, 20)', 'nan_to_num_(0).remainder_(7)'))}",
                f"{name}.masked_fill_({name} > {number}, {number})",
                f"{name}[{self._index(name)}] = {number}",
                f"{name}[{self._index(name)}] = {other}",
                f"{name}[{self._index(name)}] += {number}",
                f"{name}[{name}.unsqueeze(0)[0] > {number}] = {number}"
                if self._scope[name].dim()
                else f"{name}.add_(1)",
                f"{name}.index_fill_({axis}, {name}.new_zeros(1, dtype=torch.int64), {number})",
                f"{name}.{self._turned(name)}",
                f"torch.add({name}, {number}, out={name})",
                f"{name}.swapaxes(0, -1).mul_({number})",
            )
        )

    def _turned(self, name: str) -> str:
        """Another shape in place; of arguments PyTorch's wrappers lose views of them."""
        is_argument = self._scope[name].untyped_storage().data_ptr() in self._memories
        return (
            "neg_()"
            if is_argument
            else self._random.choice(("t_()", "unsqueeze_(0)", "squeeze_()", "transpose_(0, 1)"))
        )

    def _fresh(self, name: str) -> str:
        drawn = self._random
        other, axis = drawn.choice(self._tensors), self._axis(name)
        return drawn.choice(
            (
                f"{name} + {drawn.choice((1, 2))}",
                f"{name} * 2",
                f"{name} - {other}",
                f"{name}.clone()",
                f"{name}.contiguous()",
                f"{name}.{drawn.choice(('abs()', 'neg()', 'flip(0)', 'roll(1, 0)', 'repeat(2, 1)', 'relu()'))}",
                f"{name}.sum({axis})" if self._adds_exactly(name) else f"{name} - 1",
                f"torch.cat([{name}, {other}], {axis})",
                f"torch.stack([{name}, {name}], {axis})",
                f"torch.where({name} > 1, {name}, {other})",
                f"torch.{drawn.choice(('zeros_like', 'ones_like', 'empty_like'))}({name}).copy_({name})",
                f"{name}.to({drawn.choice(('torch.int64', 'torch.float32', 'torch.float64'))})",
                f"{name}.new_ones((2, 3))",
                f"{name}.clone().as_strided((2, 2), {drawn.choice(((1, 2), (2, 1)))}, {drawn.randint(0, 1)})",
                f"{name}.new_zeros(6)",
            )
        )


def _is_refused(program: RandomProgram) -> bool:
    """Whether a part of it writes to tensors that come from outside of it and lie in one memory as different types.

    PyTorch's wrappers refuse that, and say so.
    """
    scope: dict[str, Any] = {"torch": torch}
    exec("\n".join(program.arguments), scope)
    for lines in program.parts:
        text = "\n".join(lines)
        given = [scope[name] for name in {*re.findall(r"\w+", text)} & scope.keys() if name != "torch"]
        versions = [each._version for each in given]
        exec(text, scope)
        types: dict[int, set[torch.dtype]] = {}
        for each in given:
            types.setdefault(each.untyped_storage().data_ptr(), set()).add(each.dtype)
        for each, version in zip(given, versions, strict=True):
            if each._version > version and len(types[each.untyped_storage().data_ptr()]) > 1:
                return True
    return False


def _needed(statements: Sequence[str], results: Iterable[str]) -> list[str]:
    """The statements but those whose tensor nothing reads: a sixth, on which tracing only spends time."""
    found: list[str] = []
    read = {*results}
    for line in reversed(statements):
        name, _, expression = line.partition(" = ")
        if name in read or not name.isidentifier():
            found.append(line)
            read |= {*re.findall(r"\w+", line if not name.isidentifier() else expression)}
    return found[::-1]


# ---- running


@dataclass(frozen=True)
class Bundle:
    """Programs as one function."""

    programs: tuple[RandomProgram, ...]

    def function(self) -> Callable[..., Any]:
        """The function of all arguments; it gives the results of all programs.

        One break serves all programs: Dynamo takes ten times as long for one each.
        """
        names = [line.split(" = ")[0] for program in self.programs for line in program.arguments]
        parts = [program.parts for program in self.programs]
        lines = [line for before, _ in parts for line in before]
        after = [line for _, rest in parts for line in rest]
        lines += after and [BREAK, *after]
        results = ", ".join(name for program in self.programs for name in program.results)
        text = "\n    ".join([f"def function({', '.join(names)}):", *lines, f"return ({results},)"])
        scope: dict[str, Any] = {"torch": torch}
        exec(compile(text, TEXT, "exec"), scope)
        linecache.cache[TEXT] = len(text), None, text.splitlines(keepends=True), TEXT
        return scope["function"]  # type: ignore[no-any-return]

    def arguments(self) -> list[list[torch.Tensor]]:
        """New arguments for each program."""
        found: list[list[torch.Tensor]] = []
        for program in self.programs:
            scope: dict[str, Any] = {"torch": torch}
            exec("\n".join(program.arguments), scope)
            found.append([scope[line.split(" = ")[0]] for line in program.arguments])
        return found


class _Module(torch.nn.Module):
    """A function of tensors as Dynamo hands one over, without the graph of what it does, which PyTorch would walk."""

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        super().__init__()
        self.forward = function
        self.graph = torch.fx.Graph()
        self.graph.output(tuple([self.graph.placeholder(f"argument{index}") for index in range(count)]))


Backend = Callable[[Any, Sequence[Any]], Any]


def _of_pytorch(module: Any, examples: Sequence[Any]) -> Any:
    """What the backend is given, run as it is."""
    compiler = aot_autograd(fw_compiler=_as_traced, keep_inference_input_mutations=True)
    return compiler(module, examples)


def _as_traced(graph: Any, _: Any) -> Any:
    """Runs a graph. Its results have to lie in memory as tracing has it, which is all that a compiler knows of them."""

    def run(*arguments: Any) -> Any:
        results = graph.forward(*arguments)
        for node, result in zip(graph.graph.output_node().args[0], results, strict=True):
            if isinstance(result, torch.Tensor) and _strides(node.meta["val"]) != _strides(result):
                raise RuntimeError(f"PyTorch's tracing takes {node} for a tensor of other strides")
        return results

    return make_boxed_func(run)


@dataclass(frozen=True)
class Way:
    """How graphs are made: by Dynamo where there are breaks, with symbolic sizes or without."""

    is_broken: bool = False
    is_dynamic: bool = False

    @classmethod
    def of(cls, seed: int, broken: int) -> "Way":
        """Dynamo makes the graphs of `broken` seeds in a hundred, of every second one for all sizes."""
        is_broken = seed % 100 < broken
        return cls(is_broken, is_broken and seed % 2 == 1)


def _compiled(bundle: Bundle, flat: Sequence[torch.Tensor], make: Backend, way: Way) -> Callable[..., Any]:
    """The function through Dynamo, or traced as it is and handed to a backend."""
    if way.is_broken:
        torch._dynamo.reset()
        return torch.compile(bundle.function(), backend=make, dynamic=way.is_dynamic)
    compiled: Callable[..., Any] = make(_Module(bundle.function(), len(flat)), list(flat))
    return compiled


def differences(bundle: Bundle, make: Backend, way: Way) -> dict[int, str]:
    """What is not as in eager PyTorch, by program."""
    compiled: Callable[..., Any] | None = None
    found: dict[int, str] = {}
    eager = bundle.function()
    for _ in range(2):  # also what a call leaves behind
        given, expected = bundle.arguments(), bundle.arguments()
        flat = [each for listed in given for each in listed]
        compiled = compiled or _compiled(bundle, flat, make, way)
        results = iter(compiled(*flat))
        wanted = iter(eager(*[each for listed in expected for each in listed]))
        for index, (one, other) in enumerate(zip(given, expected, strict=True)):
            count = len(bundle.programs[index].results)
            problem = _difference([*one, *islice(results, count)], [*other, *islice(wanted, count)])
            if problem:
                found.setdefault(index, problem)
    return found


def _difference(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    problem = _unlike(found, wanted)
    if problem:
        return problem
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        try:
            other.add_(1)
        except RuntimeError:  # elements that share memory
            continue
        one.add_(1)
        problem = _unlike(found, wanted)
        if problem:
            return f"after a write to tensor {index}: {problem}"
    return ""


def _unlike(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if one.dtype is not other.dtype or one.shape != other.shape:
            return f"tensor {index} is {one.dtype}{tuple(one.shape)}, not {other.dtype}{tuple(other.shape)}"
        if _strides(one) != _strides(other):
            return f"tensor {index} has strides {one.stride()}, not {other.stride()}"
        if not torch.allclose(one, other, rtol=0, atol=0, equal_nan=True):
            return f"tensor {index} is {one.tolist()}, not {other.tolist()}"
    return ""


def _strides(tensor: torch.Tensor) -> list[int]:
    """The strides of axes that have any."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1 and tensor.numel()]


def problems_of(programs: tuple[RandomProgram, ...], make: Backend, way: Way) -> dict[int, str]:
    """What is wrong with some programs in one function, by program; where that raises, they run in parts.

    An error of parts together that none of them raises alone is the first program's.
    """
    try:
        return differences(Bundle(programs), make, way)
    except Exception as error:  # noqa: BLE001  # PyTorch raises errors of many kinds
        text = f"{type(error).__name__}: {str(error)[:400]}"
        named = _named(error)
    if len(programs) == 1:
        return {0: text}
    found: dict[int, str] = {}
    for part in _parts(programs, named):
        problems = problems_of(tuple(programs[index] for index in part), make, way)
        found |= {part[index]: problem for index, problem in problems.items()}
    return found or {0: text}


def _named(error: BaseException) -> set[str]:
    """The programs, by their prefixes, whose lines an error was raised in or which it names."""
    lines = [
        linecache.getline(TEXT, line)
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_code.co_filename == TEXT
    ]
    return set(re.findall(r"\b(p\d+_)t\d", "\n".join([str(error), *lines])))


def _parts(programs: tuple[RandomProgram, ...], named: set[str]) -> tuple[Sequence[int], Sequence[int]]:
    """The programs that are named and the others, or halves."""
    count = len(programs)
    found = [index for index in range(count) if programs[index].arguments[0].split("t")[0] in named]
    first = found if 0 < len(found) < count else range(count // 2)
    return first, [index for index in range(count) if index not in first]


def tried(seed: int, executor: str, tally: Counter[str], *, broken: int = 4, count: int = BUNDLE) -> dict[int, str]:
    """Runs the bundle of a seed; gives what differed, by program, with its text."""
    make = partial(backend, options={"executor": executor} | ({"threads": 1} if executor == "ort" else {}))
    way, shares = Way.of(seed, broken), seed % 20 == SHARING
    draws = [Draw(seed * BUNDLE + index, f"p{index}_", shares=shares) for index in range(count)]
    programs = tuple(draw.program(is_broken=way.is_broken) for draw in draws)
    tally["programs"] += count
    tally["with breaks"] += count * way.is_broken
    tally["of symbolic sizes"] += count * way.is_dynamic
    tally["with arguments in one memory"] += count * shares
    problems: dict[int, str] = {}
    size = SMALL_BUNDLE if shares else count
    raised = [(first, problems_of(programs[first : first + size], make, way)) for first in range(0, count, size)]
    for index, found in ((first + place, problem) for first, each in raised for place, problem in each.items()):
        alone = (programs[index],)
        problem, tried_again, place = problems_of(alone, make, way).get(0), alone, 0
        if not problem:
            first = index - index % size
            problem, tried_again, place = f"beside others: {found}", programs[first : first + size], index - first
        if NOT_TAKEN in problem or _is_of_pytorch(problem, tried_again, place, way):
            tally["not by PyTorch either"] += 1
        else:
            problems[index] = f"{problem}\n{programs[index]}"
    tally["differences"] += len(problems)
    return problems


def _is_of_pytorch(problem: str, programs: tuple[RandomProgram, ...], place: int, way: Way) -> bool:
    """Whether PyTorch's own graph fails or differs too: for the program there, beside the others or alone.

    An error of parts together may be another program's there: the same error is PyTorch's, whichever program has it.
    """
    found = problems_of(programs, _of_pytorch, way)
    alone = len(programs) > 1 and place not in found and problems_of((programs[place],), _of_pytorch, way)
    error = _error(problem)
    return place in found or bool(alone) or (bool(error) and error in map(_error, found.values()))


def _error(problem: str) -> str:
    """What a backend raised, its first line; nothing where it raised nothing."""
    return problem.partition("raised:\n")[2].partition("\n")[0]


def _begin() -> None:
    """Takes from a process what only costs time: threads, and collections of what never goes away."""
    torch.set_num_threads(1)
    torch._dynamo.config.run_gc_after_compile = False
    gc.disable()  # a quarter of the time: tracing makes many objects
    gc.collect()
    gc.freeze()


def _chunk(seeds: Sequence[int], *, executor: str, broken: int) -> tuple[int, Counter[str], list[str]]:
    """Runs the bundles of some seeds; what differed, with its seed."""
    tally: Counter[str] = Counter()
    with torch.no_grad():
        problems = [
            f"seed {seed}, program {index}: {problem}"
            for seed in seeds
            for index, problem in tried(seed, executor, tally, broken=broken).items()
        ]
    gc.collect()
    return seeds[-1], tally, problems


def _as_done(
    pool: ProcessPoolExecutor, work: Callable[[Sequence[int]], Any], chunks: Iterator[Sequence[int]], ahead: int
) -> Iterator[Any]:
    """What the work gives for the chunks, as each is done, and None after a while without; `ahead` wait at a time."""
    running: set[Future[Any]] = {pool.submit(work, chunk) for _, chunk in zip(range(ahead), chunks, strict=False)}
    while running:
        done, running = wait(running, timeout=SECONDS, return_when=FIRST_COMPLETED)
        running |= {pool.submit(work, chunk) for _, chunk in zip(done, chunks, strict=False)}
        yield from [each.result() for each in done] or [None]


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments().parse_args(argv)
    begin = due = time.monotonic()
    end = begin + 60 * options.minutes if options.minutes is not None else float("inf")
    seed, last = options.seed, options.seed + -(-options.programs // BUNDLE)
    chunks = (range(first, min(first + CHUNK, last)) for first in range(options.seed, last, CHUNK))
    work = partial(_chunk, executor=options.executor, broken=options.broken)
    tally: Counter[str] = Counter()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn"), initializer=_begin) as pool:
        for each in _as_done(pool, work, chunks, 2 * options.processes):
            if each is not None:
                seed, done, problems = each
                tally += done
                print("\n".join(problems), end="\n" if problems else "", flush=True)
            now = time.monotonic()
            is_end = now > end
            if is_end or now > due:
                print(f"at seed {seed}, {now - begin:.0f} s: {dict(tally)}", flush=True)
                due = now + SECONDS
            if is_end:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    print(f"on {options.executor}, {time.monotonic() - begin:.0f} s: {dict(tally)}", flush=True)
    return 1 if tally["differences"] else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Fuzzing of views and writes.")
    parser.add_argument("--programs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed, one for each bundle")
    parser.add_argument("--broken", type=int, default=4, help="of how many in a hundred Dynamo makes the graphs")
    parser.add_argument("--executor", default="eager")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="stop after this time (default: when all programs are done)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
