"""Reads the code blocks of a page, and runs them one after another, as a reader would."""

import doctest
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from capgraph.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the page before its text."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """The code blocks of a page, in order."""
    content = page.read_text()
    for found in _BLOCK.finditer(content):
        yield Block(found[1], found[2], content.count("\n", 0, found.start(2)))


def source_of(page: Path) -> str:
    """The Python code of a page: what its sessions type and what its listings say."""
    parser = doctest.DocTestParser()
    parts = {
        "pycon": lambda text: "".join(example.source for example in parser.get_examples(text)),
        "python": lambda text: text,
    }
    return "\n".join(parts[block.language](block.text) for block in blocks(page) if block.language in parts)


def failures(page: Path) -> list[str]:
    """What the sessions (`pycon`) and commands (`console`) of a page do otherwise than the page shows."""
    parser, names, found = doctest.DocTestParser(), dict[str, object](), StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=_FLAGS)
    for block in blocks(page):
        if block.language == "pycon":
            # A session ends with its block: doctest itself wants an empty line after what is expected.
            test = parser.get_doctest(block.text, names, page.name, str(page), block.line)
            runner.run(test, out=found.write, clear_globs=False)
            names = test.globs
        elif block.language == "console":
            found.writelines(_commands(block.text))
    return [found.getvalue()] if found.getvalue() else []


def _commands(text: str) -> Iterator[str]:
    for command, expected in _COMMAND.findall(text):
        words = shlex.split(command)
        if words[0] == "capgraph":
            printed = StringIO()
            with redirect_stdout(printed), suppress(SystemExit):  # argparse ends so after --help
                main(words[1:])
            if not doctest.OutputChecker().check_output(expected, printed.getvalue(), _FLAGS):
                yield f"$ {command}\nexpected:\n{expected}\nprinted:\n{printed.getvalue()}"
        elif words[:2] == ["pip", "install"]:
            yield from (f"pip: there is no extra {extra}\n" for extra in _unknown_extras(words[2]))
        elif words[0] == "make":
            if not re.search(rf"^{re.escape(words[1])}:", (ROOT / "Makefile").read_text(), re.MULTILINE):
                yield f"make: there is no target {words[1]}\n"
        else:
            yield f"nobody checks the command {command}\n"


def _unknown_extras(requirement: str) -> set[str]:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return {extra for listed in re.findall(r"\[(.*)\]", requirement) for extra in listed.split(",")} - declared.keys()


LAYERS = ("ir", "passes", "executors", "frontends")


def apply_diff(diff: str, to: Path, copied: Sequence[str] = ()) -> list[str]:
    """Applies a page's diff to a copy of the layers that it changes and of the files and folders `copied`, in `to`.

    The package is then whole there; its other layers are links. The paths of the changed files come back. Raises
    `CalledProcessError` when the diff does not fit.
    """
    changed = re.findall(r"^\+\+\+ b/(.*)$", diff, re.MULTILINE)
    for layer in {path.partition("/")[0] for path in changed} - {"tests"}:
        shutil.copytree(ROOT / layer, to / layer, ignore=shutil.ignore_patterns("__pycache__"))
    for path in copied:
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
        copy(ROOT / path, to / path)
    package = to / "capgraph"
    package.mkdir()
    for part in (*(ROOT / "api").iterdir(), *(ROOT / each for each in LAYERS)):
        own = to / part.relative_to(ROOT)
        (package / part.name).symlink_to(own if own.exists() else part)
    (to / "page.diff").write_text(diff)
    subprocess.run(["git", "apply", "page.diff"], cwd=to, check=True)
    return changed
