"""What a kernel's machine code for sm_90 says without a disassembler: opcodes in order, registers, shared memory.

A cubin is an ELF file with a section of instructions for each kernel, 16 bytes each, whose low 12 bits are the opcode
(as `nvdisasm -hex` shows, CUDA 13.0 to 13.5). `.nv.info` has a record of each kernel's registers: 0x2f04, the record's
size, the kernel's index among the symbols, the count.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

OPCODES = {0x981: "LDG", 0xFAE: "LDGSTS", 0x82E: "ACQBULK", 0x82D: "PREEXIT", 0x387: "STL", 0x983: "LDL", 0x94D: "EXIT"}
"""Those that tests look for: loads, asynchronous copies, the wait and the trigger of programmatic launch, spills."""

REGISTERS, REGISTER_UNIT = 65536, 8
"""Of a multiprocessor of compute capability 9.0, and in what steps each thread gets them."""

SHARED, SHARED_OF_SYSTEM = 228 << 10, 1 << 10
"""Bytes of shared memory of a multiprocessor, and what each block has at least: the system's part, counted in."""

THREADS, BLOCKS = 2048, 32

_REGISTER_COUNT = 0x2F04


@dataclass(frozen=True)
class MachineCode:
    """One kernel: the opcodes that have a name above, in order, and what a block takes."""

    opcodes: tuple[str, ...]
    registers: int
    shared_bytes: int

    @property
    def loads_before_wait(self) -> int:
        """Loads and asynchronous copies from global memory in front of the first wait."""
        before = self.opcodes[: self.opcodes.index("ACQBULK")]
        return sum(each in ("LDG", "LDGSTS") for each in before)

    @property
    def spills(self) -> int:
        return sum(each in ("STL", "LDL") for each in self.opcodes)

    def blocks_together(self, threads: int, dynamic_bytes: int = 0) -> int:
        """How many blocks a multiprocessor has room for."""
        registers = -(-self.registers // REGISTER_UNIT) * REGISTER_UNIT * threads
        shared = max(self.shared_bytes, SHARED_OF_SYSTEM) + dynamic_bytes
        return min(REGISTERS // registers, SHARED // shared, THREADS // threads, BLOCKS)


@dataclass(frozen=True)
class _Section:
    name: str
    content: bytes
    nbytes: int


def machine_code(cubin: bytes) -> dict[str, MachineCode]:
    """The kernels of a cubin by name."""
    sections = {each.name: each for each in _sections(cubin)}
    symbols = _symbols(sections[".symtab"].content, sections[".strtab"].content)
    registers = dict(_registers(sections[".nv.info"].content, symbols))
    shared = {name: each.nbytes for name, each in sections.items() if name.startswith(".nv.shared.")}
    return {
        kernel: MachineCode(
            tuple(_opcodes(sections[f".text.{kernel}"].content)), count, shared.get(f".nv.shared.{kernel}", 0)
        )
        for kernel, count in registers.items()
        if f".text.{kernel}" in sections
    }


def _sections(cubin: bytes) -> Iterator[_Section]:
    assert cubin[:5] == b"\x7fELF\x02", "an ELF file of 64 bits"
    (at,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + index * size) for index in range(count)]
    table = headers[names][4]
    for name, kind, _, _, offset, nbytes, *_ in headers:
        has_content = kind != 8  # NOBITS
        yield _Section(_text(cubin, table + name), cubin[offset : offset + nbytes] if has_content else b"", nbytes)


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()


def _symbols(table: bytes, names: bytes) -> list[str]:
    return [_text(names, struct.unpack_from("<I", table, at)[0]) for at in range(0, len(table), 24)]


def _registers(content: bytes, symbols: list[str]) -> Iterator[tuple[str, int]]:
    at = 0
    while at < len(content):
        kind, nbytes = struct.unpack_from("<HH", content, at)
        if kind == _REGISTER_COUNT:
            symbol, count = struct.unpack_from("<II", content, at + 4)
            yield symbols[symbol], count
        at += 4 + (nbytes if kind & 0xFF == 4 else 0)  # other forms hold their value in the size


def _opcodes(content: bytes) -> Iterator[str]:
    for (word,) in struct.iter_unpack("<Q8x", content):
        name = OPCODES.get(word & 0xFFF)
        if name:
            yield name
