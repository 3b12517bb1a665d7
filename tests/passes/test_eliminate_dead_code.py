from capgraph.passes.cleanup.redundancy import EliminateDeadCode

from tests.passes.checking import check_pass


def test_what_nobody_reads_goes_and_with_it_what_only_that_read() -> None:
    check_pass(
        EliminateDeadCode(),
        """
        graph @main(%x: f32[4], %unused: f32[2]) {
          %c = constant() {value = dense<f32[]: 2.0>}
          %a = exp(%x)
          %b = mul(%a, %c)
          %d = neg(%b)
          %e = add(%a, %x)
          return %e
        }""",
        """
        graph @main(%x: f32[4], %unused: f32[2]) {
          %a = exp(%x)
          %e = add(%a, %x)
          return %e
        }""",
    )


def test_a_node_stays_for_one_of_its_results() -> None:
    check_pass(
        EliminateDeadCode(),
        "graph @main(%x: f32[4]) {\n %v, %i = top_k(%x) {k = 2, axis = 0}\n return %i\n}",
        None,
    )


def test_random_nodes_have_no_effect_either() -> None:
    check_pass(
        EliminateDeadCode(),
        "graph @main(%x: f32[4]) {\n %n = bernoulli(%x) {dtype = f32}\n return %x\n}",
        "graph @main(%x: f32[4]) {\n return %x\n}",
        numeric=False,
    )


def test_regions_are_looked_into() -> None:
    text = """
    graph @main(%c: bool[], %x: f32[4]) {{
      %y = if(%c, %x) {{then_body = @then, else_body = @else}}
      return %y
    }}

    graph @then(%a: f32[4]) {{
      {dead}
      %n = neg(%a)
      return %n
    }}

    graph @else(%a: f32[4]) {{
      return %a
    }}
    """
    check_pass(EliminateDeadCode(), text.format(dead="%d = exp(%a)"), text.format(dead=""))
