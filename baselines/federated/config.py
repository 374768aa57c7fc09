"""Configuration of a fleet; `python -m fleet_tools.baselines.fleet` reads it from YAML."""

from collections import Counter
from typing import Annotated, Any, Literal, Self

import pydantic

from fleet_merging.methods import registry
from fleet_merging.methods.options import MethodOptions, keyword_arguments
from fleet_tools.baselines.federated.backbone import BackboneConfig
from fleet_tools.baselines.federated.compact import UploadConfig
from fleet_tools.baselines.federated.life import Life
from fleet_tools.baselines.federated.round_config import (
    ClosingConfig,
    ServerConfig,
    StreamingConfig,
    require_streamable,
)
from fleet_tools.baselines.policies.config import PolicyConfig, policy_config
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.config.values import (
    STORED_IF_SET,
    Count,
    CountOrZero,
    NonNegative,
    Number,
    Positive,
    Value,
)
from fleet_tools.errors import ConfigError
from fleet_tools.robot.arm import DEFAULT_ROBOT


class PartitionConfig(Value):
    """Partition of episodes among robots.

    Attributes:
        by: Property that distinguishes kinds of episodes: their task, tool, object, or pair of tool
            and object. With "nothing", every robot has all episodes, and alpha is ignored.
        alpha: Parameter of the Dirichlet distribution of each robot's mixture of kinds
            (`dataset.partition`). Towards 0, a robot has one kind; towards infinity, all have the
            same mixture. None gives all episodes of a kind to one robot, in turn.
        pooled: Whether robots share the episodes of all arms in `groups`, as in references;
            otherwise each has only episodes of its own arm.
    """

    by: Literal["task", "tool", "object", "pair", "nothing"] = "tool"
    alpha: Positive | None = 0.3
    pooled: Annotated[bool, STORED_IF_SET] = False


class GroupConfig(Value):
    """Robots of a fleet that have the same arm and the same sensors.

    Attributes:
        robots: Number of robots.
        robot: Name of their arm; their episodes were collected with it.
        observations: Names of the entries of their sensors; empty for all. They train without the
            others, which have to be `optional` for the policy (`PolicyConfig`).
    """

    robots: Count = 1
    robot: str = DEFAULT_ROBOT
    observations: tuple[str, ...] = ()


class FineTuningConfig(Value):
    """Training on the held-out episodes, after the last round (the paper's figure 3c).

    Attributes:
        epochs: Number of epochs.
        learning_rate: Learning rate of Adam.
        start: Whether it begins with the merged weights, or with untrained ones as a control.
    """

    start: Literal["merged", "untrained"] = "merged"
    epochs: Count = 20
    learning_rate: Positive = 1e-4


class DistillationConfig(Value):
    """Distillation of the last method's result into a policy of the robots' size.

    Attributes:
        inputs: "scenes": observations of episodes that the server simulates, half each with the
            combined and the merged policy (ensemble distillation, Lin et al. 2020).
            "moments": states drawn from the Gaussians of the density-gated ensemble, without
            simulation or queries.
        scenes: Number of simulated episodes of each task.
        states: Number of drawn states.
        epochs: Number of epochs.
        learning_rate: Learning rate of Adam.
    """

    inputs: Literal["scenes", "moments"] = "scenes"
    scenes: Annotated[Count, pydantic.Field(ge=2)] = 100
    states: Count = 100_000
    epochs: Count = 30
    learning_rate: Positive = 1e-3


def _with_named_policy(given: Any) -> Any:
    return policy_config(given) if isinstance(given, str) else given


