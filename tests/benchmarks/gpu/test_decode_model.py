"""The decoder that is measured: it writes to its caches, and reads them up to the position."""

import torch

from benchmarks.gpu.decode_model import decoder


def test_a_step_writes_one_row_of_each_cache_and_reads_no_later_one() -> None:
    module = decoder("decode-toy", batch=2).float()
    before = [cache.clone() for cache in module.caches]
    tokens, position = torch.tensor([3, 5]), torch.tensor([7])
    with torch.no_grad():
        found = module(tokens, position)
        for cache, old in zip(module.caches, before, strict=True):
            changed = (cache != old).any(dim=(0, 1, 3)).nonzero().flatten().tolist()
            assert changed == [7]
            cache[:, :, 8:] = 100.0
        assert torch.equal(module(tokens, position), found)
    assert found.shape == (2, 1)


def test_weights_depend_on_the_seed_alone() -> None:
    one, same, other = (decoder("decode-toy", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.embedding.weight, same.embedding.weight)
    assert not torch.equal(one.embedding.weight, other.embedding.weight)


def test_drawn_layers_decide_on_the_next_token() -> None:
    tokens, position = torch.arange(64), torch.tensor([7])
    with torch.no_grad():
        plain, drawn = (decoder("decode-tiny", 64, slots=16, is_drawn=each) for each in (False, True))
        assert torch.equal(plain(tokens, position)[:, 0], tokens)
        assert (drawn(tokens, position)[:, 0] != tokens).float().mean() > 0.9
        found = drawn(tokens, position)
        drawn.layers[-1].down.weight.zero_()
        assert not torch.equal(drawn(tokens, position), found)
