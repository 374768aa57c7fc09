"""Who has which episodes, and what all robots share."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleet_tools.baselines.federated.config import FleetConfig, Split
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.training.config import TrainingConfig
from fleet_tools.baselines.training.experiment import blueprint_of, content_digest, split
from fleet_tools.config.values import Value
from fleet_tools.dataset.mapped import StoredEpisode
from fleet_tools.dataset.partition import dirichlet_partition
from fleet_tools.dataset.samples import Samples
from fleet_tools.errors import ConfigError

_OF_ROBOT, _OF_INITIALIZATION, _OF_ROUND, _OF_MERGE = range(4)


class Assignment(Value):
    """All that a robot is told once: where its data are, and what it is to make of them.

    Attributes:
        robot: Its number, from 0.
        data: Folders.
        episodes: Its own, as places among those of the folders that succeeded.
        content_digest: Of which episodes these are.
        blueprint: Of the policy.
        training: How it trains; its own seed.
        initialization: Seed of the weights at which it begins.
    """

    robot: int
    data: tuple[str, ...]
    episodes: tuple[int, ...]
    content_digest: str
    blueprint: Blueprint
    training: TrainingConfig
    initialization: int


@dataclass(frozen=True, eq=False)
class Home:
    """What a robot has.

    Attributes:
        assignment: What it is told.
        kinds: How many episodes of which kind, as `Split.by` tells them apart.
        data_bytes: Of what it learns from: actions, and what the policy reads, not compressed.
    """

    assignment: Assignment
    kinds: dict[str, int]
    data_bytes: int


@dataclass(frozen=True, eq=False)
class Plan:
    """A fleet before its first round.

    Attributes:
        config: What it follows from, with the data.
        content_digest: Of which episodes these are.
        blueprint: Of all policies.
        homes: Of all robots.
        held: The driver's own episodes.
        held_bytes: As `Home.data_bytes`.
    """

    config: FleetConfig
    content_digest: str
    blueprint: Blueprint
    homes: tuple[Home, ...]
    held: Samples
    held_bytes: int

    @property
    def seed(self) -> int:
        """Of everything that is drawn."""
        return self.config.training.seed

    @classmethod
    def of(cls, config: FleetConfig) -> "Plan":
        """Deals the episodes. Of robots' own it reads what the manifests say, and no file.

        Raises:
            ConfigError: There are too few episodes, or too few kinds of them.
            DatasetError, LayoutError, UnknownNameError: They cannot be read, or not by this policy.
        """
        samples = Samples(config.data, observations=config.policy.reads or None)
        seed = config.training.seed
        # By their places, so that robots find theirs again.
        rest, held = (_places(samples, part) for part in split(samples, config.held_out, seed))
        blueprint = blueprint_of(config.policy, samples.subset(held))
        kinds = [kind(samples.episodes[place], config.split.by) for place in rest]
        homes = []
        for robot, part in enumerate(deal(kinds, config.robots, config.split, seed)):
            own = samples.subset([rest[place] for place in part])
            common = config.initialization == "common"
            assignment = Assignment(
                robot=robot,
                data=config.data,
                episodes=tuple(rest[place] for place in part),
                content_digest=content_digest(own),
                blueprint=blueprint,
                training=config.training.model_copy(
                    update={"seed": derived(seed, _OF_ROBOT, robot)}
                ),
                initialization=derived(seed, _OF_INITIALIZATION, 0 if common else robot),
            )
            counted = Counter(kinds[place] for place in part)
            homes.append(Home(assignment, dict(sorted(counted.items())), _bytes(own, blueprint)))
        held = samples.subset(held)
        return cls(
            config, content_digest(samples), blueprint, tuple(homes), held, _bytes(held, blueprint)
        )

    def participants(self, number: int) -> list[int]:
        """Returns the robots that take part in a round, ascending; at least one."""
        count = max(1, round(self.config.participation * len(self.homes)))
        generator = np.random.default_rng(derived(self.seed, _OF_ROUND, number))
        return sorted(generator.choice(len(self.homes), count, replace=False).tolist())

    def merge_seed(self, number: int) -> int:
        """Returns the seed of all that a round's merge draws."""
        return derived(self.seed, _OF_MERGE, number)


def deal(kinds: Sequence[str], robots: int, how: Split, seed: int) -> list[list[int]]:
    """Deals items to robots.

    Args:
        kinds: Of every item.
        robots: How many.
        how: Under which distribution.
        seed: Of all that is drawn.

    Returns:
        The places of every robot's items, ascending.

    Raises:
        ConfigError: There are more robots than items, or than kinds where a kind is not divided.
    """
    if how.by == "nothing":
        return [list(range(len(kinds))) for _ in range(robots)]
    if how.alpha is not None:
        return dirichlet_partition(kinds, robots, how.alpha, np.random.default_rng(seed))
    known = sorted(set(kinds))
    if robots > len(known):
        raise ConfigError(
            f"Each kind goes to one robot, and there are {len(known)} by {how.by} "
            f"({', '.join(known)}) for {robots} robots. Give fewer robots, or an alpha."
        )
    owner = {name: place % robots for place, name in enumerate(known)}
    return [
        [place for place, name in enumerate(kinds) if owner[name] == robot]
        for robot in range(robots)
    ]


def kind(episode: StoredEpisode, by: str) -> str:
    """Returns what an episode is one of, when they are told apart by `Split.by`."""
    record = episode.record
    parts = {
        "task": (),
        "nothing": (),
        "tool": (record.tool,),
        "object": (record.object,),
        "pair": (record.tool, record.object),
    }
    return " ".join(filter(None, (episode.task, *parts[by])))


def derived(seed: int, *places: int) -> int:
    """Returns a seed for one of several purposes, independent of all others' seeds."""
    return int(np.random.SeedSequence((seed, *places)).generate_state(1)[0])


def _places(samples: Samples, part: Samples) -> list[int]:
    places = {episode: place for place, episode in enumerate(samples.episodes)}
    return [places[episode] for episode in part.episodes]


def _bytes(samples: Samples, blueprint: Blueprint) -> int:
    arrays = [*blueprint.observation.values(), blueprint.action]
    a_step = sum(int(np.prod(each.shape)) * np.dtype(each.dtype).itemsize for each in arrays)
    return a_step * sum(episode.record.steps for episode in samples.episodes)
