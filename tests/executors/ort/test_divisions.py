import subprocess
import sys

import pytest
from capgraph.executors.ort.faults import known_fault
from capgraph.executors.ort.wrong_numbers import may_trap
from capgraph.ir.text.parser import parse

GIVEN = "graph @main(%x: i64[2], %d: i64[2]) { %y: i64[2] = div(%x, %d) return %y }"


FILLED = """graph @main(%x: i64[N]) {
  %d: i64[N] = full() {shape = [N], value = dense<i64[]: 2>}
  %y: i64[N] = div(%x, %d)
  return %y
}"""


def by(content: str, dtype: str = "i64", op: str = "div") -> str:
    """A division of an input by a constant."""
    return f"""graph @main(%x: {dtype}[2]) {{
      %d: {dtype}[2] = constant() {{value = dense<{dtype}[2]: [{content}]>}}
      %y: {dtype}[2] = {op}(%x, %d)
      return %y
    }}"""


def of(dividend: str, types: str) -> str:
    """A division of something by a given divisor."""
    return f"graph @main({types}, %d: i64[]) {{ {dividend} %y: i64[2] = div(%a, %d) return %y }}"


@pytest.mark.parametrize(
    "text",
    [
        GIVEN,
        GIVEN.replace("i64", "i32").replace("div", "mod"),
        FILLED.replace(": 2>", ": -1>"),
        by("3, -1"),
        by("-1, -1", "i32", "mod"),
        of("%a: i64[2] = constant() {value = dense<i64[2]: [5, -9223372036854775808]>}", "%x: i64[2]"),
        of("%a: i64[2] = cast(%x) {to = i64}", "%x: u64[2]"),
        of("%t: i64[2, 1] = reshape(%x) {shape = [2, 1]} %a: i64[2] = squeeze(%t) {axes = [1]}", "%x: i64[2]"),
    ],
)
def test_the_least_number_by_minus_one_is_possible(text: str) -> None:
    node = list(parse(text).nodes)[-1]
    assert may_trap(node)
    assert "ends the process" in known_fault(node)


@pytest.mark.parametrize(
    "text",
    [
        by("3, -2"),
        by("64, 0", "i32", "mod"),
        FILLED,
        *(GIVEN.replace("i64", dtype) for dtype in ("i8", "i16", "u64", "f32")),
        GIVEN.replace("div", "fmod"),
        of("%a: i64[2] = shape(%x)", "%x: f32[N, M]"),
        of("%a: i64[2] = cast(%x) {to = i64}", "%x: i32[2]"),
        of("%a: i64[2] = cast(%x) {to = i64}", "%x: bool[2]"),
        of("%b: i64[2, 2] = cast(%x) {to = i64} %a: i64[2] = gather(%b, %i) {axis = 0}", "%x: u8[2, 2], %i: i64[]"),
        "graph @main(%x: i64[2], %z: f32[N, 4]) { %n: i64[2] = shape(%z) %y: i64[2] = mod(%x, %n) return %y }",
    ],
)
def test_the_least_number_by_minus_one_is_impossible(text: str) -> None:
    assert not any(may_trap(node) for node in parse(text).nodes)


BRANCHES = """graph @main(%c: bool[], %x: i64[2], %d: i64[2]) {
  %y: i64[2] = if(%c, %x, %d) {else_body = @same, then_body = @quotient}
  return %y
}

graph @quotient(%x: i64[2], %d: i64[2]) {
  %h: i64[2] = div(%x, %d)
  return %h
}

graph @same(%x: i64[2], %d: i64[2]) {
  return %x
}"""


def test_regions_are_looked_into() -> None:
    (node,) = parse(BRANCHES).nodes
    assert may_trap(node)


LEAST = """
import capgraph, numpy as np
from capgraph.ir.text.parser import parse
for dtype in ("i8", "i16", "i32", "i64"):
    for op in ("div", "mod"):
        for given in ("%d", "%m"):
            text = f'''graph @main(%x: {dtype}[3], %d: {dtype}[3]) {{
              %m: {dtype}[3] = constant() {{value = dense<{dtype}[3]: [-1, -1, -1]>}}
              %y: {dtype}[3] = {op}(%x, {given})
              return %y
            }}'''
            graph = parse(text)
            number = graph.inputs[0].tensor.dtype.numpy
            x = np.array([np.iinfo(number).min, 7, -5], number)
            inputs = {"x": x, "d": np.full(3, -1, number)}
            for level in (0, 2):
                found = capgraph.optimize(graph, executor="ort", level=level).run(inputs)["y"]
                assert np.array_equal(found, capgraph.optimize(graph, executor="eager").run(inputs)["y"]), text
                assert found.tolist() == ([x[0], -7, 5] if op == "div" else [0, 0, 0]), text
print("alive")
"""


def test_a_process_survives_the_least_number_by_minus_one() -> None:
    found = subprocess.run([sys.executable, "-c", LEAST], capture_output=True, text=True, timeout=600, check=False)
    assert (found.returncode, found.stdout) == (0, "alive\n"), found.stderr
