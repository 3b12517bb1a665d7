"""`capgraph doctor`: what is installed here, what can run, and what is wrong."""

from argparse import ArgumentParser, Namespace
from typing import Any

from ...comparing.tables import Table, json_text
from .base import Command


def configure(_parser: ArgumentParser) -> None:
    """There are no arguments beyond the common ones."""


def run(arguments: Namespace) -> None:
    """Writes the findings."""
    from .diagnosis import examine

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