class FleetConfig(Value):
    """Configuration of a fleet.

    Attributes:
        data: Folders of datasets. Their episodes are partitioned among the robots.
        public: Folders of datasets of the server, for example of other tasks.
        episodes: Total number of episodes of all robots, drawn at random; None for all.
        policy: Name of one of `policies.config.ARCHITECTURES`, or a policy's own configuration.
        method: Merging method: a name, or module:function; see `merging.methods.registry.find`.
        options: Options of the method and of its `Descent`, by name.
        later_method: Merging method of all rounds but the first, with its default options; None
            for `method` in all of them.
        robots: Number of robots.
        groups: Their arms and sensors, group by group; empty for equal robots. Each arm gets a part
            of `episodes` in proportion to its robots.
        split: Partition of the episodes among the robots.
        held_out: Fraction of the episodes that no robot has. They measure the loss of merged
            policies.
        server_blind: Whether the server has only `public` data; otherwise it also has the held-out
            episodes. The server measures the scaling of inputs and fine-tunes on its data.
        training: Training of each robot; `epochs` counts the epochs of all rounds, and `seed`
            determines all random numbers.
        merge_every: Number of epochs between two merges; None merges once, at the end.
        equal_steps: Whether each robot trains for at least the gradient steps of one robot that has
            all their episodes. This takes more epochs, see `plan.local_epochs`. Otherwise all
            robots train for equally many epochs.
        participation: Fraction of the robots that take part in a round, drawn anew for each.
        server: Optimizer of the server, which takes a step towards each merge; None takes merged
            weights as they are. With "own" initial weights, the first round has no such step.
        initialization: "own" draws initial weights for each robot. "common" draws them once, as a
            control for alignment.
        backbone: A trained policy that robots fine-tune, with `initialization: common`; None for
            random initial weights. With `uploads`, robots send only changed tensors, and adapters
            as factors.
        moment_noise: Standard deviation of the Gaussian noise that robots add to second moments,
            relative to the root mean square of the matrix's entries.
        last_method: Merging method after the last round, evaluated instead of the merged policy;
            None for none. It may be an ensemble: "density_gated_ensemble" (`policies.network`),
            "gated_refit" (with refitted last layers), or "concatenation" (one last layer fitted to
            the hidden units of all networks). Or it is "structured_compression" (one network, of
            the robots' width or an option `width`), or any other method.
        last_options: Options of the last method.
        distillation: Distillation of the last method's result, evaluated instead of it. Training
            begins with the last merged weights. None for none.
        fine_tuning: Fine-tuning of the last merged policy; None for none.
        rollouts: Number of validation scenes of each task in which merged policies are evaluated.
        detector: Checkpoint of a keypoint detector. Policies learn and are merged on exact
            keypoints, and are evaluated on keypoints that it detects in point clouds. None for
            none.
        rollout_every: Number of rounds from one evaluation to the next. The last round is always
            evaluated, after the last method and `distillation`.
        try_robots: Whether to evaluate robots' own policies before the last merge, too: in all
            tasks, or with "own_tasks" in the tasks of their episodes.
        streaming: Lets robots align at home and send changes, which the server adds up at once.
            Fleets of any size then need the memory of one policy. None merges all policies of a
            round at once. Of the methods, naive_average, git_rebasin and fleet_merge can stream.
        closing: When a round closes.
        uploads: Compression of robots' answers; None sends them as they are.
        life: Arrivals and departures of robots, with their episodes, in place of `robots`, `split`
            and `participation`. With a `last_method`, the server keeps each robot's last answers,
            and merges them anew each month; robots train from their own weights. None keeps all
            robots from the first round to the last.
        frozen: Whether robots of a life do not train: they answer queries of the `last_method`
            about the common initial weights.
        personal_ridge: Weight of the final policy's last layer in each robot's fit to its own
            episodes at home (`life_report.personalize`); 0 for no such fit.
    """

    data: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    public: Annotated[tuple[str, ...], STORED_IF_SET] = ()
    episodes: Annotated[Count | None, STORED_IF_SET] = None
    policy: Annotated[PolicyConfig, pydantic.BeforeValidator(_with_named_policy)]
    method: str
    options: MethodOptions = {}
    later_method: Annotated[str | None, STORED_IF_SET] = None
    robots: Count = 5
    groups: Annotated[tuple[GroupConfig, ...], STORED_IF_SET] = ()
    split: PartitionConfig = PartitionConfig()
    held_out: Annotated[Number, pydantic.Field(gt=0, lt=1)] = 0.1
    server_blind: Annotated[bool, STORED_IF_SET] = False
    training: TrainingConfig = TrainingConfig()
    merge_every: Count | None = None
    equal_steps: Annotated[bool, STORED_IF_SET] = False
    participation: Annotated[Number, pydantic.Field(gt=0, le=1)] = 1.0
    server: ServerConfig | None = None
    initialization: Literal["own", "common"] = "own"
    backbone: Annotated[BackboneConfig | None, STORED_IF_SET] = None
    moment_noise: NonNegative = 0.0
    last_method: str | None = None
    last_options: MethodOptions = {}
    distillation: DistillationConfig | None = None
    fine_tuning: FineTuningConfig | None = None
    rollouts: CountOrZero = 0
    detector: Annotated[str | None, STORED_IF_SET] = None
    rollout_every: Count = 1
    try_robots: bool | Literal["own_tasks"] = False
    streaming: StreamingConfig | None = None
    closing: ClosingConfig = ClosingConfig()
    uploads: Annotated[UploadConfig | None, STORED_IF_SET] = None
    life: Annotated[Life | None, STORED_IF_SET] = None
    frozen: Annotated[bool, STORED_IF_SET] = False
    personal_ridge: Annotated[NonNegative, STORED_IF_SET] = 0.0

    @pydantic.model_validator(mode="after")
    def _require_all_robots_in_groups(self) -> Self:
        count = sum(self.arms.values())
        if self.groups and not self.split.pooled and count != self.robots:
            raise ConfigError(
                f"`groups` have {count} robots together, and `robots: {self.robots}` are in the "
                f"fleet; give `robots: {count}`, or other groups"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _require_server_data(self) -> Self:
        if both := sorted(set(self.data) & set(self.public)):
            raise ConfigError(
                f"{', '.join(both)} is both in `data` and in `public`; remove it from one of them"
            )
        if self.server_blind and not self.public:
            raise ConfigError(
                "`server_blind: true` needs `public` data, because the server measures the scaling "
                "of inputs; give some"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _require_possible_method(self) -> Self:
        if self.later_method is not None:
            registry.find(self.later_method)
        if self.backbone is not None and self.initialization != "common":
            raise ConfigError(
                "robots with a `backbone` begin with its weights; give `initialization: common`"
            )
        if "base" in registry.needs(self.method) and self.initialization != "common":
            raise ConfigError(
                f"`method: {self.method}` needs common initial weights, but each robot starts from "
                "its own; give `initialization: common`"
            )
        if (
            self.method_options().get("width") is not None
            and self.method == "structured_compression"
        ):
            raise ConfigError(
                "the merged policy must keep the robots' width, because they train it further; "
                "give `last_method: structured_compression` with `last_options: {width: ...}` to "
                "change the width after the last round"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _require_streamable(self) -> Self:
        if self.streaming is not None:
            require_streamable(
                self.streaming, self.method, self.method_options(), self.initialization
            )
            if self.equal_steps:
                raise ConfigError("robots with `streaming` train for equally many epochs")
            if self.later_method is not None:
                raise ConfigError("robots with `streaming` have one `method` for all rounds")
            if self.uploads is not None:
                raise ConfigError("`streaming` has its own `bits`; leave out `uploads`")
            if self.last_method is not None or self.try_robots:
                raise ConfigError(
                    "`streaming` does not store robots' weights, which `last_method` and "
                    "`try_robots` need; give one or the other"
                )
        return self

    @pydantic.model_validator(mode="after")
    def _require_possible_life(self) -> Self:
        if self.life is None:
            if self.frozen or self.personal_ridge:
                raise ConfigError("`frozen` and `personal_ridge` need a `life`; give one")
            return self
        refused = (
            "merge_every",
            "equal_steps",
            "streaming",
            "distillation",
            "fine_tuning",
            "groups",
        )
        if given := [name for name in refused if getattr(self, name)]:
            raise ConfigError(
                f"a `life` has a round each month, of `training.epochs`; leave out {given[0]}"
            )
        if self.frozen and (self.last_method is None or self.initialization != "common"):
            raise ConfigError(
                "`frozen` robots only answer queries about common weights; give a `last_method` "
                "and `initialization: common`"
            )
        if self.keeps and self.policy.encoders:
            raise ConfigError(
                "the server of a `life` keeps answers from month to month, but answers about "
                "features change with the encoders; leave out `last_method`"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _require_possible_last_method(self) -> Self:
        if (last := self.last_method) is None:
            if self.last_options:
                raise ConfigError("`last_options` needs a `last_method`; give one")
            return self
        width = keyword_arguments(last, self.last_options).get("width")
        if last == "structured_compression" and width is not None:
            self._require_width(width)
        if "base" in registry.needs(last):
            raise ConfigError(
                f"`last_method: {last}` needs the common weights at the start of the last round, "
                "which are not stored; give it as `method`"
            )
        return self

    def _require_width(self, width: int) -> None:
        """Raises an error unless `structured_compression` can make a network of this width."""
        body: Any = self.policy.body
        if self.policy.with_width(width) is None:
            raise ConfigError(
                f"`last_options: {{width: {width}}}` needs an MLP or a recurrent body and a width "
                f"of at least 1; this body is {body.type}"
            )
        if width > (most := self.robots * body.width):
            raise ConfigError(
                f"`last_options: {{width: {width}}}` exceeds the {most} units in a layer of all "
                f"robots together; give at most {most}"
            )

    @pydantic.model_validator(mode="after")
    def _require_teacher(self) -> Self:
        if self.distillation is None:
            return self
        if self.last_method is None:
            raise ConfigError("`distillation` imitates the result of a `last_method`; give one")
        if self.distillation.inputs == "scenes":
            return self
        if self.last_method not in ("density_gated_ensemble", "gated_refit"):
            raise ConfigError(
                "`distillation: {inputs: moments}` draws states from the Gaussians of a gate; "
                "give `last_method: density_gated_ensemble` or gated_refit"
            )
        if self.policy.body.type != "mlp" or self.policy.encoders:
            raise ConfigError(
                "`distillation: {inputs: moments}` draws single states, which do not teach a "
                "policy with memory or with encoders; `inputs: scenes` has episodes, and so has "
                "`last_method: distillation` with `mixtures`"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _require_whole_rounds(self) -> Self:
        if self.training.epochs % self.epochs_per_round:
            raise ConfigError(
                f"{self.training.epochs} training.epochs are not a multiple of merge_every, "
                f"{self.merge_every}; change one of them"
            )
        return self

    @property
    def arms(self) -> dict[str, int]:
        """Number of robots by the name of their arm; empty without `groups`."""
        counts: Counter[str] = Counter()
        for group in self.groups:
            counts[group.robot] += group.robots
        return dict(counts)

    @property
    def epochs_per_round(self) -> int:
        """Number of epochs between two merges."""
        return self.training.epochs if self.merge_every is None else self.merge_every

    @property
    def rounds(self) -> int:
        """Number of rounds, at least 1."""
        if self.life is not None:
            return self.life.rounds
        return self.training.epochs // self.epochs_per_round

    @property
    def keeps(self) -> bool:
        """Whether the server keeps robots' answers from month to month, see `life`."""
        return self.life is not None and self.last_method is not None

    def evaluates(self, round_number: int) -> bool:
        """Returns whether the merged policy of a round is evaluated in rollouts."""
        if self.rollouts == 0:
            return False
        if round_number == self.rounds:
            return self.last_method is None or self.keeps
        return round_number % self.rollout_every == 0

    def method_options(self) -> dict[str, Any]:
        """Returns the keyword arguments of the method.

        Raises:
            UnknownChoiceError, MergeError: There is no such method, it has no such option, or the
                option has no such value.
        """
        return keyword_arguments(self.method, self.options)

    def merging_in(self, round_number: int) -> tuple[str, dict[str, Any]]:
        """Returns the method of a round and its keyword arguments."""
        if self.later_method is not None and round_number > 1:
            return self.later_method, {}
        return self.method, self.method_options()

    def assigned_streaming(self) -> dict[str, Any]:
        """Returns the fields of assignments that robots of a streaming fleet need."""
        if self.streaming is None:
            return {}
        return {"streaming": self.streaming, "method": self.method, "options": self.options}
