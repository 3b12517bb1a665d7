"""`capgraph doctor`: what is installed here (Python, packages, devices, executors), what can run, and what is wrong.

Nothing heavy is imported: packages are found by their metadata, GPUs by asking the driver's own tool.
"""

import os
import platform
import subprocess
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ... import __version__
from ...comparing.tables import Table, json_text
from ...executors.backends import targets
from ...executors.memory import available_bytes, size_text
from ...ir.target import Target
from .arguments import Command

# Distribution -> what it is for. The extras of pyproject.toml install them.
_PACKAGES = {
    "numpy": "needed",
    "ml-dtypes": "needed: bf16, fp8 and smaller",
    "onnx": "ONNX models (extra onnx)",
    "onnxruntime": "the executor ort on the CPU (extra ort)",
    "onnxruntime-gpu": "the executor ort on a GPU (extras ort-cuda13, ort-cuda12)",
    "torch": "PyTorch models (extra torch)",
    "cupy-cuda13x": "CUDA 13 (extra cuda13)",
    "cupy-cuda12x": "CUDA 12 (extra cuda12)",
    "cuda-core": "CUDA launches and graphs (extras cuda13, cuda12)",
    "nvmath-python": "matmuls on CUDA (extras cuda13, cuda12)",
    "nvidia-cudnn-frontend": "convolutions and attention on CUDA (extra cudnn)",
    "Pillow": "pictures as inputs",
}
# Distributions that own the same import package: with both installed, which one is loaded is chance.
_EXCLUSIVE = (("onnxruntime", "onnxruntime-gpu"), ("cupy-cuda13x", "cupy-cuda12x"))
_SECONDS_FOR_DRIVER = 10


@dataclass(frozen=True)
class Package:
    """A distribution, its version (None: not installed), and what it is for."""

    name: str
    version: str | None
    purpose: str


@dataclass(frozen=True)
class DeviceReport:
    """A place where programs may run."""

    name: str
    description: str


def examine() -> dict[str, Any]:
    """All findings, as JSON may hold them."""
    packages = [Package(name, _version(name), purpose) for name, purpose in _PACKAGES.items()]
    return {
        "capgraph": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "blas": _blas(),
        "packages": [asdict(package) for package in packages],
        "devices": [asdict(device) for device in (_host(), *_gpus())],
        "executors": [_executor(target) for target in targets()],
        "problems": find_problems({package.name: package.version for package in packages}),
    }


def _executor(target: Target) -> dict[str, Any]:
    """What a user wants to know of an executor; facts for planning stay out."""
    shown = ("executor", "device", "captures", "is_available", "problem", "remedy")
    return {name: getattr(target, name) for name in shown}


def find_problems(versions: dict[str, str | None]) -> list[str]:
    """What is wrong with the installed packages, each with what to do."""
    problems = []
    for first, second in _EXCLUSIVE:
        if versions.get(first) and versions.get(second):
            problems.append(
                f"{first} and {second} are both installed and overwrite each other's files; "
                f"try: pip uninstall {first} {second}, then install the one you need"
            )
    return problems


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _blas() -> str:
    """What NumPy's matmuls run in."""
    import numpy as np

    try:
        facts = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{facts['name']} {facts['version']}"
    except (KeyError, TypeError):
        return "unknown"


def _host() -> DeviceReport:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = available_bytes()
    memory = f", {size_text(free)} of memory available" if free is not None else ""
    return DeviceReport("host", f"{_processor()}, {cores} cores{memory}")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gpus() -> list[DeviceReport]:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_SECONDS_FOR_DRIVER, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    return [
        DeviceReport(f"cuda:{index}", f"{row[0]}, {row[1]}, driver {row[2]}")
        for index, row in enumerate(rows)
        if len(row) == 3
    ]


def configure(_parser: ArgumentParser) -> None:
    """There are no arguments beyond the common ones."""


def run(arguments: Namespace) -> None:
    """Writes the findings."""
    findings = examine()
    print(json_text(findings) if arguments.json else _text(findings))


def _text(findings: dict[str, Any]) -> str:
    packages = [(each["name"], each["version"] or "-", each["purpose"]) for each in findings["packages"]]
    devices = [(each["name"], each["description"]) for each in findings["devices"]]
    executors = [(each["executor"], each["device"], _state(each)) for each in findings["executors"]]
    lines = [
        f"capgraph {findings['capgraph']}, {findings['python']}, {findings['platform']}, BLAS {findings['blas']}",
        Table(("package", "version", "what for"), packages).text(),
        Table(("device", "what it is"), devices).text(),
        Table(("executor", "device", "state"), executors).text(),
        *(f"problem: {problem}" for problem in findings["problems"]),
    ]
    return "\n\n".join(lines)


def _state(executor: dict[str, Any]) -> str:
    if executor["is_available"]:
        return "runs here"
    remedy = f"; try: {executor['remedy']}" if executor["remedy"] else ""
    return f"cannot run here: {executor['problem']}{remedy}"


COMMAND = Command(
    "doctor", "Say what is installed, which executors can run here, and why others cannot.", configure, run
)
