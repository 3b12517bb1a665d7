"""Pipelines: text, order, budget, dumps, reports, and that a failure leaves the caller's graph as it was."""

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import ClassVar

import pytest
from capgraph.ir.equality import first_difference
from capgraph.ir.errors import CapgraphError, InputError, InternalError, ResourceError, UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.node import write
from capgraph.ir.text.parser import parse
from capgraph.ir.text.printer import print_graph
from capgraph.passes.catalog import pipeline
from capgraph.passes.cleanup.canonicalize import Canonicalize
from capgraph.passes.cleanup.redundancy import Cse, EliminateDeadCode, FoldConstants
from capgraph.passes.framework.base import Pass
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import Samples
from capgraph.passes.framework.pipeline import MAX_ROUNDS, Pipeline, PipelineReport, innermost_first
from capgraph.passes.framework.rewriter import Rewriter

TEXT = """
    graph @main(%x: f32[B, 4]) {
      %a = exp(%x) loc("first")
      %b = exp(%x) loc("second")
      %c = mul(%a, %b)
      %dead = neg(%c)
      %d = relu(%c)
      return %d
    }
"""


@pytest.fixture
def graph() -> Graph:
    return parse(dedent(TEXT))


@dataclass(frozen=True)
class Replace(Pass):
    """Every `old` becomes a `new`."""

    name: ClassVar[str] = "replace"
    old: str = "exp"
    new: str = "tanh"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.nodes:
            if node.op.name == self.old and rewriter.may_rewrite(f"{self.old}-as-{self.new}", node):
                rewriter.replace(node, rewriter.op(self.new, node.operands[0]))


@dataclass(frozen=True)
class FailsHalfWay(Pass):
    """Edits the first node and fails at the second."""

    name: ClassVar[str] = "fails-half-way"
    error: str = "bug"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for count, node in enumerate(list(graph.nodes)):
            rewriter.may_rewrite("edit", node)
            if count == 0:
                rewriter.replace(node, rewriter.op("tanh", node.operands[0]))
            if count == 1 and self.error == "bug":
                raise ZeroDivisionError("a bug")
            if count == 1:
                rewriter.erase(node)  # it is in use: the graph refuses


# ---- text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cse",
        "cse,eliminate-dead-code",
        "cse;eliminate-dead-code",
        "fold-constants{limit=64},cse;cse{max_constant_bytes=3}",
    ],
)
def test_text_reads_back(text: str) -> None:
    assert str(pipeline(text)) == text
    assert pipeline(str(pipeline(text))) == pipeline(text)


