"""What is published: one version, and a source distribution from which a wheel follows."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from support.processes import ROOT

import fleet_tools
from fleet_tools.utils.libraries import GL_COMMAND, GLIB_COMMAND

BUILD = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"
LEFT_OUT = ("__pycache__", "*.pyc", "*.egg-info")


def files_below(folder: Path) -> set[str]:
    """Returns the paths of all files below a folder but fleet-merging's, through links."""
    return {
        Path(parent, name).relative_to(folder).as_posix()
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
        if "__pycache__" not in parent and "baselines/merging" not in parent
    }


def build(kind: str, source: Path, output: Path) -> Path:
    """Builds a distribution of a source tree without a network, as its build backend does."""
    pytest.importorskip("setuptools", minversion="77")
    output.mkdir()
    command = [sys.executable, "-c", BUILD.format(kind), str(output)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = output.iterdir()
    return built


@pytest.fixture(name="source", scope="module")
def _source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution of a copy of this checkout, unpacked."""
    folder = tmp_path_factory.mktemp("distribution")
    copy = folder / "checkout"
    copy.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in (project["readme"], "pyproject.toml", "MANIFEST.in", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, copy)
    for path in (ROOT / "CITATION.cff", *ROOT.glob("constraints*.txt")):
        shutil.copy(path, copy)
    for room in ("fleet_tools", "assets", "baselines", "experts", "task_configs"):
        ignored = shutil.ignore_patterns(*LEFT_OUT)
        shutil.copytree(ROOT / room, copy / room, symlinks=True, ignore=ignored)
    with tarfile.open(build("sdist", copy, folder / "sdist")) as archive:
        assert all(member.isfile() or member.isdir() for member in archive)  # no links
        archive.extractall(folder, filter="data")
    return folder / f"fleet_tools-{fleet_tools.__version__}"


def test_a_source_distribution_holds_the_package_with_its_rooms(source: Path) -> None:
    held = files_below(source / "fleet_tools")
    assert held == files_below(ROOT / "fleet_tools")
    for name in held:
        assert (source / "fleet_tools" / name).read_bytes() == (
            ROOT / "fleet_tools" / name
        ).read_bytes()


def test_a_source_distribution_holds_what_describes_it(source: Path) -> None:
    others = {name for name in files_below(source) if not name.startswith("fleet_tools")}
    generated = {"PKG-INFO", "setup.cfg"}
    assert others - generated == {
        "CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "constraints.txt",
        "constraints-flower.txt", "constraints-newest.txt", "pyproject.toml",
    }  # fmt: skip


@pytest.mark.slow
def test_a_wheel_of_the_source_distribution_holds_the_package(source: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build("wheel", source, tmp_path / "wheel")) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("fleet_tools/")}
    expected = {f"fleet_tools/{name}" for name in files_below(ROOT / "fleet_tools")}
    assert packed == expected


def test_the_citation_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    paper = citation["preferred-citation"]
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Wang", "Zhang", "Zhou", "Simchowitz", "Tedrake"]
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert paper["url"] == urls["Paper"]


def test_the_image_has_the_system_packages_that_programs_ask_for() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for command in (GLIB_COMMAND, GL_COMMAND):
        for package in command.partition("-y ")[2].split():
            assert re.search(rf"^ +{re.escape(package)} \\$", text, re.MULTILINE), package
    assert text.index("USER fleet") < text.index("CMD")


def test_the_context_of_the_image_holds_what_a_distribution_holds(source: Path) -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    top = {name.partition("/")[0] for name in files_below(source)} - {"PKG-INFO", "setup.cfg"}
    rooms = {"assets", "baselines", "experts", "task_configs"}
    assert allowed == {name for name in top if not name.endswith(".egg-info")} | rooms
