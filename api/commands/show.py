"""`capgraph show`: a model as text, or what it is made of."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ..tables import json_text
from .base import Command

if TYPE_CHECKING:
    from ..ir.graph import Graph


def configure(parser: ArgumentParser) -> None:
    """The arguments of `capgraph show`."""
    parser.add_argument("model", metavar="MODEL", type=Path, help="an ONNX file")
    parser.add_argument(
        "--stats", action="store_true", help="counts, parameters, FLOPs and bytes by op instead of the text"
    )
    parser.add_argument("--origins", action="store_true", help="say where each node comes from")


def run(arguments: Namespace) -> None:
    """Writes the text form or the statistics of a model."""
    from ..sources import load_model

    graph = load_model(arguments.model).graph
    if arguments.stats:
        _show_statistics(graph, as_json=arguments.json)
    else:
        _show_text(graph, origins=arguments.origins, as_json=arguments.json)


def _show_text(graph: "Graph", *, origins: bool, as_json: bool) -> None:
    from ..ir.printer import print_graph

    text = print_graph(graph, origins=origins)
    print(
        json_text({"name": graph.name, "nodes": len(graph), "text": text}) if as_json else text,
        end="\n" if as_json else "",
    )


def _show_statistics(graph: "Graph", *, as_json: bool) -> None:
    raise NotImplementedError


COMMAND = Command("show", "Show a model in text form, or what it is made of.", configure, run)
