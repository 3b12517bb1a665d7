"""Writes docs/reference/: the public API, passes, options and errors, as the code states them.

python docs/generate_reference.py
"""

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import capgraph
from capgraph.cli import make_parser
from capgraph.executors.replay.options import CaptureOptions
from capgraph.ir import errors
from capgraph.passes.catalog import PASSES, launch_pipeline, level_pipeline
from capgraph.passes.framework.base import Pass

FOLDER = Path(__file__).parent / "reference"
_MADE = "This page is made by `python docs/generate_reference.py`"


def page(name: str) -> str:
    """The text of a generated page, one of `PAGES`."""
    return PAGES[name]().rstrip() + "\n"


# ---- the public API


def _api() -> str:
    public = {name: getattr(capgraph, name) for name in capgraph.__all__}
    functions = [_function(name, each, "##") for name, each in public.items() if inspect.isfunction(each)]
    classes = [_class(name, each) for name, each in public.items() if inspect.isclass(each) and not _is_error(each)]
    return "\n\n".join(
        [
            "# The public API",
            f"{_MADE} from `capgraph.__all__`. What is not named here may change in any version.\n"
            "Errors and warnings have [their own page](errors.md), and options [theirs](options.md).",
            *functions,
            *classes,
        ]
    )


def _is_error(each: type) -> bool:
    return issubclass(each, Exception)


def _function(name: str, function: Any, mark: str) -> str:
    return f"{mark} {name}\n\n```python\n{_signature(function, name.rpartition('.')[2])}\n```\n\n{_doc(function)}"


