import pytest
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse
from capgraph.passes.framework.pipeline import Pipeline
from capgraph.passes.fuse.fuse import Fuse

from tests.passes.checking import check_pass
from tests.strategies.graphs import random_graph


def fused_bodies(graph: Graph) -> list[list[str]]:
    """The ops of every fused body, in order."""
    bodies = [node.attrs["body"] for node in graph.nodes if node.op.name == "fused"]
    return [[node.op.name for node in body.nodes if node.inputs] for body in bodies]


def test_a_chain_becomes_one_node() -> None:
    check_pass(
        Fuse(),
        """
        graph @main(%x: f32[B, 8], %b: f32[8]) {
          %s: f32[B, 8] = add(%x, %b)
          %r: f32[B, 8] = relu(%s)
          %y: f32[B, 8] = mul(%r, %x)
          return %y
        }
        """,
        """
        graph @main(%x: f32[B, 8], %b: f32[8]) {
          %y: f32[B, 8] = fused(%x, %b) {body = @fused}
          return %y
        }
        graph @fused(%x: f32[B, 8], %b: f32[8]) {
          %s: f32[B, 8] = add(%x, %b)
          %r: f32[B, 8] = relu(%s)
          %y: f32[B, 8] = mul(%r, %x)
          return %y
        }
        """,
    )


def test_a_diamond_with_two_results_is_one_node() -> None:
    graph = check_pass(
        Fuse(),
        """
        graph @main(%x: f32[4]) {
          %a: f32[4] = exp(%x)
          %b: f32[4] = neg(%a)
          %c: f32[4] = sqrt(%a)
          %d: f32[4] = add(%b, %c)
          return %d, %a
        }
        """,
        """
        graph @main(%x: f32[4]) {
          %a: f32[4], %d: f32[4] = fused(%x) {body = @fused}
          return %d, %a
        }
        graph @fused(%x: f32[4]) {
          %a: f32[4] = exp(%x)
          %b: f32[4] = neg(%a)
          %c: f32[4] = sqrt(%a)
          %d: f32[4] = add(%b, %c)
          return %a, %d
        }
        """,
    )
    assert fused_bodies(graph) == [["exp", "neg", "sqrt", "add"]]


def test_a_composed_softmax_with_what_leads_to_it_is_one_node() -> None:
    graph = parse(
        """
        graph @main(%x: f32[B, 8]) {
          %scale: f32[] = constant() {value = dense<f32[]: 0.125>}
          %s: f32[B, 8] = mul(%x, %scale)
          %m: f32[B, 1] = reduce_max(%s) {axes = [1]}
          %d: f32[B, 8] = sub(%s, %m)
          %e: f32[B, 8] = exp(%d)
          %t: f32[B, 1] = reduce_sum(%e) {axes = [-1]}
          %y: f32[B, 8] = div(%e, %t)
          return %y
        }
        """
    )
    Pipeline(((Fuse(),),)).run(graph, check="numeric")
    assert fused_bodies(graph) == [["mul", "reduce_max", "sub", "exp", "reduce_sum", "div"]]


def test_a_matmul_takes_its_epilogue_and_is_computed_once() -> None:
    graph = parse(
        """
        graph @main(%x: f32[B, 8], %w: f32[8, 8], %v: f32[8, 8], %b: f32[8]) {
          %p: f32[B, 8] = matmul(%x, %w)
          %s: f32[B, 8] = add(%p, %b)
          %r: f32[B, 8] = relu(%s)
          %q: f32[B, 8] = matmul(%r, %v)
          %y: f32[B, 8] = add(%q, %p)
          return %y
        }
        """
    )
    Pipeline(((Fuse(),),)).run(graph, check="numeric")
    assert fused_bodies(graph) == [["matmul", "add", "relu"], ["matmul", "add"]]


EMBEDDING = """
    graph @main(%words: f32[9, 8], %places: f32[5, 8], %i: i64[2, 5], %j: i64[2, 5]) {
      %w: f32[2, 5, 8] = gather(%words, %i) {axis = 0}
      %p: f32[2, 5, 8] = gather(%places, %j) {axis = 0}
      %s: f32[2, 5, 8] = add(%w, %p)
      %y: f32[2, 5, 8] = softmax(%s) {axis = -1}
      return %y
    }
    """


def test_lookups_in_front_are_for_backends_that_can_do_them() -> None:
    graph = parse(EMBEDDING)
    Pipeline(((Fuse(),),)).run(graph)
    assert fused_bodies(graph) == [["add", "softmax"]]
    graph = parse(EMBEDDING)
    Pipeline(((Fuse(lookups=True),),)).run(graph)
    assert fused_bodies(graph) == [["gather", "gather", "add", "softmax"]]


