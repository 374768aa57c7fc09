"""Checkpoints of a release: what the manifest says is loaded, and nothing else."""

import json
import pickle
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleet_tools
from fleet_tools import checkpoints
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.policies import released
from fleet_tools.policies.released import (
    CHECKPOINTS,
    FOLDER,
    MANIFEST,
    PREFIX,
    Asset,
    ReleasedCheckpointError,
    find_asset,
    find_file,
    read_manifest,
)
from fleet_tools.policies.sources import find_policy

NAME = "bc_hammer"
FILE = FOLDER / f"{NAME}.safetensors"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(CHECKPOINTS, raising=False)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture(name="source_folder")
def _source_folder(tmp_path, monkeypatch) -> Path:
    """A folder with the file, which the package now lacks."""
    folder = tmp_path / "assets"
    folder.mkdir()
    (folder / FILE.name).write_bytes(FILE.read_bytes())
    monkeypatch.setattr(released, "FOLDER", tmp_path / "nothing")
    return folder


def test_the_package_has_the_files_of_its_manifest_and_no_others():
    manifest = read_manifest()
    assert manifest.release == fleet_tools.__version__
    by_file = {asset.file: asset for asset in manifest.checkpoints.values()}
    for path in FOLDER.iterdir():
        if path != MANIFEST:
            assert by_file[path.name].problem(path.read_bytes()) is None
            assert path.stat().st_size < 1e6, "it makes the wheel large"


def test_larger_files_of_the_release_lie_in_the_entries_of_the_leaderboard(monkeypatch):
    folder = Path("leaderboard/entries")
    monkeypatch.setenv(CHECKPOINTS, str(folder))
    files = {asset.file for asset in read_manifest().checkpoints.values()}
    for name in read_manifest().checkpoints:
        assert find_file(PREFIX + name).is_file()  # it is there, and the release's
    larger = {path.relative_to(folder).as_posix() for path in folder.rglob("*.safetensors")}
    assert files == larger | {path.name for path in FOLDER.glob("*.safetensors")}


def test_a_released_policy_acts_as_its_file_does():
    pytest.importorskip("torch")
    source = find_policy(PREFIX + NAME)
    assert (source.kind, source.content_digest) == (
        "checkpoint",
        find_policy(str(FILE)).content_digest,
    )
    env = EnvSpec.of(task="hammer", **source.env_kwargs).make()
    observation, _ = env.reset(seed=3)
    actions = []
    for name in (PREFIX + NAME, str(FILE)):
        policy = fleet_tools.load_policy(name, env)
        policy.reset()
        actions.append(policy.act(observation))
    np.testing.assert_array_equal(*actions)
    assert find_policy(f"dagger:{PREFIX}{NAME}").kind == "dagger"


@given(data=st.data())
def test_any_other_content_is_refused(data):
    content = bytearray(FILE.read_bytes())
    match data.draw(st.sampled_from(["flip", "cut", "more"])):
        case "flip":
            place = data.draw(st.integers(0, len(content) - 1))
            content[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        case "more":
            content += data.draw(st.binary(min_size=1, max_size=9))
    assert find_asset(NAME).problem(bytes(content)) is not None


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def test_a_file_that_lies_is_refused_before_it_is_read_as_anything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CHECKPOINTS, str(tmp_path))
    (tmp_path / FILE.name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ReleasedCheckpointError, match="differs from the file of the release"):
        find_policy(PREFIX + NAME)
    assert not (tmp_path / "exploded").exists()


def test_a_folder_at_hand_does_not_take_the_place_of_a_release(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet-tools").mkdir()
    for name in (NAME, "mine"):
        (tmp_path / PREFIX / name).write_bytes(b"mine")
    assert find_policy(PREFIX + NAME).source == str(FILE)
    with pytest.raises(UnknownNameError, match=r"given as \./fleet-tools"):
        find_policy(f"{PREFIX}mine")
    with pytest.raises(UnknownNameError, match=f"Did you mean '{NAME}'"):
        find_policy(f"{PREFIX}bc_hamer")


@pytest.fixture(name="address")
def _address(source_folder) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(source_folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("place", ["folder", "network"])
def test_get_brings_the_right_file_and_refuses_another(place, source_folder, address, capsys):
    source = str(source_folder) if place == "folder" else address
    with pytest.raises(ReleasedCheckpointError, match="fleet-tools checkpoints get bc_hammer"):
        find_file(NAME)
    (source_folder / FILE.name).write_bytes(FILE.read_bytes() + b"x" * 10**6)
    assert checkpoints.main(["get", NAME, "--source", source]) == 1
    assert f"it has {FILE.stat().st_size + 1} bytes" in capsys.readouterr().err
    with pytest.raises(ReleasedCheckpointError):
        find_file(NAME)
    (source_folder / FILE.name).write_bytes(FILE.read_bytes())
    assert checkpoints.main(["get", NAME, "--source", source, "--json"]) == 0
    (path,) = json.loads(capsys.readouterr().out)["paths"]
    assert find_file(NAME) == Path(path)
    assert Path(path).read_bytes() == FILE.read_bytes()


@pytest.mark.parametrize("source", ["nowhere", "https://", "http://127.0.0.1:9/x", "ftp://h/x"])
def test_a_source_that_cannot_be_read_is_named(source, source_folder, capsys):
    assert checkpoints.main(["get", NAME, "--source", source]) == 2
    assert f"{FILE.name} of {source} cannot be read" in capsys.readouterr().err


def test_what_is_added_can_be_got_and_does_not_change(tmp_path, monkeypatch, capsys):
    manifest, folder = tmp_path / "manifest.json", tmp_path / "assets"
    manifest.write_text('{"release": "9.9.9"}')
    mine = folder / "bc" / "checkpoints" / "hammer.safetensors"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(FILE.read_bytes())
    given = ["--folder", str(folder), "--manifest", str(manifest), "--name"]
    assert checkpoints.main(["add", str(mine), *given, "bc/hammer", "--about", "x"]) == 0
    assert checkpoints.main(["add", str(mine), *given, "bc/hammer", "--about", "x"]) == 0
    assert checkpoints.main(["add", str(mine), *given, "bc_hammer"]) == 2  # the same file
    monkeypatch.setattr(released, "MANIFEST", manifest)
    asset = read_manifest(manifest).checkpoints["bc/hammer"]
    assert asset.problem((folder / asset.file).read_bytes()) is None
    other = folder / "other.safetensors"
    other.write_bytes(FILE.read_bytes()[:-1])
    capsys.readouterr()
    for path, about, said in (
        (other, "x", "not a checkpoint"),
        (FILE, "x", "is not in"),
        (mine, "y", "never change"),
    ):
        assert checkpoints.main(["add", str(path), *given, "bc/hammer", "--about", about]) == 2
        assert said in capsys.readouterr().err
    assert checkpoints.main(["list", "--json"]) == 0


@pytest.mark.parametrize(
    "file", ["../x.safetensors", "/x.safetensors", "x.pt", "a//b.safetensors", "x.safetensors\n"]
)
def test_a_manifest_names_files_in_its_folder_and_no_pickles(file, tmp_path):
    with pytest.raises(ValueError, match="file"):
        Asset(file=file, size=1, sha256="0" * 64)
    path = tmp_path / "manifest.json"
    asset = {"file": file, "size": 1, "sha256": "0" * 64}
    path.write_text(json.dumps({"release": "1", "checkpoints": {"a": asset}}))
    with pytest.raises(ConfigError, match="file"):
        read_manifest(path)
