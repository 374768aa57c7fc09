"""What a fleet is to do, as a value; `python -m fleet_tools.baselines.fleet` reads it from YAML."""

import json
from typing import Annotated, Any, Literal

import pydantic

from fleet_tools.baselines.merge import read_options
from fleet_tools.baselines.merging.methods import registry
from fleet_tools.baselines.policies.config import PolicyConfig, policy_config
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.config.values import Count, Positive, Value
from fleet_tools.dataset import Dataset
from fleet_tools.errors import ConfigError, UnknownNameError

REFERENCES = ("joint", "single", "task_specific")

_WITH_ACTIVATIONS = "git_rebasin_activations"


class Split(Value):
    """How episodes are dealt to robots.

    Attributes:
        by: What they differ in: their task, their tool, their object, or the pair of these; in
            nothing, where everyone has all episodes, and alpha is ignored.
        alpha: Of the Dirichlet distribution of each robot's mixture (`dataset.partition`): towards
            0, each has one kind; towards infinity, all have the same. None gives all episodes of a
            kind to one robot, and kinds to robots in turn.
    """

    by: Literal["task", "tool", "object", "pair", "nothing"] = "tool"
    alpha: Positive | None = 0.3


class FineTuning(Value):
    """How the merged policy is trained on the driver's own episodes at the end.

    Attributes:
        epochs: Over them.
        learning_rate: Of Adam.
    """

    epochs: Count = 20
    learning_rate: Positive = 1e-4


def _named_policy(given: Any) -> Any:
    return policy_config(given) if isinstance(given, str) else given


class FleetConfig(Value):
    """A run of a fleet.

    Attributes:
        data: Folders of data sets; the driver deals their episodes out, robots read them.
        policy: One of `policies.config.POLICIES`, or spelled out.
        method: As `merging.registry.find` takes it: by name, or one's own as module:function.
        options: The method's own, and of its `Descent`.
        robots: How many.
        split: Who has which episodes.
        held_out: The share of the episodes that the driver keeps: it measures the scaling of inputs
            on them, judges merged policies by their loss, and fine-tunes on them.
        training: Of each robot; `epochs` over all rounds, `seed` of everything that is drawn.
        merge_every: Epochs between two merges; None merges once, at the end.
        participation: The share of the robots that take part in a round, drawn anew for each.
        initialization: "own" for each robot, or "common" to all: the control without which nobody
            knows what alignment is worth.
        fine_tuning: None for none.
        rollouts: Scenes of each task in which merged policies are tried.
        rollout_every: After how many rounds, and at the end.
        try_robots: Whether robots' own policies before the last merge are tried at the end, too.
    """

    data: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    policy: Annotated[PolicyConfig, pydantic.BeforeValidator(_named_policy)]
    method: str
    options: dict[str, bool | int | float | str] = {}
    robots: Count = 5
    split: Split = Split()
    held_out: Annotated[float, pydantic.Field(gt=0, lt=1)] = 0.1
    training: TrainingConfig = TrainingConfig()
    merge_every: Count | None = None
    participation: Annotated[float, pydantic.Field(gt=0, le=1)] = 1.0
    initialization: Literal["own", "common"] = "own"
    fine_tuning: FineTuning | None = None
    rollouts: pydantic.NonNegativeInt = 0
    rollout_every: Count = 1
    try_robots: bool = False

    @pydantic.model_validator(mode="after")
    def _method_can_be_run(self) -> "FleetConfig":
        if self.method == _WITH_ACTIVATIONS or "activations" in self.options.values():
            raise ConfigError(
                "matching by activations needs every unit's, which the networks of policies do not "
                "tell; `method: git_rebasin` matches by weights"
            )
        if self.method == "common_init" and self.initialization != "common":
            raise ConfigError("`method: common_init` goes with `initialization: common`")
        self.method_options()
        return self

    @pydantic.model_validator(mode="after")
    def _rounds_are_whole(self) -> "FleetConfig":
        if self.training.epochs % self.epochs_per_round:
            raise ConfigError(
                f"{self.training.epochs} training.epochs cannot be parted into rounds of "
                f"{self.merge_every}; let merge_every divide them"
            )
        return self

    @property
    def epochs_per_round(self) -> int:
        """How long robots train between two merges."""
        return self.training.epochs if self.merge_every is None else self.merge_every

    @property
    def rounds(self) -> int:
        """How often they merge."""
        return self.training.epochs // self.epochs_per_round

    def method_options(self) -> dict[str, Any]:
        """Returns the keywords of the method.

        Raises:
            UnknownNameError, FleetError: There is no such method, or it has no such option, or not
                with such a value.
        """
        texts = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in self.options.items()
        ]
        return read_options(registry.find(self.method), texts)


def reference(config: FleetConfig, name: str) -> FleetConfig:
    """Returns the fleet that another one is to be compared with; it trains as long, and as large.

    Args:
        config: The other one.
        name: "joint", one robot with everyone's data; "single", robots that never merge: what
            counts are their own policies, `robots/N.safetensors`; "task_specific", likewise, each
            with all data of a task.

    Raises:
        UnknownNameError: There is no such reference.
        DatasetError: Its data cannot be read.
    """
    if name not in REFERENCES:
        raise UnknownNameError("reference", name, REFERENCES)
    tasks = {Dataset(folder).header.task.name for folder in config.data}
    alone = {"method": "naive_average", "options": {}, "merge_every": None, "participation": 1.0}
    own = {"try_robots": True, "fine_tuning": None}
    changes = {
        "joint": {"robots": 1, "split": Split()},
        "single": own,
        "task_specific": own | {"robots": len(tasks), "split": Split(by="task", alpha=None)},
    }
    return config.model_copy(update=alone | changes[name])
