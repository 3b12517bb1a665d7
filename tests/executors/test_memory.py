import mmap
from pathlib import Path

import numpy as np
import pytest
from capgraph.executors import memory
from capgraph.executors.memory import available_bytes, resident_bytes, size_text


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control group's folder, and a machine with 8 GiB available."""
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    8388608 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CONTROL_GROUP", tmp_path)
    return tmp_path


def test_without_a_control_group_the_machine_decides(group: Path) -> None:
    assert available_bytes() == 8 << 30


def test_an_unlimited_control_group_does_not_count(group: Path) -> None:
    (group / "memory.max").write_text("max\n")
    (group / "memory.stat").write_text("anon 5\nfile 7\n")
    assert available_bytes() == 8 << 30


def test_what_a_control_group_has_left_counts_without_its_page_cache(group: Path) -> None:
    (group / "memory.max").write_text(f"{3 << 30}\n")
    (group / "memory.stat").write_text(f"anon {1 << 30}\nfile {1 << 30}\n")
    assert available_bytes() == 2 << 30


def test_an_exhausted_control_group_has_nothing_left(group: Path) -> None:
    (group / "memory.max").write_text("10\n")
    (group / "memory.stat").write_text("anon 11\n")
    assert available_bytes() == 0


def test_a_system_without_meminfo_counts_its_free_pages(group: Path) -> None:
    (group / "meminfo").unlink()
    found = available_bytes()
    assert found is None or found > 0


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (1 << 70, "1.02e+03 EiB")],
)
def test_sizes_read_well(count: int, text: str) -> None:
    assert size_text(count) == text


def test_a_process_holds_what_it_wrote() -> None:
    mapped = mmap.mmap(-1, 1 << 26)  # fresh pages: an array may get memory that this process holds already
    before = resident_bytes()
    np.frombuffer(mapped, dtype=np.uint8)[:] = 1
    after = resident_bytes()
    assert before is not None
    assert after is not None
    assert after - before > len(mapped) * 0.9
