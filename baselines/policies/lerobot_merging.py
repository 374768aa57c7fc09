"""Policies of LeRobot as a merge problem, and the folder of a merged one.

Like `lerobot`, it runs in an environment of LeRobot's. It supports ACT and diffusion policies; the
table of axes is derived from the computation of an acting network.
"""

import contextlib
import importlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from fleet_merging.average import AveragingWeights
from fleet_merging.errors import MergeError
from fleet_merging.problem import MergeProblem
from fleet_merging.symmetry.table import State
from fleet_merging.user_models import problem_of
from fleet_tools.baselines.model_files import IncompatiblePoliciesError
from fleet_tools.config.values import by_dotted_keys, differences
from fleet_tools.errors import MissingLibraryError
from fleet_tools.storage import strict_json

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_PREFIX = "policy."
"""Prefix of a policy's names in `ActingNetwork`."""

_IMAGES = "observation.images"

_OF_TRAINING = (
    "device", "use_amp", "use_peft", "push_to_hub", "repo_id", "private", "tags", "license",
    "pretrained_path", "pretrained_backbone_weights", "dropout", "kl_weight", "compile_model",
    "compile_mode", "optimizer_", "scheduler_", "do_mask_loss_for_padding", "drop_n_last_frames",
)  # fmt: skip
"""Prefixes of fields of `config.json` that do not affect a trained policy."""


class ActingNetwork(nn.Module):
    """The acting part of a policy of LeRobot, as a function of tensors.

    Args:
        policy: An ACT or a diffusion policy.

    Raises:
        MergeError: It is another policy.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__()
        if policy.name not in ("act", "diffusion"):
            raise MergeError(
                f"The policy is {policy.name!r}, but only LeRobot's act and diffusion are "
                "supported. Merge its modules by `fleet_merging.merge` with an `example`."
            )
        self.policy = policy

    def forward(self, observations: Mapping[str, torch.Tensor], *noisy: torch.Tensor) -> Any:
        """Returns the chunk of an ACT policy, or a diffusion policy's answer for noisy actions.

        Args:
            observations: By feature; of a diffusion policy, of several steps.
            noisy: Of a diffusion policy, noisy actions (B, horizon, n), and levels (B,).
        """
        batch: dict[str, Any] = dict(observations)
        images = list(self.policy.config.image_features)
        if self.policy.name == "act":
            if images:
                batch[_IMAGES] = [batch[name] for name in images]
            return self.policy.model(batch)[0]
        if images:
            batch[_IMAGES] = torch.stack([batch[name] for name in images], -4)
        diffusion = self.policy.diffusion
        return diffusion.unet(*noisy, global_cond=diffusion._prepare_global_conditioning(batch))

    def example(self) -> tuple[Any, ...]:
        """Returns arguments for two rows of random observations."""
        config, generator = self.policy.config, torch.Generator().manual_seed(0)
        steps = () if self.policy.name == "act" else (config.n_obs_steps,)
        observed = {
            name: torch.rand(2, *steps, *feature.shape, generator=generator)
            for name, feature in config.input_features.items()
        }
        if self.policy.name == "act":
            return (observed,)
        shape = (2, config.horizon, *config.action_feature.shape)
        levels = torch.randint(0, config.num_train_timesteps, (2,), generator=generator)
        return (observed, torch.randn(shape, generator=generator), levels)


def is_lerobot(path: Path) -> bool:
    """Whether a path is the folder of a policy of LeRobot."""
    return path.is_dir() and all((path / name).is_file() for name in (_CONFIG, _WEIGHTS))


def lerobot_problem(
    folders: Sequence[Path],
    base: Path | None = None,
    averaging_weights: AveragingWeights | None = None,
    *,
    seed: int = 0,
    method: str = "naive_average",
) -> MergeProblem:
    """Returns the problem of merging policies of LeRobot.

    Args:
        folders: Folder of each, `pretrained_model`.
        base: Folder of the common initial policy, for methods on task vectors.
        averaging_weights: See `MergeProblem`.
        seed: See `MergeProblem`.
        method: The method.

    Raises:
        IncompatiblePoliciesError: Two differ in config, or in the statistics of their scaling.
        MissingLibraryError: LeRobot is absent.
        MergeError: A policy cannot be read, or is of an unknown kind; see `problem_of`.
    """
    every = [*folders, *([] if base is None else [base])]
    for other in every[1:]:
        _require_alike(every[0], other)
    policies = [ActingNetwork(_load(folder)).eval() for folder in every]
    return problem_of(
        policies[: len(folders)],
        base=None if base is None else policies[-1],
        example=policies[0].example(),
        averaging_weights=averaging_weights,
        seed=seed,
        method=method,
    )


def write_lerobot(folder: Path, like: Path, state: State) -> None:
    """Writes a merged policy, with the config and the processors of one of its models.

    Args:
        folder: The folder, which does not exist.
        like: Folder of the model.
        state: State dict of `lerobot_problem`'s merge.
    """
    policy = _load(like)
    policy.load_state_dict({name.removeprefix(_PREFIX): each for name, each in state.items()})
    shutil.copytree(like, folder, ignore=shutil.ignore_patterns(_WEIGHTS, "train_config.json"))
    policy.save_pretrained(folder)


def _load(folder: Path) -> Any:
    try:
        configs = importlib.import_module("lerobot.configs.policies")
        factory = importlib.import_module("lerobot.policies.factory")
    except ImportError as error:
        raise MissingLibraryError(
            f"{folder} is a policy of LeRobot, which is not installed ({error}). Merge it in an "
            "environment with LeRobot: docs/tutorials/own_models.md."
        ) from error
    try:
        with contextlib.redirect_stdout(sys.stderr):
            config = configs.PreTrainedConfig.from_pretrained(folder)
            config.device = "cpu"
            return factory.get_policy_class(config.type).from_pretrained(folder, config=config)
    except Exception as error:  # LeRobot's errors have many types
        raise MergeError(f"LeRobot cannot load {folder}: {error}") from error


def _require_alike(one: Path, other: Path) -> None:
    """Raises an error unless two policies have the same config and statistics."""
    if found := differences(*map(_config, (one, other))):
        raise IncompatiblePoliciesError(
            f"{one} and {other} have different configs: in the first, {'; '.join(found)}. Only "
            "weights with the same meaning can be merged: train both with the same --policy.NAME. "
            "Settings of acting alone, such as n_action_steps and num_inference_steps, may be set "
            f"equal in {_CONFIG}."
        )
    names = sorted({each.name for folder in (one, other) for each in _statistics(folder)})
    differing = []
    for name in names:
        first, second = (
            load_file(folder / name) if (folder / name).is_file() else {} for folder in (one, other)
        )
        differing += [
            key
            for key in sorted(first.keys() | second.keys())
            if key not in first or key not in second or not torch.equal(first[key], second[key])
        ]
    if differing:
        raise IncompatiblePoliciesError(
            f"{one} and {other} differ in statistics: {', '.join(dict.fromkeys(differing))}. "
            "Train both by the statistics of all data: export the datasets together, or copy "
            "meta/stats.json of one export into the other before training."
        )


def _config(folder: Path) -> dict[str, Any]:
    try:
        content = strict_json.load(folder / _CONFIG)
    except (OSError, ValueError) as error:
        raise MergeError(f"{folder / _CONFIG} cannot be read: {error}.") from None
    flat = by_dotted_keys(content)
    return {name: value for name, value in flat.items() if not name.startswith(_OF_TRAINING)}


def _statistics(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.safetensors") if path.name != _WEIGHTS]
