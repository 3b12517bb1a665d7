from capgraph.frontends.onnx.files.operator_counts import not_standard, operator_counts
from onnx import parser

HEAD = '<ir_version: 10, opset_import: ["" : 22, "local" : 1]>'


def test_functions_count_as_their_bodies_and_subgraphs_as_they_stand() -> None:
    model = parser.parse_model(f"""{HEAD}
    main (bool c, float[2] x) => (float[2] y) {{
      a = local.twice(x)
      b = com.example.Own(a)
      y = If(c) <then_branch = one () => (float[2] t) {{ t = local.twice(b) }},
                 else_branch = two () => (float[2] e) {{ e = Neg(b) }}>
    }}
    <domain: "local", opset_import: ["" : 22]> twice (x) => (y) {{ z = Neg(x)  y = Neg(z) }}
    """)
    assert operator_counts(model) == {"Neg": 5, "com.example.Own": 1, "If": 1}


def test_a_function_that_calls_itself_counts_once() -> None:
    model = parser.parse_model(f"""{HEAD}
    main (float[2] x) => (float[2] y) {{ y = local.endless(x) }}
    <domain: "local", opset_import: ["" : 22, "local" : 1]> endless (x) => (y) {{ z = Neg(x)  y = local.endless(z) }}
    """)
    assert operator_counts(model) == {"Neg": 1, "local.endless": 1}


def test_operators_that_the_standard_does_not_have() -> None:
    counts = {"Relu": 3, "Upsample": 1, "ai.onnx.ml.ZipMap": 1, "com.microsoft.Gelu": 2, "my.own.Relu": 1, "Mystery": 4}
    assert not_standard(counts) == {"com.microsoft.Gelu": 2, "my.own.Relu": 1, "Mystery": 4}
