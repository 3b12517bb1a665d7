import capgraph
import numpy as np
import onnxruntime
import pytest

from examples.transformer import PADDING, Size, encoder, tokenize

SMALL = Size(layers=2, hidden=32, heads=4, inner=64, longest=16)


def test_tokens_are_bytes_and_padding_does_not_count() -> None:
    found = tokenize(["ab", "é"])
    assert found["input_ids"].tolist() == [[98, 99], [0xC3 + 1, 0xA9 + 1]]
    padded = tokenize(["abc", "a"])
    assert padded["input_ids"][1].tolist() == [98, PADDING, PADDING]
    assert padded["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]


@pytest.mark.parametrize("texts", [["one"], ["one", "two words"], ["x" * 16] * 5])
def test_the_encoder_equals_onnxruntime(texts: list[str]) -> None:
    model = encoder(SMALL)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, dict(tokenize(texts)))
    ours = capgraph.optimize(model).run(tokenize(texts))["embedding"]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing() -> None:
    program = capgraph.optimize(encoder(SMALL))
    alone = program.run(tokenize(["text"]))["embedding"]
    beside = program.run(tokenize(["text", "a longer text"]))["embedding"]
    np.testing.assert_allclose(alone[0], beside[0], rtol=1e-4, atol=1e-5)


def test_sizes_stay_symbolic() -> None:
    program = capgraph.optimize(encoder(SMALL))
    assert str(program.outputs["embedding"]) == "f32[batch, 32]"
    assert "foreign ops: none" in program.explain()
