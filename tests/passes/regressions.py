"""Graphs on which a pass once went wrong, as text files in `tests/passes/regressions/`, replayed by every test run."""

import re
from pathlib import Path

from capgraph.ir.graph import Graph
from capgraph.ir.text.dense import elements_text
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import constants_of, print_graph

FOLDER = Path(__file__).parent / "regressions"


def text_of(graph: Graph, *remarks: str) -> str:
    """The whole graph as text, large constants included, with remarks before it."""
    text = print_graph(graph, origins=True)
    for digest, constant in constants_of(graph).items():
        text = text.replace(f", #{digest}>", f": {elements_text(constant)}>")
    lines = [line for remark in remarks for line in remark.splitlines()]
    return "".join(f"// {line}\n" for line in lines) + text


def keep(graph: Graph, name: str, *remarks: str) -> Path:
    """Writes the graph under a name that says what it shows; characters that do not belong into file names go."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.txt"
    path.write_text(text_of(graph, *remarks))
    return path


def regressions() -> dict[str, Graph]:
    """Every kept graph by the name of its file."""
    return {path.stem: parse(path.read_text()) for path in sorted(FOLDER.glob("*.txt"))}
