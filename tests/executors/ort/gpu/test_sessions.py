"""Sessions of subgraphs: cut again where one is refused, and what is said of them."""

from typing import Any

import pytest
from capgraph.executors.ort.gpu import sessions as module
from capgraph.executors.ort.gpu.sessions import in_sessions
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

from tests.executors.ort.gpu.on_host import HOST
from tests.executors.ort.gpu.texts import LACKING, LOOPED, WHOLE

RECORDING = "This session cannot use the graph capture feature as requested by the user"


class Refusing:
    """Sessions in graph mode refuse graphs with one of the ops `names`; an ordinary one tells which if it `tells`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: set[str], why: str = RECORDING, *, tells: bool = True):
        self._names, self._why, self._tells = names, why, tells
        self._session = module.SubgraphSession
        monkeypatch.setattr(module, "SubgraphSession", self._subgraph)
        monkeypatch.setattr(module, "opened_on", lambda _provider, graph, _written: graph)
        monkeypatch.setattr(module, "off_device", self._off_device)

    def _subgraph(self, graph: Graph, provider: Any, **options: Any) -> Any:
        if any(node.op.name in self._names for node in graph.nodes):
            raise UnsupportedError(self._why)
        return self._session(graph, provider, **options)

    def _off_device(self, graph: Graph, _provider: object) -> list[tuple[str, str]]:
        named = [(node.outputs[0].name, node.op.name) for node in graph.nodes if node.op.name in self._names]
        return named if self._tells else [("unheard of", "Memcpy")]


def test_every_subgraph_has_a_session():
    found = in_sessions(parse(LOOPED), HOST, {})
    assert len(found.sessions) == 2
    assert {n.attrs["body"].name for n in found.graph.nodes if n.op.name == "fused"} == set(found.sessions)
    assert found.remarks[0] == "2 subgraphs in sessions of ONNX Runtime; 1 nodes outside"
    assert found.remarks[1].startswith("  outside: %l = loop")


def test_a_refused_subgraph_is_cut_where_nodes_left_the_provider(monkeypatch: pytest.MonkeyPatch):
    Refusing(monkeypatch, {"tan"})
    found = in_sessions(parse(LACKING), HOST, {})
    assert len(found.sessions) == 2
    assert "CPUExecutionProvider has no kernel for tan here" in found.remarks[1]


@pytest.mark.parametrize("why", [RECORDING, "out of luck"])
def test_where_nothing_tells_which_node_it_is_the_subgraph_stays_outside(why: str, monkeypatch: pytest.MonkeyPatch):
    Refusing(monkeypatch, {"gelu"}, why, tells=False)
    found = in_sessions(parse(WHOLE), HOST, {})
    assert found.sessions == {}
    assert all(why in line for line in found.remarks[1:])


def test_it_comes_to_an_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_guilty", lambda _graph, _refusal: {next(iter(_graph.nodes)): "again"})
    Refusing(monkeypatch, {"gelu"})
    with pytest.raises(UnsupportedError, match="again and again"):
        in_sessions(parse(WHOLE), HOST, {})


def test_what_the_installed_version_lacks_is_said(monkeypatch: pytest.MonkeyPatch):
    made = module.SubgraphSession

    def lacking(*arguments: Any, **options: Any) -> Any:
        session = made(*arguments, **options)
        session.lacking = frozenset({"BiasGelu"})
        return session

    monkeypatch.setattr(module, "SubgraphSession", lacking)
    found = in_sessions(parse(WHOLE), HOST, {})
    assert found.remarks[-1] == "the installed ONNX Runtime lacks BiasGelu: standard operators are used instead"
