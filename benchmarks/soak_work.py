"""The work of `soak.py`: rounds of workers that stay, programs with their own, a served policy.

A piece of work that fails is counted and told; the others go on.
"""

import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fleet_tools.config.tasks import task_names
from fleet_tools.envs.array_spec import describe_action, describe_observation
from fleet_tools.envs.spec import EnvSpec

OBSERVATIONS = ("state", "point_cloud")
WORKERS = 2


def subject_of(number: int) -> tuple[str, str]:
    """Returns task and observations of a round, so that each of the workers gets to all of them."""
    kinds = [(task, obs_mode) for obs_mode in OBSERVATIONS for task in task_names()]
    return kinds[number // WORKERS % len(kinds)]


class Held(NamedTuple):
    """What a process holds.

    Attributes:
        memory_mib: Resident memory.
        descriptors: Number of open file descriptors.
        threads: Number of threads.
    """

    memory_mib: float
    descriptors: int
    threads: int

    @classmethod
    def by(cls, process: Any) -> "Held":
        """Returns what a process of psutil's holds now."""
        with process.oneshot():
            memory = process.memory_info().rss / 2**20
            return cls(memory, process.num_fds(), process.num_threads())


class Round(NamedTuple):
    """What a worker did.

    Attributes:
        pid: Its process.
        held: What it holds afterwards.
        failures: A line for each piece of work that failed.
    """

    pid: int
    held: Held
    failures: list[str]


def failure_of(name: str, do: Callable[[], None]) -> list[str]:
    """Does a piece of work; returns a line if it fails, else none."""
    try:
        do()
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return [f"{name}: {type(error).__name__}: {error!s:.1000} ({place})"]
    return []


class StayingWork:
    """Does rounds in a worker that stays, and keeps environments of all tasks.

    Args:
        url: Address of the policy's server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._envs = {
            (task, obs_mode): EnvSpec.of(task=task, obs_mode=obs_mode, split="all").make_tool_use()
            for task, obs_mode in itertools.product(task_names(), OBSERVATIONS)
        }

    def __call__(self, number: int) -> Round:
        """Does the round of a number: resets and steps, cameras, a collection, an evaluation."""
        import psutil

        task, _ = subject_of(number)
        with tempfile.TemporaryDirectory() as folder:
            failures = [
                *failure_of(f"{task}: steps", lambda: self._step(task, number)),
                *failure_of(f"{task}: cameras", lambda: _look(task, number)),
                *collect_and_evaluate(Path(folder), number, self._url, workers=0),
            ]
        return Round(os.getpid(), Held.by(psutil.Process()), failures)

    def _step(self, task: str, number: int) -> None:
        import numpy as np

        generator = np.random.default_rng(number)
        for obs_mode in OBSERVATIONS:
            env = self._envs[task, obs_mode]
            for _ in range(2):
                env.reset(seed=int(generator.integers(2**32)))
                for _ in range(10):
                    env.step(generator.uniform(-0.3, 0.3, 6).astype(np.float32))


def _look(task: str, number: int) -> None:
    env = EnvSpec.of(task=task, obs_mode="rgbd", camera_size=(64, 48)).make_tool_use()
    env.reset(seed=number)
    env.close()


def collect_and_evaluate(folder: Path, number: int, url: str, workers: int) -> list[str]:
    """Runs programs in this process: the expert's episodes, read again, and a served policy's.

    Args:
        folder: An empty folder.
        number: Number of the round, and seed of the collection.
        url: Address of the policy's server.
        workers: Number of workers that the programs start; without any, one episode each.
    """
    from fleet_tools import collect, evaluate
    from fleet_tools.dataset.samples import Samples

    count = str(max(1, workers))
    options = ["--workers", str(workers), "--quiet"]
    task, obs_mode = subject_of(number)
    data = folder / "data"

    def collection() -> None:
        which = ["--task", task, "--episodes", count, "--seed", str(number), "--obs-mode", obs_mode]
        _run(collect.main, [*which, "--output", str(data), *options])
        samples = Samples(data)
        samples.gather(range(len(samples)))

    def evaluation() -> None:
        which = ["--policy", url, "--tool", task, "--split", "train", "--scenes", count]
        _run(evaluate.main, [*which, "--output", str(folder / "result"), *options])

    return [
        *failure_of(f"{task}: collect --workers {workers}", collection),
        *failure_of(f"{task}: evaluate --workers {workers}", evaluation),
    ]


def _run(main: Callable[[list[str]], int], arguments: list[str]) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(arguments)
    if code != 0:
        raise RuntimeError(f"exit code {code}: {said.getvalue()}")


def come_and_go(url: str) -> None:
    """Lets clients connect, reset, act and leave, half of them without a word."""
    import socket
    from urllib.parse import urlsplit

    from fleet_tools.policies.policy_client import PolicyClient

    address = urlsplit(url)
    env = EnvSpec.of(task=task_names()[0], obs_mode="point_cloud").make_tool_use()
    observation, _ = env.reset(seed=0)
    env.close()
    for _ in range(5):
        connection = PolicyClient.at(url)
        connection.reset()
        connection.act(observation, 0.0)
        connection.close()
        with socket.create_connection((address.hostname, address.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nUpgrade: web")


@contextlib.contextmanager
def served_policy(folder: Path) -> Iterator[tuple[str, int]]:
    """Yields address and process of a server of an untrained policy that sees point clouds.

    Args:
        folder: Folder for its checkpoint.
    """
    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
    from fleet_tools.baselines.policies.config import PolicyConfig
    from fleet_tools.baselines.policies.part_configs import PointNetConfig

    kwargs = {"obs_mode": "point_cloud"}
    env = EnvSpec.of(task=task_names()[0], **kwargs).make_tool_use()
    blueprint = Blueprint.of(
        PolicyConfig(clouds=PointNetConfig()),
        describe_observation(env),
        describe_action(env),
        env_kwargs=kwargs,
    )
    path = folder / "policy.safetensors"
    save_checkpoint(path, Checkpoint(blueprint, blueprint.create(seed=0).state_dict()))
    command = [sys.executable, "-m", "fleet_tools.serve", str(path), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], process.pid
        finally:
            process.terminate()
