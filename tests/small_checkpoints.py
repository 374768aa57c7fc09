"""Checkpoints for tests: policies that have learned nothing, and act."""

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.policies.config import MLP, PolicyConfig
from fleet_tools.dataset.header import describe_action, describe_observation
from fleet_tools.registration import make_environment

SMALL_BODY = MLP(layers=1, width=8)


def untrained(path, config=None, seed=0, **keywords):
    """Stores a policy for hammers, and returns its path as text."""
    env = make_environment(task="hammer", **keywords)
    config = config or PolicyConfig(body=SMALL_BODY)
    blueprint = Blueprint.of(
        config, describe_observation(env), describe_action(env), environment=keywords
    )
    save_checkpoint(path, Checkpoint(blueprint, blueprint.create(seed=seed).state_dict()))
    return str(path)
