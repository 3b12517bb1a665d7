import json

import pytest
from capgraph.cli import main
from capgraph.cli.commands import doctor


def test_tables_of_packages_devices_and_executors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("numpy ") for line in lines)
    assert any(line.startswith("host ") for line in lines)
    assert any(line.startswith("eager ") and line.endswith("runs here") for line in lines)
    assert any(line.startswith("graph ") and line.endswith("runs here") for line in lines)


def test_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"python", "packages", "devices", "executors", "problems"} <= found.keys()


def test_problems_and_remedies_are_shown() -> None:
    executor = {"executor": "e", "device": "d", "is_available": False, "problem": "no GPU", "remedy": "buy one"}
    findings = {
        **dict.fromkeys(("capgraph", "python", "platform", "blas"), "x"),
        "packages": [],
        "devices": [],
        "executors": [executor],
        "problems": ["two of a kind"],
    }
    text = doctor._text(findings)
    assert "problem: two of a kind" in text
    assert "cannot run here: no GPU; try: buy one" in text
