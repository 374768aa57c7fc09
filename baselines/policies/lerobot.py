"""A policy of LeRobot, trained on an exported dataset, as a policy to serve.

This module runs in an environment of LeRobot's, which needs neither Drake nor Ray. In a checkout:

    python3 -m pip install --no-deps .
    python3 -m pip install lazy-loader msgpack pydantic tyro websockets
    fleet-tools serve FOLDER --header data/few-lerobot/meta/fleet_tools.json

A LeRobot checkpoint is a folder with `config.json`, `model.safetensors`, and the processors that
normalize its inputs and outputs (https://github.com/huggingface/lerobot).
"""

import contextlib
import hashlib
import importlib
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.baselines.policies.checkpoint import CheckpointError
from fleet_tools.dataset.header import SCHEMA_VERSION, Header
from fleet_tools.envs.observation_modes import observation_kwargs
from fleet_tools.errors import ConfigError, MissingLibraryError
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.lerobot_features import ACTION, FeatureNames
from fleet_tools.policies.wire_messages import Hello
from fleet_tools.storage.locked_folder import read_document

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"


_drawing = threading.Lock()


class LeRobotPolicy:
    """Acts as a policy of LeRobot in its own rollouts, on the CPU.

    Args:
        folder: Folder of the checkpoint.
        header: Header of the dataset that it learned.

    Attributes:
        observation: Layout of the entries that it reads.

    Raises:
        CheckpointError: LeRobot cannot load it, or its inputs or outputs differ from the dataset's.
        MissingLibraryError: LeRobot is absent.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        try:
            import torch

            configs = importlib.import_module("lerobot.configs.policies")
            factory = importlib.import_module("lerobot.policies.factory")
            utils = importlib.import_module("lerobot.policies.utils")
        except ImportError as error:
            raise MissingLibraryError(
                f"{folder} is a folder, as policies of LeRobot are, but LeRobot is not installed "
                f"({error}). Serve it from an environment with LeRobot: docs/tutorials/serving.md."
            ) from error
        overrides = {"device_processor": {"device": "cpu"}}  # for any device of its training
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is the program's
                config = configs.PreTrainedConfig.from_pretrained(folder)
                config.device = "cpu"
                network = factory.get_policy_class(config.type)
                self._policy = network.from_pretrained(folder, config=config)
                self._before, self._after = factory.make_pre_post_processors(
                    config, str(folder), preprocessor_overrides=overrides
                )
        except Exception as error:  # LeRobot's errors have many types
            raise CheckpointError(f"LeRobot cannot load {folder}: {error}") from error
        self._names = FeatureNames.of(header.observation)
        self._inputs = [*config.input_features]
        _require_fit(config, self._names, header)
        self.observation = {
            entry: header.observation[entry]
            for name in self._inputs
            for entry in self._names.entries_of(name)
        }
        device, task = torch.device("cpu"), header.task_description()
        self._batch = partial(utils.prepare_observation_for_inference, device=device, task=task)

    def reset(self, seed: int = 0) -> None:
        """Forgets the last episode, and the rest of a chunk.

        Args:
            seed: Seed of the policy's draws in this episode.
        """
        import torch

        self._random = torch.Generator().manual_seed(seed).get_state()
        for each in (self._policy, self._before, self._after):
            each.reset()

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action, in the units of the dataset."""
        import torch

        features = self._names.features_of_step(observation)
        inputs = {name: np.array(features[name]) for name in self._inputs}
        with torch.inference_mode(), _drawing:  # LeRobot draws from torch's global generator
            torch.set_rng_state(self._random)
            batch = self._before(self._batch(inputs))
            action = self._after(self._policy.select_action(batch))
            self._random = torch.get_rng_state()
        return action.squeeze(0).numpy()


def served_lerobot(folder: Path, header_file: Path | None) -> Served:
    """Reads a checkpoint of LeRobot to be served.

    Args:
        folder: Folder of the checkpoint.
        header_file: Header of the dataset that it learned, `dataset.json` of the dataset or
            `meta/fleet_tools.json` of its export.

    Raises:
        ConfigError: There is no such file, or it holds no header.
        CheckpointError, MissingLibraryError: See `LeRobotPolicy`.
    """
    if header_file is None:
        raise ConfigError(
            f"{folder} is a folder, as policies of LeRobot are. Give its observations with "
            "--header: the file meta/fleet_tools.json of the dataset on which it was trained."
        )
    header = read_document(header_file, Header, SCHEMA_VERSION, ConfigError)
    policy = LeRobotPolicy(folder, header)
    hello = Hello(
        policy=folder.name,
        blueprint_digest=_digest(folder / _CONFIG),
        content_digest=_digest(folder / _CONFIG, folder / _WEIGHTS),
        observation=policy.observation,
        action=header.action,
        control_period_s=1.0 / header.control_rate_hz,
        env_kwargs=observation_kwargs(header.env_spec.kwargs),
    )
    return Served(hello, lambda: LeRobotPolicy(folder, header))


def _require_fit(config: Any, names: FeatureNames, header: Header) -> None:
    """Checks that a policy reads and returns the dataset's entries."""
    zeros = {name: np.zeros(array.shape) for name, array in header.observation.items()}
    offered = {name: array.shape for name, array in names.features_of_step(zeros).items()}
    for name in names.color_images.values():  # LeRobot's images begin with their channels
        height, width, channels = offered[name]
        offered[name] = (channels, height, width)
    found = []
    for name, feature in config.input_features.items():
        if offered.get(name) != tuple(feature.shape):
            found.append(f"{name} is {tuple(feature.shape)}, not {offered.get(name, 'there')}")
    action = tuple(config.output_features[ACTION].shape)
    if action != header.action.shape:
        found.append(f"the action is {action}, not {header.action.shape}")
    if found:
        raise CheckpointError(
            f"The policy was trained on another dataset than the header's: {'; '.join(found)}."
        )


def _digest(*paths: Path) -> str:
    digest = hashlib.blake2b()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
