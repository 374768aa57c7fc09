"""The plan of a fleet: the robots' data, and their common settings."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from fleet_merging.average import floating_tensors
from fleet_merging.modules import keeps_statistics
from fleet_merging.moments.affine_maps import AffineMap
from fleet_merging.moments.rows import input_rows
from fleet_merging.queries.data_holder import LocalDataHolder
from fleet_merging.queries.query import LossAnswer, LossQuery
from fleet_merging.queries.validity import Limits, Sizes
from fleet_merging.symmetry.table import Symmetry
from fleet_tools.baselines.federated.config import FleetConfig, PartitionConfig
from fleet_tools.baselines.federated.life import Stay
from fleet_tools.baselines.federated.messages import Assignment
from fleet_tools.baselines.federated.robot import first_weights, local_data_holder
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import BACKBONE, Origin
from fleet_tools.baselines.policies.heads import largest_target
from fleet_tools.baselines.policies.layout import entries_of_sight
from fleet_tools.baselines.training.demonstrations import (
    Batch,
    Trajectories,
    blueprint_of,
    content_digest,
    require_steps,
    split,
)
from fleet_tools.baselines.training.loop import validate
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.dataset.partition import dirichlet_partition
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.stored_episode import StoredEpisode
from fleet_tools.envs.array_spec import LIMITS
from fleet_tools.errors import ConfigError, require_name
from fleet_tools.robot.arm import load_robot

_ROBOT, _INITIALIZATION, _ROUND, _MERGE, _STATES, _SCENES, _EPISODES = range(7)
"""Purposes of seeds, see `derive_seed`."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """Data of a robot.

    Attributes:
        assignment: The robot's assignment, which locates the data.
        tasks: Settings of its episodes, see `Header.setting`.
        episode_counts: Number of episodes by kind, see `PartitionConfig.by`.
        data_bytes: Uncompressed size of the actions and of the observations that the policy reads.
        steps: Number of steps to imitate.
        stay: When it takes part in the life of its fleet; None without one.
    """

    assignment: Assignment
    tasks: tuple[str, ...]
    episode_counts: dict[str, int]
    data_bytes: int
    steps: int = 0
    stay: Stay | None = None


@dataclass(frozen=True, eq=False)
class FleetPlan:
    """A fleet before its first round.

    Attributes:
        config: Configuration of the fleet.
        content_digest: Hash of all episodes of the datasets.
        blueprint: Blueprint of all policies.
        clients: Data of the robots, by robot number.
        held_out: The held-out episodes.
        held_out_bytes: Their size, as `ClientData.data_bytes`.
        server: The episodes of the server: public ones, and unless it is blind those held out.
    """

    config: FleetConfig
    content_digest: str
    blueprint: Blueprint
    clients: tuple[ClientData, ...]
    held_out: Samples
    held_out_bytes: int
    server: Samples

    @classmethod
    def of(cls, config: FleetConfig) -> Self:
        """Partitions the episodes. Of the robots' datasets, only the manifests are read.

        Raises:
            ConfigError: There are too few episodes, or too few kinds of them. Or a group's arm has
                no model or no data, or its robots lack entries of the policy.
            EventError: There are too few episodes for a robot that arrives.
            DatasetError, LayoutError: The datasets cannot be read, or not by this policy; or a part
                of them has no step to imitate.
            UnknownNameError: A group's arm or observation does not exist.
        """
        samples = Samples(config.data, observations=config.policy.reads or None)
        _require_arms(config, samples)
        seed = config.training.seed
        learned, held_out = split(samples, config.held_out, seed)
        indices = {episode: index for index, episode in enumerate(samples.episodes)}
        rest = _some([indices[episode] for episode in learned.episodes], samples, config)
        learned = samples.subset(rest)
        server = held_out if not config.public else server_samples(config, ())
        _require_every_task(config, samples, server)
        blueprint, backbone = blueprint_of(config.policy, server), config.backbone
        backbone_digest = None
        if backbone is not None:
            blueprint, backbone_digest = backbone.blueprint(blueprint), backbone.digest()
        kinds = [episode_kind(samples.episodes[index], config.split.by) for index in rest]
        streaming, lacks = config.assigned_streaming(), _lacks(config, samples, blueprint)
        if config.life is None:
            arms = [samples.episodes[index].header.robot for index in rest]
            stays, parts, rounds = (), _parts(kinds, arms, config), config.rounds
        else:
            stays, rounds = config.life.stays(), 1  # each month has a schedule of its own
            found = config.life.parts(samples, rest, derive_seed(seed, _EPISODES))
            place = {index: number for number, index in enumerate(rest)}
            parts = [[place[index] for index in part] for part in found]
        clients = []
        for robot, part in enumerate(parts):
            stay = stays[robot] if stays else None
            times = rounds * (1 if stay is None else stay.times)
            episodes = tuple(rest[index] for index in part)
            own = samples.subset(episodes)
            require_steps(
                own,
                f"The part of robot {robot}",
                "Give fewer robots, another `split` or `training.seed`, or collect more.",
            )
            common = config.initialization == "common"
            assignment = Assignment(
                robot=robot,
                data=config.data,
                episodes=episodes,
                content_digest=content_digest(own),
                blueprint=blueprint,
                training=config.training.model_copy(
                    update={
                        "seed": derive_seed(seed, _ROBOT, robot),
                        "epochs": times * local_epochs(config, own, learned),
                    }
                ),
                initialization=derive_seed(seed, _INITIALIZATION, 0 if common else robot),
                backbone=backbone,
                backbone_digest=backbone_digest,
                moment_noise=config.moment_noise,
                lacks=lacks[robot] if lacks else (),
                **streaming,
            )
            counts = dict(sorted(Counter(kinds[index] for index in part).items()))
            tasks = tuple(sorted({episode.header.setting for episode in own.episodes}))
            size, steps = data_bytes(own, blueprint), int(own.imitate.sum())
            clients.append(ClientData(assignment, tasks, counts, size, steps, stay))
        return cls(
            config,
            content_digest(samples),
            blueprint,
            tuple(clients),
            held_out,
            data_bytes(held_out, blueprint),
            server,
        )

    @property
    def notes(self) -> Mapping[str, Any]:
        """Notes of the fleet's policies, see `Checkpoint`."""
        backbone, digest = self.config.backbone, self.assignments[0].backbone_digest
        if backbone is None or digest is None:
            return {}
        return {BACKBONE: Origin(name=backbone.name, file_digest=digest).model_dump()}

    @property
    def seed(self) -> int:
        """Seed of all random numbers."""
        return self.config.training.seed

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """Assignments of the robots, by robot number."""
        return tuple(client.assignment for client in self.clients)

    def limits(self, robot: int) -> Limits:
        """Returns the bounds of a robot's honest answers.

        Manifests, or the reports of nodes, give the number of steps of its episodes.
        """
        uploads = self.config.uploads
        return Limits(
            noise=self.config.moment_noise + (0.0 if uploads is None else uploads.rounding),
            label=math.inf
            if self.blueprint.reading
            else largest_target(self.config.policy.head, LIMITS["action"][1]),
            steps=self.clients[robot].data_bytes // step_bytes(self.blueprint),
            least_loss=0.0,
        )

    @cached_property
    def held_out_trajectories(self) -> Trajectories:
        """The held-out episodes as tensors."""
        return Trajectories(self.held_out, self.blueprint)

    @cached_property
    def server_trajectories(self) -> Trajectories:
        """The server's episodes as tensors."""
        if self.server is self.held_out:
            return self.held_out_trajectories
        return Trajectories(self.server, self.blueprint)

    @cached_property
    def _first_batch(self) -> Batch:
        trajectories = self.server_trajectories
        return trajectories.batch(trajectories.order(self.config.training.batch_size, None)[0])

    @cached_property
    def shared_data_holder(self) -> LocalDataHolder:
        """Holder of the server's own episodes, common to all models of a merge."""
        trajectories, size = self.server_trajectories, self.config.training.batch_size
        return local_data_holder(self.blueprint, trajectories, size)

    @cached_property
    def symmetry(self) -> Symmetry:
        """Table of axes of all policies."""
        return self.blueprint.symmetry()

    @cached_property
    def form(self) -> Tensors:
        """State dict of a policy, with shapes and without numbers."""
        return self.blueprint.create_empty().state_dict()

    @cached_property
    def has_statistics(self) -> bool:
        """Whether policies have BatchNorms, which need new statistics after an average."""
        return any(map(keeps_statistics, self.blueprint.create_empty().modules()))

    @cached_property
    def affine_maps(self) -> tuple[AffineMap, ...]:
        """The affine maps of all policies in the order in which they are applied."""
        return self.blueprint.affine_maps()

    def held_out_loss(self, weights: Tensors) -> float:
        """Returns the mean loss of a policy over the steps of the held-out episodes."""
        return validate(self.blueprint, self.held_out_trajectories, self.config.training, weights)

    def sizes_of(self, weights: Tensors) -> Sizes:
        """Returns sizes of a robot's weights, for the comparison of robots; see `outlier`.

        Losses and inputs of layers are measured on one batch of the server's episodes.
        """
        holder = self.shared_data_holder
        query = LossQuery(weights, 0, gradient=False)
        loss = cast(LossAnswer, holder.answer(query)).loss
        largest = {
            f"largest number in {name}": float(tensor.abs().max())
            for name, tensor in floating_tensors(weights).items()
            if tensor.numel()
        }
        names = [each.name for each in self.affine_maps]
        rows = input_rows(holder.model, weights, (self._first_batch.observations,), names)
        read = {
            f"input of {name} on held-out steps": _root(float(each.double().square().mean()))
            for name, each in rows.items()
        }
        return largest | read | {"error on held-out steps": _root(loss)}

    def first_base(self) -> Tensors | None:
        """Returns the common initial weights of all robots; None if each has its own."""
        if self.config.initialization == "own":
            return None
        return first_weights(self.assignments[0])

    def participants(self, round_number: int) -> list[int]:
        """Returns the numbers of the robots that take part in a round, ascending."""
        if self.config.life is not None:
            stays = enumerate(client.stay for client in self.clients)
            return [k for k, stay in stays if stay is not None and round_number in stay.rounds]
        count = math.ceil(self.config.closing.over_sampling * self.wanted(round_number))
        generator = np.random.default_rng(derive_seed(self.seed, _ROUND, round_number))
        robots = len(self.clients)
        return sorted(generator.choice(robots, min(robots, count), replace=False).tolist())

    def wanted(self, round_number: int) -> int:
        """Returns the number of answers for which a round waits, at least one."""
        if self.config.life is not None:
            return max(1, len(self.participants(round_number)))
        return max(1, round(self.config.participation * len(self.clients)))

    def epochs(self, robot: int, round_number: int) -> tuple[int, int]:
        """Returns a robot's numbers of epochs before a round, and in it.

        With `equal_steps`, these are its own. In a life, each month begins anew.
        """
        every = self.clients[robot].assignment.training.epochs
        if self.config.life is not None:
            return 0, every
        epochs = every // self.config.rounds
        return (round_number - 1) * epochs, epochs

    def most_bytes(self, robot: int) -> float:
        """Returns how many bytes a robot may upload in a round."""
        stay = self.clients[robot].stay
        return math.inf if stay is None or stay.bytes is None else stay.bytes

    def forgotten(self, round_number: int) -> set[int]:
        """Returns the robots to forget before a round is merged."""
        leavers = ((k, each.stay.forgotten) for k, each in enumerate(self.clients) if each.stay)
        return {robot for robot, month in leavers if month is not None and month <= round_number}

    def merge_seed(self, round_number: int) -> int:
        """Returns the seed of a round's merge."""
        return derive_seed(self.seed, _MERGE, round_number)

    @property
    def states_seed(self) -> int:
        """Seed of the states that are drawn for distillation."""
        return derive_seed(self.seed, _STATES)

    def scenes_seed(self, actor: int, task: int) -> int:
        """Returns the seed of the scenes that are simulated for distillation.

        Args:
            actor: Number of the policy that acts.
            task: Number of the task.
        """
        return derive_seed(self.seed, _SCENES, actor, task)


