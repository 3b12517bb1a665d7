"""Text generation on a GPU: tokens of the recorded loop are those of transformers, and nothing runs on the host."""

import warnings
from typing import Any

import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    torch = pytest.importorskip("torch", reason="the models are PyTorch's")
    transformers = pytest.importorskip("transformers", reason="the models are of transformers")

import capgraph
from capgraph.pytorch import backend as torch_backend

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]

COUNT = 40
PROMPTS = [[3, 1, 4, 1, 5], [0, 0, 9, 2, 6]]


@pytest.fixture(scope="module")
def llama() -> Any:
    """A small Llama in f32, on the GPU; its text is written with some variety."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    none = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512}
    config = transformers.LlamaConfig(**sizes, **none, num_attention_heads=4, num_key_value_heads=2)
    model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False).cuda()
    for weight in model.parameters():
        weight.mul_(20 if weight.dim() > 1 else 1)
    return model


def written(model: Any, **options: Any) -> list[list[int]]:
    prompts = torch.tensor(PROMPTS, device="cuda")
    mask = (torch.arange(5, device="cuda") >= torch.tensor([[0], [2]], device="cuda")).long()
    settings = {"max_new_tokens": COUNT, "do_sample": False, "pad_token_id": 0, **options}
    return model.generate(prompts, attention_mask=mask, **settings).tolist()  # type: ignore[no-any-return]


def recorded(model: Any, **options: Any) -> list[list[int]]:
    return written(model, cache_implementation="static", custom_generate=capgraph.decoding_loop, **options)


def test_tokens_are_those_of_transformers_by_one_recording(llama: Any) -> None:
    wanted = written(llama)
    assert [recorded(llama), recorded(llama)] == [wanted, wanted]
    program = torch_backend.live_programs()[-1]
    assert all(bucket.segments == 1 and not bucket.eager_segments for bucket in program.stats().buckets)
    assert program.stats().counters.input_copies == 0
    assert "runs on the host" not in program.explain()


def test_texts_end_and_are_drawn(llama: Any) -> None:
    plain = written(llama)
    ends = [plain[0][20], plain[1][25]]
    assert recorded(llama, eos_token_id=ends) == written(llama, eos_token_id=ends)
    assert recorded(llama, do_sample=True, top_k=1) == plain
    torch.manual_seed(1)
    drawn = recorded(llama, do_sample=True, top_k=50, top_p=0.9, temperature=0.8)
    torch.manual_seed(1)
    assert recorded(llama, do_sample=True, top_k=50, top_p=0.9, temperature=0.8) == drawn != plain
