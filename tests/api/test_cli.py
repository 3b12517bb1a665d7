import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from capgraph.cli import main, make_parser
from capgraph.cli.commands import COMMANDS, Command
from capgraph.ir.errors import InternalError

from tests.api.models import affine, save


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: capgraph")
    assert all(re.search(rf"^    {command.name}\s", text, re.MULTILINE) for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_explains_itself(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command.name, "--help"])
    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(f"usage: capgraph {command.name} ")
    assert command.summary in text
    assert "--json" in text


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["run"],
        ["run", "m.onnx", "--input", "x"],
        ["run", "m.onnx", "--input", "=x"],
        ["run", "m.onnx", "--dim", "batch=four"],
        ["run", "m.onnx", "--dim", "batch=-1"],
        ["run", "m.onnx", "--repeat", "0"],
        ["run", "m.onnx", "--seed", "1.5"],
        ["run", "m.onnx", "--surprise"],
        ["show"],
        ["doctor", "m.onnx"],
    ],
)
def test_bad_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: capgraph" in capsys.readouterr().err


def test_a_failure_is_one_message_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "missing.onnx"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("capgraph run: ModelError: there is no model file missing.onnx\n  try: ")


@pytest.mark.parametrize("command", ["run", "show", "bisect", "compare", "optimize"])
def test_a_name_that_no_file_can_have_is_one_message(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "n" * 300, *(["-o", "out.onnx"] if command == "optimize" else [])]) == 1
    assert "cannot be read: File name too long\n  try: check the path" in capsys.readouterr().err


def test_debug_shows_the_traceback() -> None:
    command = [sys.executable, "-m", "capgraph.cli", "run", "missing.onnx", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_running_out_of_memory_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: object) -> None:
        raise MemoryError

    parser = make_parser()
    monkeypatch.setattr("capgraph.cli.make_parser", lambda: parser)
    monkeypatch.setattr("capgraph.cli._run", fail)
    assert main(["doctor"]) == 1
    assert "ResourceError: memory ran out" in capsys.readouterr().err


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("capgraph.cli._run", interrupt)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == ""


def test_faults_of_our_own_ask_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: object) -> None:
        raise InternalError("a pass broke the graph", remedy="report it")

    monkeypatch.setattr("capgraph.cli._run", fail)
    assert main(["doctor"]) == 1
    assert "capgraph doctor: InternalError: a pass broke the graph" in capsys.readouterr().err


def test_the_script_answers(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "capgraph"
    done = subprocess.run([script, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("capgraph ")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = save(affine(), tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "capgraph.cli", "show", str(path)]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""