def _root(square: float) -> float:
    return math.sqrt(square) if 0 <= square < math.inf else math.inf


def server_samples(config: FleetConfig, uploads: Sequence[str | Path]) -> Samples:
    """Returns the server's samples: its own, and the uploads of robots.

    Args:
        config: Configuration of the fleet.
        uploads: Folders of datasets, see `dataset.uploads`.
    """
    every = Samples(
        [*config.data, *config.public, *uploads], observations=config.policy.reads or None
    )
    indices = {episode: index for index, episode in enumerate(every.episodes)}
    private = set(map(Path, config.data))
    of_robots = [episode for episode in indices if episode.folder in private]
    _, held_out = split(
        every.subset(indices[each] for each in of_robots), config.held_out, config.training.seed
    )
    known = () if config.server_blind else held_out.episodes
    others = (episode for episode in indices if episode.folder not in private)
    return every.subset(indices[episode] for episode in (*known, *others))


def _require_arms(config: FleetConfig, samples: Samples) -> None:
    """Checks that the arms of all groups exist and have data."""
    collected = {episode.header.robot for episode in samples.episodes}
    for arm in config.arms.keys() - collected:
        load_robot(arm)  # raises if it does not exist, or has no model
        raise ConfigError(
            f"A group of robots has the arm {arm}, and the fleet's data are of "
            f"{', '.join(sorted(collected))}. Collect some by `fleet-tools collect --robot {arm}`, "
            "and name their folder in `data`."
        )


