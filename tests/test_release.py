"""A release: one version wherever it is written, and a recipe of an image whose parts are known."""

import json
import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from support.processes import ROOT

import fleet_tools

RELEASE = runpy.run_path(str(ROOT / ".ci" / "release.py"))
IMAGE = runpy.run_path(str(ROOT / ".ci" / "image.py"))
FILES = (*RELEASE["PLACES"], RELEASE["CHANGELOG"])


def version_of(checkout: Path) -> tuple[str, str]:
    """Returns the version and the day of the release that all places of a checkout agree on."""
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    latest = re.search(r"^## (\S+), (.+)$", (checkout / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert latest is not None
    manifest = json.loads((checkout / FILES[3]).read_text())
    package = re.search(r'^__version__ = "(.+)"$', (checkout / FILES[0]).read_text(), re.MULTILINE)
    readme = re.search(
        r"^  version = \{(.+)\},$", (checkout / "README.md").read_text(), re.MULTILINE
    )
    assert package is not None and readme is not None
    merging = re.search(r'^__version__ = "(.+)"$', (checkout / FILES[4]).read_text(), re.MULTILINE)
    assert merging is not None
    versions = {
        merging[1],
        citation["version"],
        latest[1],
        manifest["release"],
        package[1],
        readme[1],
    }
    assert len(versions) == 1, versions
    released = str(citation.get("date-released", "unreleased"))
    assert latest[2] == released and re.fullmatch(r"unreleased|\d{4}-\d\d-\d\d", released)
    return versions.pop(), released


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the files that name the version."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def set_version(checkout: Path, *words: str) -> int:
    return RELEASE["main"]([*words, "--checkout", str(checkout)])


def texts(checkout: Path) -> dict[str, str]:
    return {name: (checkout / name).read_text() for name in FILES}


def test_the_version_is_the_same_in_all_places() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in document["project"] and document["project"]["dynamic"] == ["version"]
    assert version_of(ROOT)[0] == fleet_tools.__version__


def test_a_release_and_the_next_version_change_all_places_and_nothing_else(checkout) -> None:
    before = texts(checkout)
    assert set_version(checkout, "3.0.0") == 0
    assert version_of(checkout) == ("3.0.0", "unreleased")
    assert set_version(checkout, "3.0.0", "--date", "2030-02-01") == 0
    assert version_of(checkout) == ("3.0.0", "2030-02-01")
    assert set_version(checkout, "3.0.1") == 0
    assert version_of(checkout) == ("3.0.1", "unreleased")
    for name, text in texts(checkout).items():
        rest = text.replace("## 3.0.1, unreleased\n\n", "").replace("3.0.1", "3.0.0").splitlines()
        pairs = list(zip(before[name].splitlines(), rest, strict=True))
        assert sum(one != other for one, other in pairs) == 1, name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["3.0"], "no version"),
        (["3.0.0", "--date", "tomorrow"], "tomorrow"),
        (["0.0.1"], "older"),
        (["3.0.0", "--date", "2030-02-02"], "was released on"),
        (["3.0.1", "--date", "2030-02-02"], "says nothing of 3.0.1"),
    ],
)
def test_what_is_refused_changes_nothing(checkout, capsys, words, message) -> None:
    assert set_version(checkout, "3.0.0") == set_version(checkout, "3.0.0", "--date", "2030-02-01")
    before = texts(checkout)
    assert set_version(checkout, *words) == 2
    assert message in capsys.readouterr().err
    assert texts(checkout) == before


def test_a_file_that_lost_its_version_stops_the_release(checkout, capsys) -> None:
    readme = checkout / "README.md"
    readme.write_text(re.sub(r"  version = .*\n", "", readme.read_text()))
    before = texts(checkout)
    assert set_version(checkout, "3.0.0") == 2
    assert "README.md has 0 lines" in capsys.readouterr().err and texts(checkout) == before


def test_the_recipe_of_the_image_can_be_run_without_docker() -> None:
    found = IMAGE["instructions"]((ROOT / "Dockerfile").read_text())
    words = [word for word, _ in found]
    assert words[0] == "FROM" and words[-1] == "CMD"
    assert set(words) <= {"FROM", "RUN", "ENV", "ARG", "COPY", "USER", "WORKDIR", "CMD"}
    for word, rest in found:
        assert "\\" not in rest and "#" not in rest  # joined, and without comments
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
    copied = IMAGE["allowed"]((ROOT / ".dockerignore").read_text())
    assert {"fleet_tools", "pyproject.toml"} <= {*copied} and not any(
        "*" in each for each in copied
    )


def test_an_instruction_that_is_not_known_is_refused(tmp_path) -> None:
    build = IMAGE["Build"](tmp_path)
    with pytest.raises(ValueError, match="HEALTHCHECK"):
        build.do("HEALTHCHECK", "CMD true")
    build.do("ENV", "PATH=/opt/bin:$PATH A=1")
    assert build.variables["PATH"].startswith("/opt/bin:/usr") and build.variables["A"] == "1"
