"""Policies of LeRobot behind a socket, in an environment of LeRobot's own."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from support.exported import successes, write_collected
from support.page_commands import commands
from support.pages import blocks
from support.processes import ROOT, python_of, run_foreign, run_with
from support.rendering import needs_gl

from fleet_tools import serve
from fleet_tools.dataset import Dataset
from fleet_tools.dataset.export.exporting import export_dataset
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.sources import find_policy


@contextmanager
def served(policy: Path, export: Path) -> Iterator[str]:
    """Serves a policy from LeRobot's environment, and returns the address."""
    options = ["--header", str(export / "meta/fleet_tools.json"), "--port", "0", "--json"]
    command = [python_of("lerobot"), "-m", "fleet_tools.serve", str(policy), *options]
    variables = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "HF_HOME": str(policy)}
    variables["OMP_NUM_THREADS"] = "1"  # as in `run_with`, for the same bits
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | variables
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()


@needs_gl
@pytest.mark.parametrize("kind", ["act", "diffusion"])
def test_a_served_policy_does_what_it_does_at_home(kind: str, tmp_path: Path) -> None:
    python_of("lerobot")
    dataset = write_collected(tmp_path / "set", "rgbd")
    export, policy, actions = tmp_path / "export", tmp_path / "policy", tmp_path / "actions.npy"
    export_dataset(dataset, "lerobot", export)
    run_foreign("lerobot", "small_lerobot.py", kind, export, policy, actions, folder=tmp_path)
    expected = np.load(actions)
    episode = successes(Dataset(tmp_path / "set"))[0]
    with served(policy, export) as url:
        connection = PolicyClient.at(url)
        assert connection.hello.env_kwargs["obs_mode"] == "rgbd"
        assert not any("depth" in name for name in connection.hello.observation)
        connection.reset()
        found = [
            connection.act({name: rows[t] for name, rows in episode.observations.items()})
            for t in range(len(episode))
        ]
        connection.close()
    assert len(found) == len(expected) and np.ptp(expected, axis=0).max() > 0
    if kind == "act":  # that of diffusion draws its noise
        np.testing.assert_array_equal(found, expected)


PAGE = ROOT / "docs/tutorials/own_models.md"


def merge_words() -> list[str]:
    """Returns the arguments of `fleet-tools merge` on the page."""
    (found,) = [
        words[2:]
        for each in blocks(PAGE)
        for words in commands(each.code)
        if words[:2] == ["fleet-tools", "merge"] and "outputs/merged" in words
    ]
    return found


@pytest.mark.parametrize("kind", ["act", "diffusion"])
def test_the_page_merges_a_policy_and_a_copy_in_another_order_into_the_policy(kind, tmp_path):
    script = ("lerobot", "merged_lerobot.py", kind, *merge_words())
    found = json.loads(run_foreign(*script, folder=tmp_path).splitlines()[-1])
    apart, refused = found["apart"], found["refused"]
    assert max(apart["copy"], apart["merged"]) < 1e-4 and apart["mean"] > 0.1
    assert apart["vectors"] == pytest.approx(apart["mean"], rel=1e-3)  # of scale 1, an average
    assert "n_action_steps is" in refused["n_action_steps"]
    own = "chunk_size" if kind == "act" else "num_inference_steps"
    assert f"{own} is" in refused[own] and "config.json" in refused[own]
    assert found["statistic"] in refused["statistics"]


@needs_gl
@pytest.mark.parametrize("kind", ["act", "diffusion"])
def test_a_merged_policy_acts_here(kind: str, tmp_path: Path) -> None:
    python_of("lerobot")
    dataset, export = write_collected(tmp_path / "set", "rgbd"), tmp_path / "export"
    export_dataset(dataset, "lerobot", export)
    one, other = (tmp_path / f"outputs/{name}/pretrained_model" for name in ("one", "other"))
    one.parent.mkdir(parents=True)
    actions = tmp_path / "actions.npy"
    run_foreign("lerobot", "small_lerobot.py", kind, export, one, actions, folder=tmp_path)
    shutil.copytree(one, other)
    words = ["naive_average" if word == "git_rebasin" else word for word in merge_words()]
    run_with("lerobot", "-m", "fleet_tools", "merge", *words, folder=tmp_path)
    with served(tmp_path / "outputs/merged", export) as url:
        env = Dataset(tmp_path / "set").header.make_env()
        acting, (observation, _) = find_policy(url).make(env), env.reset(seed=3)
        acting.reset()
        for _ in range(3):
            action = acting.act(observation)
            assert action.shape == (6,) and np.isfinite(action).all()
            observation, *_ = env.step(action.clip(-1, 1))


def test_adapters_of_peft_merge_as_products_embeddings_included(tmp_path: Path) -> None:
    told = run_foreign("lerobot", "merged_peft.py", tmp_path, folder=tmp_path)
    found = json.loads(told.splitlines()[-1])
    apart = found["apart"]
    assert max(apart[name] for name in ("factored", "dense", "ranks")) < 1e-5
    assert apart["factors"] > 0.1 and found["rank"] == 4


def test_what_cannot_be_served_is_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "policy").mkdir()
    header = tmp_path / "fleet_tools.json"
    assert serve.main([str(tmp_path / "policy")]) == 2
    assert "--header" in capsys.readouterr().err
    assert serve.main([str(tmp_path / "policy"), "--header", str(header)]) == 2
    assert "fleet_tools.json" in capsys.readouterr().err
    header.write_text("{}")
    assert serve.main([str(tmp_path / "policy"), "--header", str(header)]) == 2
    assert "schema version" in capsys.readouterr().err
    (tmp_path / "best.safetensors").write_bytes(b"")
    assert serve.main([str(tmp_path / "best.safetensors"), "--header", str(header)]) == 2
    assert "Leave out --header" in capsys.readouterr().err