def _signature(function: Any, name: str) -> str:
    """The head of a function as its source has it, one parameter a line where there are many."""
    (head,) = ast.parse(dedent(inspect.getsource(function))).body
    assert isinstance(head, ast.FunctionDef)  # everything public is written with `def`
    returns = f" -> {ast.unparse(head.returns)}" if head.returns else ""
    short = f"def {name}({ast.unparse(head.args)}){returns}"
    if len(short) <= 120:
        return short
    parameters = "".join(f"    {each},\n" for each in _parameters(head.args))
    return f"def {name}(\n{parameters}){returns}"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(plain) - len(arguments.defaults))
    yield from (_parameter(*each) for each in zip(plain, [*missing, *arguments.defaults], strict=True))
    if arguments.vararg or arguments.kwonlyargs:
        yield f"*{ast.unparse(arguments.vararg)}" if arguments.vararg else "*"
    yield from (_parameter(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")


def _class(name: str, each: type) -> str:
    methods = [
        _function(f"{name}.{key}", inspect.unwrap(getattr(each, key)), "###")
        for key, member in vars(each).items()
        if not key.startswith("_") and _is_method(member) and inspect.getdoc(member)
    ]
    properties = [
        f"* `{name}.{key}`: {_line(inspect.getdoc(member) or '')}"
        for key, member in vars(each).items()
        if isinstance(member, property) and not key.startswith("_")
    ]
    return "\n\n".join([f"## {name}", _doc(each), *(["\n".join(properties)] if properties else []), *methods])


def _is_method(member: Any) -> bool:
    return inspect.isfunction(member) or isinstance(member, classmethod)


# ---- passes


def _passes() -> str:
    stages = "\n".join(row for level in range(1, 4) for row in _stages(level))
    rows = "\n".join(
        f"| [{name}](#{name}) | {_level(name)} | {each.exactness.value} |" for name, each in PASSES.items()
    )
    introduction = (
        f"{_MADE} from the catalog.\n"
        "A level runs the passes of its pipeline; `--passes` names them one by one.\n"
        "GPU: from that level on, where kernels are launched one by one. -: no level has it; a device's plans may.\n"
        "Exact passes move not a bit of any result, rounding ones may re-associate within the dtype."
    )
    sections = [_pass(name, each) for name, each in PASSES.items()]
    return "\n\n".join(
        [
            "# Passes",
            introduction,
            f"| pass | level | exactness |\n|---|---|---|\n{rows}",
            "## Pipelines",
            "A stage repeats until none of its passes changes anything.",
            f"| level | stage | passes |\n|---|---|---|\n{stages}",
            *sections,
        ]
    )


def _stages(level: int) -> Iterator[str]:
    for number, stage in enumerate(level_pipeline(level).stages, 1):
        yield f"| {level} | {number} | {', '.join(map(str, stage))} |"


def _level(name: str) -> str:
    for pipelines, where in ((level_pipeline, ""), (launch_pipeline, ", GPU")):
        for level in range(4):
            if name in {each.name for each in pipelines(level).passes}:
                return f"{level}{where}"
    return "-"


def _pass(name: str, each: type[Pass]) -> str:
    options = [f"* `{field.name}` = {_default(field)}" for field in fields(each)]
    listed = "\n\nOptions:\n\n" + "\n".join(options) if options else ""
    module = sys.modules[each.__module__]
    shares = sum(
        isinstance(found, type) and found.__module__ == each.__module__ and issubclass(found, Pass)
        for found in vars(module).values()
    )
    return f"## {name}\n\n{_doc(each if shares > 1 else module)}{listed}"


# ---- options


def _options() -> str:
    parser = make_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return "\n\n".join(
        [
            "# Options",
            f"{_MADE}.",
            "## capgraph.optimize",
            "[optimize](api.md#optimize) explains each; torch.compile takes those that do not speak of the model.",
            _optimize(),
            "## capture",
            "`capture` is a `capgraph.CaptureOptions`, or a dict of its fields.",
            _capture(),
            *(_command(name, command) for name, command in commands.choices.items()),
            "## Environment",
            "| variable | meaning |\n|---|---|\n"
            "| `CAPGRAPH_CACHE` | the folder of compiled kernels and of the tuning cache |",
        ]
    )


def _optimize() -> str:
    (head,) = ast.parse(dedent(inspect.getsource(capgraph.optimize))).body
    assert isinstance(head, ast.FunctionDef)
    pairs = zip(head.args.kwonlyargs, head.args.kw_defaults, strict=True)
    rows = "\n".join(f"| `{option.arg}` | {_code(option.annotation)} | {_code(default)} |" for option, default in pairs)
    return f"| option | type | default |\n|---|---|---|\n{rows}"


def _capture() -> str:
    (body,) = ast.parse(dedent(inspect.getsource(CaptureOptions))).body
    assert isinstance(body, ast.ClassDef)
    meanings = dict(_documented(body.body))
    rows = "\n".join(
        f"| `{field.name}` | {_default(field)} | {_cell(meanings[field.name])} |"
        for field in fields(CaptureOptions)
        if field.name in meanings
    )
    return f"| option | default | meaning |\n|---|---|---|\n{rows}"


def _documented(statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The fields of a class that a string explains right below them."""
    for statement, below in pairwise(statements):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            yield statement.target.id, inspect.cleandoc(str(below.value.value))


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    rows = "\n".join(
        f"| `{_spelled(action)}` | {_cell(action.help or '')} |"
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    )
    return (
        f"## capgraph {name}\n\n{(parser.description or '').rstrip('.')}.\n\n| argument | meaning |\n|---|---|\n{rows}"
    )


def _spelled(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f"{action.metavar or action.dest.upper()}"
    return " ".join([", ".join(action.option_strings), value]).strip()


# ---- errors


def _errors() -> str:
    found = [each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__]
    rows = "\n".join(
        f"| `{each.__name__}` | {', '.join(f'`{base.__name__}`' for base in each.__bases__)} | {_cell(_doc(each))} |"
        for each in (*found, capgraph.CapgraphWarning)
    )
    return "\n\n".join(
        [
            "# Errors",
            f"{_MADE} from `ir/errors.py`.",
            inspect.cleandoc(errors.__doc__ or ""),
            f"| error | derives from | meaning |\n|---|---|---|\n{rows}",
        ]
    )


# ---- text


def _doc(each: Any) -> str:
    return inspect.cleandoc(each.__doc__ or "")


def _default(field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return _value(field.default)
    return "must be given" if field.default_factory is MISSING else "none"


def _value(default: Any) -> str:
    return f'`"{default.value}"`' if hasattr(default, "value") else f"`{default}`"


def _code(node: ast.expr | None) -> str:
    return f"`{_cell(ast.unparse(node))}`" if node else "must be given"


def _line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", _line(text)).replace("%%", "%")


PAGES: dict[str, Callable[[], str]] = {
    "api.md": _api,
    "passes.md": _passes,
    "options.md": _options,
    "errors.md": _errors,
}
"""What makes the text of each generated page."""

if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).write_text(page(name))
