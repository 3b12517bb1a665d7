import pytest
from capgraph.executors.ort.gpu.session import Provider, cuda_provider
from capgraph.ir.text.parser import parse

CONV = """
graph @g(%x: f16[1, 3, 8, 8], %w: f16[4, 3, 3, 3]) {
  %y: f16[1, 4, 6, 6] = conv(%x, %w, _) {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1]}
  return %y
}
"""


def test_graph_mode_is_an_option_of_the_provider():
    provider = cuda_provider(0, 77)
    assert "enable_cuda_graph" not in provider.options
    assert provider.recording().options["enable_cuda_graph"] == "1"
    assert provider.options["user_compute_stream"] == "77"
    host = Provider("CPUExecutionProvider", "cpu")
    assert host.recording() is host


@pytest.mark.parametrize(("level", "dtype", "option"), [(2, "f32", "0"), (3, "f32", None), (2, "f16", None)])
def test_only_the_highest_level_rounds_matmuls_in_f32_to_tf32(level: int, dtype: str, option: str | None):
    graph = parse(CONV.replace("f16", dtype))
    assert cuda_provider(0, 7, level).suited_to(graph).options.get("use_tf32") == option


def test_the_first_gpu_is_not_named():
    assert "device_id" not in cuda_provider(0, 7).options
    assert cuda_provider(1, 7).options["device_id"] == "1"


def test_convolutions_in_half_precision_lie_channels_last():
    provider = cuda_provider(0, 7)
    assert provider.suited_to(parse(CONV)).options["prefer_nhwc"] == "1"
    assert "prefer_nhwc" not in provider.suited_to(parse(CONV.replace("f16", "f32"))).options
    host = Provider("CPUExecutionProvider", "cpu")
    assert host.suited_to(parse(CONV)) is host