def test_a_table_is_never_made_where_it_is_looked_up() -> None:
    graph = parse(
        """
        graph @main(%x: f32[4, 8], %i: i64[4]) {
          %t: f32[4, 8] = exp(%x)
          %g: f32[4, 8] = gather(%t, %i) {axis = 0}
          %y: f32[4, 8] = add(%t, %g)
          return %y
        }
        """
    )
    Pipeline(((Fuse(lookups=True),),)).run(graph, check="numeric")
    assert fused_bodies(graph) == [["gather", "add"]]


def test_norms_behind_a_matmul_stay_apart_where_a_matmul_cannot_take_whole_rows() -> None:
    text = """
        graph @main(%x: f32[B, 8], %w: f32[8, 8], %b: f32[8], %g: f32[8]) {
          %p: f32[B, 8] = matmul(%x, %w)
          %s: f32[B, 8] = add(%p, %b)
          %y: f32[B, 8] = layer_norm(%s, %g, _)
          return %y
        }
        """
    for takes_rows, bodies in ((True, [["matmul", "add", "layer_norm"]]), (False, [["matmul", "add"]])):
        graph = parse(text)
        Pipeline(((Fuse(rows_behind_anchors=takes_rows),),)).run(graph)
        assert fused_bodies(graph) == bodies


def test_what_makes_the_operand_of_a_matmul_does_not_join_it_behind() -> None:
    graph = parse("""
        graph @main(%x: f32[8, 8], %w: f32[8, 8]) {
          %a: f32[8, 8] = exp(%x)
          %p: f32[8, 8] = matmul(%a, %w)
          %y: f32[8, 8] = add(%a, %p)
          return %y
        }
        """)
    Pipeline(((Fuse(),),)).run(graph)
    assert all(body[0] == "matmul" for body in fused_bodies(graph) if "matmul" in body)


def matmuls_of_one_norm(rows: int, *, read_elsewhere: bool = False) -> Graph:
    """Two matmuls of one norm, of which the second is an epilogue's."""
    return parse(
        f"""
        graph @main(%x: f32[1, {rows}, 4]) {{
          %v: f32[4, 2] = constant() {{value = dense<f32[4, 2]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>}}
          %w: f32[4, 2] = constant() {{value = dense<f32[4, 2]: [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]>}}
          %n: f32[1, {rows}, 4] = rms_norm(%x, _)
          %a: f32[1, {rows}, 2] = matmul(%n, %v)
          %b: f32[1, {rows}, 2] = matmul(%n, %w)
          %s: f32[1, {rows}, 2] = silu(%a)
          %g: f32[1, {rows}, 2] = mul(%s, %b)
          {f"%t: f32[1, 4, {rows}] = transpose(%n) {{perm = [0, 2, 1]}}" if read_elsewhere else ""}
          return {"%g, %t" if read_elsewhere else "%g"}
        }}
        """
    )


def test_a_matmul_of_few_rows_norms_them_itself() -> None:
    graph = matmuls_of_one_norm(2)
    Pipeline(((Fuse(normed_rows=2),),)).run(graph, check="numeric")
    assert [node.op.name for node in graph.nodes if node.inputs] == ["fused", "fused"]
    assert sorted(fused_bodies(graph)) == [["rms_norm", "matmul"], ["rms_norm", "matmul", "silu", "mul"]]


@pytest.mark.parametrize(
    ("matmul", "is_taken"),
    [
        ("matmul(%n, %w)", True),
        ("gemm(%n, %w, %c) {trans_b = true}", True),
        ("gemm(%n, %w, %c) {trans_a = true}", False),
        ("gemm(%n, %w, %n)", False),
        ("matmul(%w, %n)", False),
    ],
)
def test_a_matmul_centers_its_few_rows_itself(matmul: str, is_taken: bool) -> None:
    graph = parse(f"""
        graph @main(%x: f32[2, 2], %s: f32[2], %b: f32[2]) {{
          %w: f32[2, 2] = constant() {{value = dense<f32[2, 2]: [1.0, 2.0, 3.0, 4.0]>}}
          %c: f32[2] = constant() {{value = dense<f32[2]: [5.0, 6.0]>}}
          %n: f32[2, 2] = layer_norm(%x, %s, %b)
          %y: f32[2, 2] = {matmul}
          %z: f32[2, 2] = add(%x, %y)
          return %z
        }}
        """)
    Pipeline(((Fuse(normed_rows=2),),)).run(graph, check="numeric")
    bodies = fused_bodies(graph)
    assert (bodies[0][:2] == ["layer_norm", matmul.partition("(")[0]]) is is_taken, bodies


def test_two_matmuls_of_one_norm_run_as_one_where_a_gate_joins_them() -> None:
    graph = matmuls_of_one_norm(2)
    Pipeline(((Fuse(normed_rows=2, paired_matmuls=True),),)).run(graph, check="numeric")
    assert fused_bodies(graph) == [["rms_norm", "matmul", "rms_norm", "matmul", "silu", "mul"]]


