"""LeRobot's own evaluation of a repository of its environment hub; needs LeRobot."""

# pyright: reportMissingImports=false

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.envs.factory import make_env
from lerobot.envs.utils import close_envs
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.scripts.lerobot_eval import eval_policy
from support.repeated_results import action_of, result_of

REPOSITORY, COMMIT = "fleet-tools/tool-use", "0" * 40
N_ENVS = 2


def written_repository(folder: Path, monkeypatch: pytest.MonkeyPatch, file: Path) -> str:
    """Writes a repository as it lies in the hub's cache once it was downloaded.

    Args:
        folder: Becomes the cache.
        monkeypatch: Keeps the hub offline.
        file: The file that becomes `env.py`.

    Returns:
        Name of the repository.
    """
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    cached = folder / f"models--{REPOSITORY.replace('/', '--')}"
    (cached / "snapshots" / COMMIT).mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text(COMMIT)
    (cached / "snapshots" / COMMIT / "env.py").write_text(file.read_text())
    return REPOSITORY


class RepeatingPolicy(PreTrainedPolicy):
    """Repeats actions of results, from a task's first scene on, as many at a time as asked."""

    config_class = PreTrainedConfig
    name = "repeating"

    def __init__(self, task: str) -> None:
        torch.nn.Module.__init__(self)
        self.config: Any = SimpleNamespace()
        self._task, self._first, self._step = task, -N_ENVS, 0

    def reset(self) -> None:
        """Goes on to the next scenes."""
        self._first, self._step = self._first + N_ENVS, 0

    def select_action(self, batch: dict[str, Any], **others: Any) -> torch.Tensor:
        """Returns the actions of the present step, (environments, 6)."""
        assert batch["observation.state"].shape[0] == N_ENVS == len(batch["task"])
        actions = [
            torch.from_numpy(action_of(result_of(self._task, number), self._step).copy())
            for number in range(self._first, self._first + N_ENVS)
        ]
        self._step += 1
        return torch.stack(actions)

    def forward(self, batch: dict[str, Any]) -> Any:
        raise NotImplementedError

    def predict_action_chunk(self, batch: dict[str, Any], **others: Any) -> torch.Tensor:
        raise NotImplementedError

    def get_optim_params(self) -> dict[str, Any]:
        raise NotImplementedError


def evaluated(
    repository: str, cache: Path, task: str, episodes: int, use_async_envs: bool
) -> list[bool]:
    """Returns whether LeRobot counts each of a task's first episodes as a success."""
    with pytest.raises(RuntimeError, match="trust_remote_code"):
        make_env(repository)
    envs = make_env(
        repository,
        n_envs=N_ENVS,
        use_async_envs=use_async_envs,
        hub_cache_dir=str(cache),
        trust_remote_code=True,
    )
    processors: Any = [lambda each: each] * 4
    try:
        env = envs[task][0]
        result = eval_policy(env, RepeatingPolicy(task), *processors, episodes, start_seed=0)
    finally:
        close_envs(envs)
    return [bool(each["success"]) for each in result["per_episode"]]