def _some(episodes: list[int], samples: Samples, config: FleetConfig) -> list[int]:
    """Returns the episodes of robots, ascending; of each arm in proportion to its robots."""
    counts = list(config.arms.values()) or [config.robots]
    pools = [
        [index for index in episodes if samples.episodes[index].header.robot == arm]
        for arm in config.arms
    ] or [episodes]
    if config.episodes is None:
        return sorted(itertools.chain(*pools))
    generator = np.random.default_rng(derive_seed(config.training.seed, _EPISODES))
    ends = [round(config.episodes * part / sum(counts)) for part in itertools.accumulate(counts)]
    chosen: list[int] = []
    for pool, wanted in zip(pools, np.diff(ends, prepend=0).tolist(), strict=True):
        if wanted > len(pool):
            of_arm = f", {wanted} of an arm," if config.groups else ""
            raise ConfigError(
                f"`episodes: {config.episodes}`{of_arm} exceed the {len(pool)} that are not held "
                "out. Give fewer, or collect more."
            )
        drawn = generator.choice(len(pool), wanted, replace=False)
        chosen += [pool[index] for index in drawn]
    return sorted(chosen)


def _parts(kinds: Sequence[str], arms: Sequence[str], config: FleetConfig) -> list[list[int]]:
    """Returns the numbers of each robot's episodes, see `partition`; of its own arm if given.

    Args:
        kinds: Kind of each episode.
        arms: Arm of each episode.
        config: Configuration of the fleet.
    """
    seed, split = config.training.seed, config.split
    if not config.groups or split.pooled:
        return partition(kinds, config.robots, split, seed)
    of_arm = {}
    for arm, robots in config.arms.items():
        own = [number for number, each in enumerate(arms) if each == arm]
        parts = partition([kinds[number] for number in own], robots, split, seed)
        of_arm[arm] = iter([[own[k] for k in part] for part in parts])
    return [next(of_arm[group.robot]) for group in config.groups for _ in range(group.robots)]


