"""What is shipped: the source distribution builds the wheel, the wheel holds every module and works elsewhere."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import capgraph
import pytest

from tests.project.imports import ROOT, package_folders

IMPORT_ALL = """
import importlib, importlib.metadata, sys
site, *packages = sys.argv[1:]
sys.path.insert(0, site)
for package in packages:
    module = importlib.import_module(package)
    print(module.__file__)
(distribution,) = importlib.metadata.distributions(name="capgraph", path=[site])
print(distribution.version)
"""
RUN_SCRIPT = """
import importlib.metadata, sys
site, *sys.argv[1:] = sys.argv[1:]
sys.path.insert(0, site)
(distribution,) = importlib.metadata.distributions(name="capgraph", path=[site])
(script,) = distribution.entry_points.select(group="console_scripts", name="capgraph")
sys.exit(script.load()())
"""
RUN_PAGE = """
import sys
from pathlib import Path
site, root, page = sys.argv[1:]
sys.path[:0] = [site, root]
import capgraph
from tests.project.pages import failures
assert capgraph.__file__.startswith(site)
sys.exit("".join(failures(Path(page))) or 0)
"""


@dataclass(frozen=True)
class Built:
    """The two files of a release."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both distributions, built from a copy of what git tracks, the wheel from the unpacked source distribution."""
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    _copy_checkout(checkout)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(checkout))
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return Built(sdist, wheel)


def _copy_checkout(target: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: what belongs to the project is not known")
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def _run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _listed_packages() -> list[str]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]


def _shipped_files() -> set[str]:
    """What the wheel must hold, as paths inside it: every module, and the mark that says the package is typed."""
    return {
        (Path(*package.split(".")) / path.relative_to(folder)).as_posix()
        for package, folder in package_folders().items()
        for path in folder.rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }


def test_packages_are_the_folders() -> None:
    folders = {
        ".".join([package, *path.parent.relative_to(folder).parts])
        for package, folder in package_folders().items()
        for path in folder.rglob("__init__.py")
    }
    assert _listed_packages() == sorted(folders)


def test_every_module_lies_in_a_package() -> None:
    homes = {path.parent for folder in package_folders().values() for path in folder.rglob("*.py")}
    assert [str(home.relative_to(ROOT)) for home in homes if not (home / "__init__.py").is_file()] == []


def test_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    metadata = f"capgraph-{capgraph.__version__}.dist-info"
    assert {name for name in names if not name.startswith(metadata)} == _shipped_files()
    assert "capgraph/py.typed" in names
    assert f"{metadata}/licenses/LICENSE" in names


def test_sdist_builds_tests_and_explains(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"pyproject.toml", "Makefile", "LICENSE", "README.md", "CHANGELOG.md", ".ci/run", "requirements/dev.txt"}
    assert needed <= names
    assert {"api/__init__.py", "ir/__init__.py", "docs/dependencies.md", "tests/conftest.py"} <= names


def test_kernels_are_compiled_by_the_compiler_of_the_gpu_machines() -> None:
    pins = [
        [
            line
            for line in (ROOT / "requirements" / name).read_text().splitlines()
            if line.startswith("nvidia-cuda-nvrtc")
        ]
        for name in ("dev.txt", "gpu-cuda13.txt")
    ]
    assert len(pins[0]) == 1
    assert pins[0] == pins[1]


@pytest.fixture(scope="module")
def site(built: Built, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder that holds the installed wheel, and nothing of the checkout."""
    target = str(tmp_path_factory.mktemp("site"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    _run(*pip, "--target", target, str(built.wheel))
    return target


def test_wheel_installs_and_imports_elsewhere(site: str) -> None:
    *files, version = _run(sys.executable, "-I", "-c", IMPORT_ALL, site, *_listed_packages()).splitlines()
    assert len(files) == len(_listed_packages())
    assert [file for file in files if not file.startswith(site)] == []
    assert version == capgraph.__version__


def test_readme_does_what_it_shows(site: str, tmp_path: Path) -> None:
    command = (sys.executable, "-I", "-W", "error::UserWarning", "-c", RUN_PAGE)
    _run(*command, site, str(ROOT), str(ROOT / "README.md"), cwd=tmp_path)


def test_installed_command_knows_the_commands_of_the_readme(site: str) -> None:
    shown = set(re.findall(r"^\| `capgraph (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    usage = _run(sys.executable, "-I", "-c", RUN_SCRIPT, site, "--help")
    assert shown
    assert shown <= set(re.findall(r"\w+", usage))
