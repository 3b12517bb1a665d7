"""What the generator reaches: every native op, and for each operand every dtype that the op's signature admits.

`python -m tests.strategies.coverage [COUNT]` prints the report for COUNT seeded graphs.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from capgraph.ir.analysis import nested_graphs
from capgraph.ir.graph import Graph, Node
from capgraph.ir.ops import FAMILIES, OPS
from capgraph.ir.types import DType, TensorType

from tests.strategies.draw import Subject
from tests.strategies.graphs import random_graph, subjects

EXCEPTIONS: dict[Subject, str] = {}
"""What the generator does not reach, and why."""


@dataclass
class Coverage:
    """Counts of the nodes of each op and of the dtypes at each of its operands."""

    nodes: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[tuple[str, str, DType]] = field(default_factory=Counter)

    def add(self, graph: Graph) -> None:
        """Counts every node of `graph` and of its regions."""
        for body in nested_graphs(graph):
            for node in body.nodes:
                self._add_node(node)

    def _add_node(self, node: Node) -> None:
        self.nodes[node.op.name] += 1
        for position, value in enumerate(node.inputs):
            if value is not None and isinstance(value.type, TensorType):
                self.dtypes[node.op.name, node.op.operand_at(position).name, value.type.dtype] += 1

    def missing(self) -> list[Subject]:
        """The ops, and the dtypes at operands, that no node had, exceptions aside."""
        return [subject for subject in subjects() if not self._has(subject) and subject not in EXCEPTIONS]

    def _has(self, subject: Subject) -> bool:
        if subject.dtype is None:
            return self.nodes[subject.op] > 0
        return self.dtypes[subject.op, subject.operand, subject.dtype] > 0

    def report(self) -> str:
        """An aligned table: for each op its nodes, and for each operand how many of the admitted dtypes it had."""
        rows = [("family", "op", "nodes", "dtypes reached / admitted at each operand")]
        for family, names in FAMILIES.items():
            rows += [(family, name, str(self.nodes[name]), self._operands(name)) for name in names]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip() for row in rows
        ]
        return "\n".join(lines)

    def _operands(self, name: str) -> str:
        reached = (
            (operand, sum(self.dtypes[name, operand.name, dtype] > 0 for dtype in operand.dtypes))
            for operand in OPS[name].operands
        )
        return ", ".join(f"{operand.name} {count}/{len(operand.dtypes)}" for operand, count in reached)


def coverage_of(graphs: Iterable[Graph]) -> Coverage:
    """What these graphs reach."""
    coverage = Coverage()
    for graph in graphs:
        coverage.add(graph)
    return coverage


def covering_graphs(count: int) -> Iterable[Graph]:
    """`count` seeded graphs; their subjects go through every op with every dtype of every operand, again and again."""
    every = list(subjects())
    for seed in range(count):
        yield random_graph(seed, subject=every[seed % len(every)])


if __name__ == "__main__":
    found = coverage_of(covering_graphs(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000))
    print(found.report())
    print(f"\nnot reached: {', '.join(map(str, found.missing())) or 'nothing'}")