def _lacks(config: FleetConfig, samples: Samples, blueprint: Blueprint) -> list[tuple[str, ...]]:
    """Returns the entries of the policy that each robot lacks; nothing if no robot lacks one."""
    lacks: list[tuple[str, ...]] = []
    for group in config.groups:
        offered = next(
            each.header.observation for each in samples.episodes if each.header.robot == group.robot
        )
        has = group.observations or tuple(offered)
        for name in has:
            require_name(f"observation of the robot {group.robot}", name, offered)
        absent = tuple(name for name in blueprint.observation if name not in has)
        if needed := [name for name in absent if name not in blueprint.optional]:
            raise ConfigError(
                f"A group of robots with the arm {group.robot} lacks {', '.join(needed)}, which "
                f"the policy reads; it has {', '.join(has)}. Name the missing ones in `policy: "
                "{optional: [...]}`, or the entries to read in `policy: {reads: [...]}`."
            )
        if set(sights := entries_of_sight(blueprint.observation)) <= set(absent):
            raise ConfigError(
                f"A group of robots with the arm {group.robot} has none of {', '.join(sights)}, by "
                f"which the policy sees the object; it has {', '.join(has)}. Give it one of them."
            )
        lacks += [absent] * group.robots
    return [] if config.split.pooled else lacks


