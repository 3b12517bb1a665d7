"""What a device keeps for its program, and gives back with it."""

import gc
from pathlib import Path

import pytest
from capgraph.ir.errors import ExecutionError

from tests.executors.cuda.fake import FakeDriver, FakeFailure, GpuArray, fake_device, gpu_arrays, meanings
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows


def test_a_program_that_is_closed_gives_its_streams_back(tmp_path: Path) -> None:
    with meanings(), gpu_arrays():
        driver = FakeDriver()
        gpu = fake_device(tmp_path, driver)
        streams = [gpu.own_stream, gpu.capture_stream]
        program = recorded(block(), gpu, mode="full")
        for given in (rows(4), rows(4), GpuArray(rows(4)), rows(4)):
            program.run({"x": given})
        assert not driver.released
        for _ in range(2):
            program.close()
            assert driver.released == streams
        for given in (rows(4), GpuArray(rows(4))):
            for call in (program.run, program.profile):
                with pytest.raises(ExecutionError, match="the program is closed"):
                    call({"x": given})


def test_a_program_that_nobody_holds_gives_its_streams_back(tmp_path: Path) -> None:
    driver = FakeDriver()
    with meanings(), gpu_arrays():
        program = recorded(block(), fake_device(tmp_path, driver), mode="full")
        program.run({"x": GpuArray(rows(4))})
    del program
    gc.collect()
    assert len(driver.released) == 2


def test_a_stream_that_the_driver_keeps_does_not_keep_a_program_open(tmp_path: Path) -> None:
    class Keeping(FakeDriver):
        def release_stream(self, stream: int) -> None:
            super().release_stream(stream)
            raise FakeFailure("no")

    gpu = fake_device(tmp_path, Keeping())
    gpu.close()
    assert gpu.driver.released == [1, 2]
