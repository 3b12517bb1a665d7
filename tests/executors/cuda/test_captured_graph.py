"""Arguments of captured kernels are exchanged through the real package `cuda.bindings`, on a driver that is played."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STUB = Path(__file__).with_name("driver_stub.c")

SCRIPT = """
import ctypes
from capgraph.executors.cuda.driver.captured_graph import CapturedGraph
from capgraph.executors.cuda.driver.protocol import KernelCall
from capgraph.executors.cuda.kernel_ir.launch import ScalarArgument
from cuda.core._utils.cuda_utils import CUDAError

stub = ctypes.CDLL("libcuda.so.1")
stub.stub_told.restype = ctypes.POINTER(ctypes.c_uint64)
node, first, second, third, exchanges, destroyed, status = range(7)
told = stub.stub_told()
call = KernelCall(None, None, (1000, 2000, ScalarArgument("long long", 77)))
launched = []
graph = CapturedGraph(55, call, call, lambda *given: launched.append(given))

graph.read_from([3000])
assert told[:5] == [101, 3000, 2000, 77, 1], told[:5]
graph.write_to([4000])
assert told[:5] == [103, 4000, 2000, 77, 2], told[:5]
graph.launch(3)
graph.upload(3)
assert launched == [(9, 3)]

told[status] = 700
try:
    graph.read_from([5000])
except CUDAError as error:
    assert "ILLEGAL_ADDRESS" in str(error), error
else:
    raise SystemExit("a refusal went unnoticed")

told[status] = 0
graph.close()
graph.close()
assert told[destroyed] == 2

alone = CapturedGraph(55, None, call, lambda *given: None)
assert not hasattr(alone, "read_from")
alone.write_to([6000])
del alone
assert told[destroyed] == 4
print("done")
"""


@pytest.mark.skipif(
    shutil.which("gcc") is None or not sys.platform.startswith("linux"), reason="the driver is played by what gcc makes"
)
def test_arguments_reach_the_driver_and_its_refusals_are_told(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", str(library), str(STUB)], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert found.stdout.strip() == "done", found.stderr