def _require_every_task(config: FleetConfig, samples: Samples, server: Samples) -> None:
    """Checks that the server has all tasks, and so knows the entries to hide, see `task_hidden`."""
    every, known = ({episode.task for episode in each.episodes} for each in (samples, server))
    if config.policy.task_hidden and not every <= known:
        raise ConfigError(
            f"`policy.task_hidden` needs episodes of all {len(every)} tasks on the server, but it "
            f"has only {len(known)}, without {', '.join(sorted(every - known))}. Give a larger "
            "`held_out`, or `public` data of these."
        )


def local_epochs(config: FleetConfig, own: Samples, learned: Samples) -> int:
    """Returns the number of epochs for which a robot trains in each round.

    With `equal_steps`, it is the least number of whole epochs with at least the gradient steps of a
    robot that has all episodes. A batch has `batch_size` steps to imitate; with memory, whole
    episodes of about as many steps.

    Args:
        config: Configuration of the fleet.
        own: The robot's episodes.
        learned: The episodes of all robots.
    """
    epochs = config.epochs_per_round
    if not config.equal_steps:
        return epochs
    batches, size = [], config.training.batch_size
    for samples in (own, learned):
        steps = samples.lengths if config.policy.with_memory else samples.imitate
        batches.append(max(1, math.ceil(int(steps.sum()) / size)))
    return math.ceil(epochs * batches[1] / batches[0])


def partition(
    kinds: Sequence[str], robots: int, config: PartitionConfig, seed: int
) -> list[list[int]]:
    """Partitions episodes among robots.

    Args:
        kinds: Kind of each episode.
        robots: Number of robots.
        config: How to partition.
        seed: Seed of the draws.

    Returns:
        Indices of each robot's episodes in `kinds`, ascending.

    Raises:
        ConfigError: There are more robots than episodes, or than kinds if these are not divided.
    """
    if config.by == "nothing":
        return [list(range(len(kinds))) for _ in range(robots)]
    if config.alpha is not None:
        return dirichlet_partition(kinds, robots, config.alpha, np.random.default_rng(seed))
    known = sorted(set(kinds))
    if robots > len(known):
        raise ConfigError(
            f"Without alpha, all episodes of one {config.by} belong to one robot, but there are "
            f"only {len(known)} ({', '.join(known)}) for {robots} robots. Give fewer robots, or an "
            "alpha."
        )
    owner = {name: index % robots for index, name in enumerate(known)}
    return [
        [index for index, name in enumerate(kinds) if owner[name] == robot]
        for robot in range(robots)
    ]


def episode_kind(episode: StoredEpisode, by: str) -> str:
    """Returns the kind of an episode, such as "hammer claw" or "hammer@ur5e claw".

    Args:
        episode: The episode.
        by: Property that distinguishes kinds, see `PartitionConfig.by`.
    """
    record = episode.record
    parts = {
        "task": (),
        "nothing": (),
        "tool": (record.tool,),
        "object": (record.object,),
        "pair": (record.tool, record.object),
    }
    return " ".join(filter(None, (episode.header.setting, *parts[by])))


def derive_seed(seed: int, *purpose: int) -> int:
    """Returns a seed for one purpose, statistically independent of those for other purposes.

    Args:
        seed: Seed of the fleet.
        purpose: Numbers that identify the purpose.
    """
    return int(np.random.SeedSequence((seed, *purpose)).generate_state(1)[0])


def data_bytes(samples: Samples, blueprint: Blueprint) -> int:
    """Returns the uncompressed size of the actions and of the observations that a policy reads."""
    return step_bytes(blueprint) * sum(episode.record.steps for episode in samples.episodes)


def step_bytes(blueprint: Blueprint) -> int:
    """Returns the uncompressed size of one step."""
    arrays = [*blueprint.observation.values(), blueprint.action]
    return sum(int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize for each in arrays)