def test_blanks_do_not_matter() -> None:
    assert pipeline(" fold-constants { limit = 64 } , cse ;; cse ") == pipeline("fold-constants{limit=64},cse;cse")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("csx", "there is no pass csx"),
        ("cse cse", "expected a comma at 'cse'"),
        ("cse{limit=3}", "pass cse has no option limit"),
        ("fold-constants{limit}", "takes int, not ''"),
        ("fold-constants{limit=3", "expected a comma"),
        ("CSE", "cannot read the pipeline at 'CSE'"),
        ("merge-products", "it is called merge-matmuls"),
    ],
)
def test_text_that_makes_no_sense(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        pipeline(text)
    assert caught.value.remedy
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cse,,cse", "a pass without a name in the pipeline 'cse,,cse'"),
        ("cse,", "a pass without a name in the pipeline 'cse,'"),
        ("cse, ;cse", "a pass without a name in the pipeline 'cse, '"),
        (",", "a pass without a name"),
        ("fold-constants{limit=5,limit=6}", "option limit of pass fold-constants is given twice"),
        ("fold-constants{limit=-5}", "option limit=-5 of pass fold-constants is negative"),
    ],
)
def test_text_that_contradicts_itself(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        pipeline(text)
    assert caught.value.remedy


def test_passes_can_be_left_out() -> None:
    made = pipeline("cse,eliminate-dead-code;cse")
    assert str(made.without(["cse"])) == "eliminate-dead-code"
    assert made.without([]) == made
    with pytest.raises(UnsupportedError, match="the pipeline has no pass csx") as caught:
        made.without(["csx"])
    assert caught.value.remedy == "its passes: cse, eliminate-dead-code"


# ---- running


def test_stages_run_until_nothing_changes(graph: Graph) -> None:
    report = Pipeline(((Cse(), EliminateDeadCode()),)).run(graph)
    assert [node.op.name for node in graph.nodes] == ["exp", "mul", "relu"]
    assert [(run.name, run.changed) for run in report.runs] == [
        ("cse", True),
        ("eliminate-dead-code", True),
        ("cse", False),
        ("eliminate-dead-code", False),
    ]


def test_the_report_counts(graph: Graph) -> None:
    report = Pipeline(((Cse(), EliminateDeadCode()),)).run(graph)
    first = report.runs[0]
    assert (first.nodes_before, first.nodes_after, first.rewrites) == (5, 4, {"duplicate": 1})
    assert report.rewrites == 2
    assert report.changed
    assert report.failed is None
    assert report.seconds == sum(run.seconds for run in report.runs) > 0
    totals = {total.name: (total.runs, total.rewrites, total.nodes) for total in report.totals()}
    assert totals == {"cse": (2, 1, -1), "eliminate-dead-code": (2, 1, -1)}


def test_a_pipeline_without_passes(graph: Graph) -> None:
    report = Pipeline(()).run(graph, check="numeric")
    assert (report.runs, report.changed) == ([], False)


@pytest.mark.parametrize("budget", range(4))
def test_the_budget_stops_after_that_many_rewrites(graph: Graph, budget: int) -> None:
    report = Pipeline(((Replace(), Cse(), EliminateDeadCode()),)).run(graph, budget=budget)
    assert report.rewrites == budget
    names = [node.op.name for node in graph.nodes]
    assert names.count("tanh") == min(budget, 2) - (budget > 2)
    assert ("neg" in names) == (budget < 4)


def test_rules_that_undo_each_other_over_passes_are_named(graph: Graph) -> None:
    stage = (Replace(), Replace("tanh", "exp"))
    with pytest.raises(InternalError, match="passes replace, replace still change the graph after 32 rounds"):
        Pipeline((stage,)).run(graph)


def test_a_chain_of_which_each_link_decides_the_next_takes_as_many_rounds_as_it_has_links() -> None:
    """The two sines of a link are duplicates once the `where` before it is gone, and then its own has no choice."""
    lines = ["graph @main(%c: bool[3], %x: f32[3]) {", "%y0 = neg(%x)", "%z0 = neg(%x)"]
    for k in range(MAX_ROUNDS + 8):
        lines += [f"%a{k} = sin(%y{k})", f"%z{k + 1} = sin(%z{k})", f"%y{k + 1} = where(%c, %a{k}, %z{k + 1})"]
    chain = parse("\n".join([*lines, f"return %y{MAX_ROUNDS + 8}", "}"]))
    report = Pipeline(((Cse(), Canonicalize(), EliminateDeadCode()),)).run(chain)
    assert len([run for run in report.runs if run.name == "cse" and run.changed]) > MAX_ROUNDS
    assert len(chain) == 1 + MAX_ROUNDS + 8


def test_regions_come_before_what_is_around_them() -> None:
    nested = parse(
        dedent("""
    graph @main(%c: bool[], %x: f32[4]) {
      %y = if(%c, %x) {then_body = @then, else_body = @else}
      return %y
    }

    graph @then(%a: f32[4]) {
      %true = constant() {value = dense<bool[]: true>}
      %d = if(%true, %a) {then_body = @inner, else_body = @other}
      return %d
    }

    graph @else(%a: f32[4]) {
      %n = neg(%a)
      return %n
    }

    graph @inner(%a: f32[4]) {
      %e = exp(%a)
      %f = exp(%a)
      %s = add(%e, %f)
      return %s
    }

    graph @other(%a: f32[4]) {
      return %a
    }
    """)
    )
    order = innermost_first(nested)
    assert [owner.output.name if owner is not None else None for _, owner in order] == ["y", "y", "y", "y", None]
    assert order[-1][0] is nested
    report = Pipeline(((Cse(),),)).run(nested)
    assert report.runs[0].rewrites == {"duplicate": 1}
    assert report.runs[0].nodes_before == 1 + 2 + 1 + 3 + 0


# ---- failures


@pytest.mark.parametrize(
    ("error", "message"),
    [("bug", "ZeroDivisionError: a bug"), ("refused", "still used")],
)
def test_a_pass_that_fails_is_named_and_leaves_the_graph_alone(graph: Graph, error: str, message: str) -> None:
    before = print_graph(graph, origins=True)
    report = PipelineReport()
    with pytest.raises(InternalError, match=rf"pass fails-half-way failed: .*{message}") as caught:
        Pipeline(((Cse(),), (FailsHalfWay(error=error),))).run(graph, report=report)
    assert caught.value.where is not None
    assert "%" in caught.value.where
    assert print_graph(graph, origins=True) == before
    assert report.failed == FailsHalfWay(error=error)
    assert [run.name for run in report.runs] == ["cse", "cse"]


def test_a_broken_graph_is_found_after_the_pass_that_broke_it(graph: Graph) -> None:
    @dataclass(frozen=True)
    class Breaks(Pass):
        name: ClassVar[str] = "breaks"

        def run(self, graph: Graph, rewriter: Rewriter) -> None:
            for node in graph.nodes:
                if node.op.name == "relu" and rewriter.may_rewrite("break", node):
                    made = rewriter.op("abs", node.operands[0])
                    rewriter.replace(node, made)
                    write(made, "type", graph.inputs[0].tensor.with_shape((1,)))

    before = print_graph(graph)
    with pytest.raises(InternalError, match="pass breaks broke the graph") as caught:
        Pipeline(((Breaks(),),)).run(graph)
    assert "abs" in (caught.value.where or "")
    assert print_graph(graph) == before


def test_numeric_checking_holds_each_pass_to_its_own_promise(graph: Graph) -> None:
    """A rounding-changing pass moves a few bits; the exact one after it must not be blamed for them."""

    @dataclass(frozen=True)
    class Roundabout(Pass):
        """relu(x) becomes relu(x / 3 * 3)."""

        name: ClassVar[str] = "roundabout"
        exactness: ClassVar[Exactness] = Exactness.ROUNDING

        def run(self, graph: Graph, rewriter: Rewriter) -> None:
            for node in graph.nodes:
                if node.op.name == "relu" and rewriter.may_rewrite("roundabout", node):
                    three = rewriter.constant(3.0, node.operands[0].tensor.dtype)
                    third = rewriter.op("div", node.operands[0], three)
                    rewriter.replace(node, rewriter.op("clip", rewriter.op("mul", third, three), None, None))

    samples = Samples.drawn(graph)
    Pipeline(((Roundabout(),), (Cse(), EliminateDeadCode()))).run(graph, check="numeric", samples=samples)
    assert samples.first_difference(graph, Exactness.EXACT)  # some bits did move
    with pytest.raises(InternalError, match="pass replace changed what the graph means"):
        Pipeline(((Replace(),),)).run(graph, check="numeric")


def test_outputs_that_numeric_checking_cannot_judge_are_noted() -> None:
    """Both outputs are behind a logarithm of zero, one of them in part only."""

    @dataclass(frozen=True)
    class Rounds(Replace):
        exactness: ClassVar[Exactness] = Exactness.ROUNDING

    text = """
        graph @main(%x: f32[2], %w: f32[2]) {
          %z = sub(%x, %x)
          %lost = log(%z)
          %part = concat(%lost, %w) {axis = 0}
          %unused = exp(%x)
          return %lost, %part
        }"""
    rounding = Pipeline(((Rounds("exp", "tanh"),),)).run(parse(dedent(text)), check="numeric")
    assert len(rounding.notes) == 1
    assert rounding.notes[0].startswith("output lost is not checked after passes that round: ")
    assert Pipeline(((Cse(), EliminateDeadCode()),)).run(parse(dedent(text)), check="numeric").notes == []
    assert Pipeline(((Rounds("exp", "tanh"),),)).run(parse(dedent(text))).notes == []


def test_checks_that_do_not_exist(graph: Graph) -> None:
    with pytest.raises(UnsupportedError, match="check='fast' is not known"):
        Pipeline(()).run(graph, check="fast")


@dataclass(frozen=True)
class Halve(Pass):
    """A wrong one: every uniform number is drawn from half the range."""

    name: ClassVar[str] = "halve"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in [node for node in graph.nodes if node.op.name == "random_uniform" and node.attrs["high"] == 1]:
            rewriter.at(node)
            rewriter.replace(node, rewriter.node(node.op, (), {**node.attrs, "high": 0.5}).output)


def test_random_graphs_are_checked_numerically() -> None:
    text = """
        graph @main(%x: f32[4]) {
          %u: f32[4] = random_uniform() {shape = [4], dtype = f32}
          %v: f32[4] = random_uniform() {shape = [4], dtype = f32}
          %a: f32[4] = add(%x, %v)
          %b: f32[4] = add(%x, %v)
          %y: f32[4] = mul(%a, %b)
          return %y
        }"""
    graph = parse(dedent(text))
    Pipeline(((Cse(), EliminateDeadCode()),)).run(graph, check="numeric")
    assert [node.op.name for node in graph.nodes] == ["random_uniform", "add", "mul"]
    assert all(node.attrs.get("seed") is None for node in graph.nodes)
    with pytest.raises(InternalError, match="halve changed what the graph means"):
        Pipeline(((Halve(),),)).run(graph, check="numeric")


# ---- dumps


def test_dumps_show_the_graph_before_and_after_what_changed_it(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "dump"
    before = parse(print_graph(graph))
    Pipeline(((Cse(), FoldConstants(), EliminateDeadCode()),)).run(graph, dump=folder)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "001-cse-after.txt",
        "001-cse-before.txt",
        "003-eliminate-dead-code-after.txt",
        "003-eliminate-dead-code-before.txt",
    ]
    assert first_difference(parse((folder / names[1]).read_text()), before) is None
    assert first_difference(parse((folder / names[2]).read_text()), graph) is None


def test_a_pass_that_breaks_the_graph_is_dumped_too(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(CapgraphError):
        Pipeline(((Replace(),),)).run(graph, dump=tmp_path, check="numeric")
    assert "tanh" in (tmp_path / "001-replace-after.txt").read_text()


@pytest.mark.parametrize("name", ["file", "file/below", "n" * 300, "a\0b"])
def test_a_dump_that_cannot_be_written_says_where(graph: Graph, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("kept")
    before = print_graph(graph)
    with pytest.raises(ResourceError, match="the dump of pass cse cannot be written: ") as caught:
        Pipeline(((Cse(),),)).run(graph, dump=tmp_path / name)
    assert caught.value.where == str(tmp_path / name)
    assert caught.value.remedy
    assert (print_graph(graph), (tmp_path / "file").read_text()) == (before, "kept")


def test_progress_names_the_passes(graph: Graph) -> None:
    seen: list[str] = []
    Pipeline(((Cse(),), (EliminateDeadCode(),))).run(graph, progress=seen.append)
    assert seen == ["cse", "cse", "eliminate-dead-code", "eliminate-dead-code"]
