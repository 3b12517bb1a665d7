"""Foreign nodes on a GPU: on torch's tensors over the plan's memory; mixtures of experts, which have none."""

import copy
import warnings
from typing import Any

import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load, and below when they run
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    torch = pytest.importorskip("torch", reason="the modules are PyTorch's")

import capgraph

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]


def programs() -> Any:
    from capgraph.pytorch.backend import live_programs

    return live_programs()


class Special(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.special.bessel_j0(x * 2).transpose(0, 1) + 1, torch.unique((x * 2).round())


class Refused(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.cholesky_ex(x @ x, check_errors=True)[0] * 2


@pytest.mark.parametrize("stream", [False, True])
def test_it_runs_where_the_plan_lies(stream: bool) -> None:
    torch._dynamo.reset()
    run = torch.compile(Special(), backend="capgraph")
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream() if stream else torch.cuda.current_stream()):
        for seed in range(4):
            x = torch.randn(64, 96, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
            for found, expected in zip(run(x), Special()(x), strict=True):
                assert found.is_cuda
                torch.testing.assert_close(found, expected)
    text = "\n".join(program.explain() for program in programs())
    assert "runs in torch, between recordings: aten.special_bessel_j0.default" in text


def test_what_it_raises_is_one_error() -> None:
    program = capgraph.optimize(Refused(), args=(torch.eye(3, device="cuda"),))
    with pytest.raises(capgraph.ExecutionError, match=r"aten.linalg_cholesky_ex.default failed"):
        program(torch.zeros(3, 3, device="cuda"))
    x = torch.eye(3, device="cuda")
    torch.testing.assert_close(program(x), Refused()(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("door", ["compile", "optimize"])
def test_a_mixture_of_experts_is_one_recording(door: str, dtype: Any) -> None:
    transformers = pytest.importorskip("transformers")
    torch._dynamo.reset()
    torch.manual_seed(0)
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    config = transformers.MixtralConfig(**small, vocab_size=128, num_key_value_heads=2, num_local_experts=4)
    model = transformers.MixtralForCausalLM(config).eval().to("cuda", dtype)
    exact = copy.deepcopy(model).double()
    exact.set_experts_implementation("eager")

    class Logits(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, tokens: Any) -> Any:
            return self.inner(input_ids=tokens, use_cache=False).logits

    tokens = torch.randint(0, 128, (2, 24), device="cuda")
    with torch.no_grad():
        if door == "compile":
            run = torch.compile(Logits(model), backend="capgraph")
        else:
            run = capgraph.optimize(Logits(model), args=(tokens,))
        for _ in range(3):
            tokens = torch.randint(0, 128, (2, 24), device="cuda")
            expected = Logits(exact)(tokens)
            ours, theirs = (
                float((each.double() - expected).norm() / expected.norm())
                for each in (run(tokens), Logits(model)(tokens))
            )
            assert ours <= 1.5 * theirs + 1e-6
    program = run if door == "optimize" else programs()[-1]
    assert program.target.device.startswith("cuda")
    counters = program.stats().counters
    assert (counters.captures, counters.replayed_calls) == (1, 2)
    text = program.explain()
    assert "runs on the host" not in text
    assert "between recordings" not in text


class Moving(torch.nn.Module):
    """Half of it in main memory: a scalar beside tensors on the GPU, tokens that it moves, a result on the CPU."""

    def forward(self, x: Any, scale: Any, places: Any) -> Any:
        y = x[places.to(x.device)] * scale
        return y, y.sum(0).cpu()


@pytest.mark.parametrize("door", ["compile", "optimize"])
def test_what_the_trace_has_in_main_memory_stays_there(door: str) -> None:
    torch._dynamo.reset()
    given = (torch.randn(8, 4, device="cuda"), torch.tensor(2.0), torch.tensor([1, 3, 5]))
    with torch.no_grad():
        run = (
            torch.compile(Moving(), backend="capgraph")
            if door == "compile"
            else capgraph.optimize(Moving(), args=given)
        )
        for _ in range(3):
            for found, expected in zip(run(*given), Moving()(*given), strict=True):
                assert found.device == expected.device
                torch.testing.assert_close(found, expected)


def test_half_of_the_inputs_in_main_memory_is_one_error() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    x = torch.randn(4, device="cuda")
    program = capgraph.optimize(Sum(), args=(x, x.clone()))
    with pytest.raises(capgraph.InputError, match="'y' lies on the CPU, beside others on a GPU"):
        program(x, x.cpu())
    with pytest.raises(capgraph.UnsupportedError, match="device"):
        capgraph.optimize(Sum(), args=(x, x.cpu()))
