"""Options for the policy of a training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import pydantic
from tyro.conf import UseAppendAction, arg

from fleet_tools.config.options import OptionGroup
from fleet_tools.utils.option_parser import KeyValue

# PyTorch is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.baselines.policies.blueprint import Blueprint
    from fleet_tools.baselines.policies.config import PolicyConfig


class PolicyOptions(OptionGroup):
    """The policy."""

    architecture: str | None = None
    """Architecture of the policy: mlp, elman, lstm, gru or transformer; with the prefix pointnet_
    or resnet_ for point clouds or images; or the path of a PolicyConfig as JSON, FILE.json."""
    like: Path | None = None
    """Checkpoint of a policy whose architecture, observations and scaling are taken over, so that
    the two can be merged; its weights are not used."""
    settings: Annotated[UseAppendAction[tuple[KeyValue, ...]], arg(name="set")] = ()
    """Setting of the architecture, such as body.width=256, clouds.widths=[64,128], head.type=flow
    (or diffusion), chunk=6 or body.task_conditioning=film; may be repeated."""
    observations: tuple[str, ...] = ()
    """Entries of the observation that the policy reads (default: all)."""

    @pydantic.model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.architecture is None) == (self.like is None):
            raise ValueError("give either --architecture or --like")
        if self.like is not None and (self.settings or self.observations):
            raise ValueError(
                "--like determines the architecture and what it reads; leave out --set and "
                "--observations, or give --architecture instead"
            )
        return self

    def read(self) -> tuple["PolicyConfig", "Blueprint | None"]:
        """Returns the policy's configuration, and the blueprint that it takes over, if any."""
        from fleet_tools.baselines.policies.checkpoint import load_checkpoint
        from fleet_tools.baselines.policies.reading import read_policy_config

        if self.like is not None:
            model = load_checkpoint(self.like).blueprint
            return model.config, model
        assert self.architecture is not None
        observations = self.observations or None
        return read_policy_config(self.architecture, self.settings, observations), None
