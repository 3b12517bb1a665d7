import pytest

from tests.frontends.onnx.contrib.written import without, written

TABLES = """
graph @g(%x: X, %cos: f32[9, 4], %sin: f32[9, 4]) {
  %p: i64[2, 3] = constant() {value = dense<i64[2, 3]: [0, 3, 8, 1, 1, 2]>}
  %y: X = rotary_embedding(%x, %cos, %sin, %p) {ATTRIBUTES}
  return %y
}
"""


def table(ty: str, attributes: str) -> str:
    return TABLES.replace("X", ty).replace("ATTRIBUTES", attributes)


@pytest.mark.parametrize("interleaved", ["", ", interleaved = true"])
@pytest.mark.parametrize(
    ("ty", "attributes"),
    [
        ("f32[2, 3, 16]", "heads = 2"),
        ("f32[2, 5, 3, 8]", "rotary_dim = 0"),
        ("f32[2, 3, 24]", "heads = 2, rotary_dim = 8"),
        ("f32[2, 5, 3, 12]", "rotary_dim = 8"),
    ],
)
def test_tables_at_positions(ty, attributes, interleaved):
    assert written(table(ty, attributes + interleaved)) == [".RotaryEmbedding"]
    assert written(table(ty, attributes + interleaved), without("RotaryEmbedding")) == ["RotaryEmbedding"]


def test_angles_of_each_position_stay_standard():
    text = table("f32[2, 3, 16]", "heads = 2").replace("f32[9, 4]", "f32[2, 3, 4]").replace(", %p)", ", _)")
    assert written(text) == ["RotaryEmbedding"]


def test_positions_that_broadcast_stay_standard():
    text = table("f32[2, 3, 16]", "heads = 2").replace("i64[2, 3]", "i64[1, 3]").replace(", 1, 1, 2]", "]")
    assert written(text, runs=False) == ["RotaryEmbedding"]