def test_matmuls_of_other_rows_or_with_another_epsilon_are_no_pair() -> None:
    for rows, epsilon in (("%x", 0.5), ("%z", 1e-5)):
        graph = parse(
            f"""
            graph @main(%x: f32[1, 4], %z: f32[1, 4]) {{
              %v: f32[4, 2] = constant() {{value = dense<f32[4, 2]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>}}
              %w: f32[4, 2] = constant() {{value = dense<f32[4, 2]: [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]>}}
              %n: f32[1, 4] = rms_norm(%x, _) {{epsilon = 1e-5}}
              %m: f32[1, 4] = rms_norm({rows}, _) {{epsilon = {epsilon}}}
              %a: f32[1, 2] = matmul(%n, %v)
              %b: f32[1, 2] = matmul(%m, %w)
              %g: f32[1, 2] = mul(%a, %b)
              return %g
            }}
            """
        )
        Pipeline(((Fuse(normed_rows=1, paired_matmuls=True),),)).run(graph, check="numeric")
        assert sorted(fused_bodies(graph)) == [["rms_norm", "matmul"], ["rms_norm", "matmul", "mul"]]


def test_a_norm_of_many_rows_or_with_other_readers_stays_one() -> None:
    for graph in (matmuls_of_one_norm(3), matmuls_of_one_norm(2, read_elsewhere=True)):
        Pipeline(((Fuse(normed_rows=2),),)).run(graph, check="numeric")
        names = [node.op.name for node in graph.nodes]
        assert names.count("rms_norm") == 1
        assert not any("rms_norm" in body for body in fused_bodies(graph))


def test_without_epilogues_matmuls_stay_alone() -> None:
    check_pass(
        Fuse(epilogues=False),
        """
        graph @main(%x: f32[2, 8], %w: f32[8, 8]) {
          %p: f32[2, 8] = matmul(%x, %w)
          %r: f32[2, 8] = relu(%p)
          return %r
        }
        """,
        None,
    )


def test_nothing_leaves_a_group_and_comes_back() -> None:
    """Joined, exp and add would wait for cumsum, which waits for exp."""
    check_pass(
        Fuse(),
        """
        graph @main(%x: f32[4]) {
          %a: f32[4] = exp(%x)
          %c: f32[4] = cumsum(%a) {axis = 0}
          %y: f32[4] = add(%a, %c)
          return %y
        }
        """,
        None,
    )


def test_two_groups_do_not_wait_for_each_other() -> None:
    """Each pair alone could be fused, both cannot: the first would need the second, and the second the first."""
    graph = parse(
        """
        graph @main(%x: f32[4], %z: f32[2, 2]) {
          %a: f32[4] = exp(%x)
          %b: f32[2, 2] = neg(%z)
          %ra: f32[2, 2] = reshape(%a) {shape = [2, 2]}
          %c: f32[2, 2] = add(%b, %ra)
          %rb: f32[4] = reshape(%b) {shape = [4]}
          %d: f32[4] = add(%a, %rb)
          return %c, %d
        }
        """
    )
    Pipeline(((Fuse(),),)).run(graph, check="numeric")
    assert len(fused_bodies(graph)) == 1


def test_limits_are_kept() -> None:
    nodes = "\n".join(f"  %v{i + 1}: f32[4] = neg(%v{i})" for i in range(10))
    graph = parse(f"graph @main(%v0: f32[4]) {{\n{nodes}\n  return %v10\n}}")
    Pipeline(((Fuse(max_nodes=4),),)).run(graph, check="numeric")
    assert [len(body) for body in fused_bodies(graph)] == [4, 4, 2]


def test_random_work_and_sizes_that_differ_stay_apart() -> None:
    check_pass(
        Fuse(),
        """
        graph @main(%x: f32[4], %z: f32[5]) {
          %a: f32[4] = exp(%x)
          %b: f32[5] = exp(%z)
          %s: f32[9] = concat(%a, %b) {axis = 0}
          return %s
        }
        """,
        None,
    )


def test_a_second_run_changes_nothing_on_random_graphs() -> None:
    for seed in range(300):
        graph = random_graph(seed)
        Pipeline(((Fuse(),),)).run(graph)
        assert not Pipeline(((Fuse(),),)).run(graph).changed, seed


def test_work_before_a_norm_over_groups_stays_apart() -> None:
    graph = parse("""
        graph @main(%x: f32[2, 8, 4], %z: f32[2, 8, 4], %w: f32[8], %b: f32[8]) {
          %a: f32[2, 8, 4] = exp(%x)
          %n: f32[2, 8, 4] = group_norm(%a, %w, %b) {groups = 2}
          %s: f32[2, 8, 4] = silu(%n)
          %t: f32[2, 8, 4] = add(%a, %s)
          %u: f32[2, 8, 4] = neg(%z)
          %v: f32[2, 8, 4] = mul(%s, %u)
          %r: f32[2, 8, 1] = reduce_sum(%v) {axes = [2], keep_dims = true}
          return %t, %r
        }
        """)
    Pipeline(((Fuse(),),)).run(graph)
    assert fused_bodies(graph) == [["group_norm", "silu", "add", "neg", "mul"]]
