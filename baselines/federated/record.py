"""The folder of a fleet, stored so that a kill at any moment costs little.

    config.json             what it follows from (`Experiment`)
    state.safetensors       all that it takes to go on (`Record`)
    replies/N.safetensors   what robot N replied in the round that is being played
    rounds.jsonl            a line for every round (`Told`)
    merged.safetensors      the policy after the last round (`policies.checkpoint`)
    robots/N.safetensors    the policy of robot N before the last merge; at the end
    fine_tuned.safetensors  the merged policy, trained on the driver's episodes; at the end
    report.json             what came of it (`summary`); at the end

The lines and policies follow from the state, which is stored first.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import Plan
from fleet_tools.baselines.federated.rounds import Round
from fleet_tools.baselines.merging.queries.wire import packed
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
from fleet_tools.baselines.training.errors import TrainingError
from fleet_tools.baselines.training.experiment import packages
from fleet_tools.baselines.training.record import claim
from fleet_tools.baselines.training.state import Tensors
from fleet_tools.config.values import Value, differences, parse
from fleet_tools.storage.atomic_files import whole

STATE, ROUNDS, MERGED = "state.safetensors", "rounds.jsonl", "merged.safetensors"
REPLIES, ROBOTS = "replies", "robots"

VERSION = 2
"""Of what `config.json` says and means."""

_KEY = "fleet_tools_fleet"


class Experiment(Value):
    """The content of `config.json`.

    Attributes:
        version: `VERSION`.
        config: What was asked for.
        content_digest: Of which episodes there are.
        blueprint: Of all policies.
        packages: Versions on which the bits of a result depend.
    """

    version: Literal[2] = VERSION
    config: FleetConfig
    content_digest: str
    blueprint: Blueprint
    packages: dict[str, str]

    @classmethod
    def of(cls, plan: Plan) -> "Experiment":
        """What follows from a plan, on this machine."""
        return cls(
            config=plan.config,
            content_digest=plan.content_digest,
            blueprint=plan.blueprint,
            packages=packages(),
        )

    def differences(self, other: "Experiment") -> list[str]:
        """Says what another one has otherwise."""
        return differences(self._flat(), other._flat())

    def _flat(self) -> dict[str, object]:
        parts = self.model_dump(mode="json", exclude={"blueprint"})  # it follows from the others
        config = parts.pop("config")
        training = {f"training.{name}": each for name, each in config.pop("training").items()}
        return {**parts, **config, **training}


class ToldOfRobot(Value):
    """What is told of a robot in a round.

    Attributes:
        robot: Its number.
        steps: Of its data, if it said so.
        loss: The mean over them, likewise.
        left_out: Why it was not merged, if it was not.
        calls: How many messages it was sent.
        bytes_to_it, bytes_from_it: Of messages.
    """

    robot: int
    steps: int | None
    loss: float | None
    left_out: str | None
    calls: int
    bytes_to_it: int
    bytes_from_it: int


class Told(Value):
    """What is told of a round: a line of `rounds.jsonl`.

    Attributes:
        round: Its number, from 1.
        epochs: Of every robot that always took part, so far.
        robots: Those that took part in this one.
        bytes_so_far: To and from robots, since the beginning.
        loss: Of the merged policy on the driver's episodes.
        moved: The share of units that alignment moved; None where it averaged softly.
        rollouts: By task, as `training.rollouts` counts them; None where it was not tried.
        seconds: It took, since it was last begun.
    """

    round: int
    epochs: int
    robots: tuple[ToldOfRobot, ...]
    bytes_so_far: int
    loss: float
    moved: float | None
    rollouts: dict[str, Any] | None
    seconds: float


@dataclass(frozen=True, eq=False)
class Record:
    """How far a fleet is.

    Attributes:
        told: Of all rounds so far.
        weights: Merged in the last one; None before the first.
        robots: Everyone's, that were merged in it.
    """

    told: tuple[Told, ...] = ()
    weights: Tensors | None = None
    robots: Mapping[int, Tensors] = field(default_factory=dict)

    def with_round(
        self, plan: Plan, played: Round, rollouts: dict[str, Any] | None, seconds: float
    ) -> "Record":
        """Returns the record after another round."""
        robots = tuple(
            ToldOfRobot(
                robot=robot,
                steps=part.reply and part.reply.steps,
                loss=part.reply and part.reply.loss,
                left_out=part.left_out,
                calls=part.traffic.calls,
                bytes_to_it=part.traffic.bytes_to_robots,
                bytes_from_it=part.traffic.bytes_from_robots,
            )
            for robot, part in played.parts.items()
        )
        told = Told(
            round=played.number,
            epochs=played.number * plan.config.epochs_per_round,
            robots=robots,
            bytes_so_far=(self.told[-1].bytes_so_far if self.told else 0)
            + sum(each.bytes_to_it + each.bytes_from_it for each in robots),
            loss=played.loss,
            moved=played.moved,
            rollouts=rollouts,
            seconds=round(seconds, 3),
        )
        merged = {k: part.reply for k, part in played.parts.items() if part.left_out is None}
        weights = {robot: reply.weights for robot, reply in merged.items()}
        return Record((*self.told, told), played.weights, weights)


def open_folder(folder: Path, plan: Plan) -> Record:
    """Begins the folder of a fleet, or reads what is there already.

    Returns:
        How far it is.

    Raises:
        TrainingError: It holds another fleet, something else, or a state that cannot be read.
    """
    claim(folder, Experiment.of(plan), "fleet")
    return load(folder) if (folder / STATE).is_file() else Record()


def keep_reply(folder: Path, robot: int, reply: bytes) -> None:
    """Stores what a robot replied in the round that is being played."""
    (folder / REPLIES).mkdir(exist_ok=True)
    with whole(folder / REPLIES / f"{robot}.safetensors") as aside:
        aside.write_bytes(reply)


def kept_replies(folder: Path) -> dict[int, bytes]:
    """Reads what robots replied before the driver was stopped."""
    paths = (folder / REPLIES).glob("[0-9]*.safetensors")
    return {int(path.stem): path.read_bytes() for path in paths}


def save(folder: Path, plan: Plan, record: Record) -> None:
    """Stores how far a fleet is after a round; what was stored before is there until then.

    Raises:
        OSError: The disk is full or gone.
    """
    from safetensors.torch import save_file

    named = {"merged": record.weights} | {
        f"{ROBOTS}/{robot}": weights for robot, weights in record.robots.items()
    }
    tensors = {
        f"{kind}/{name}": packed(tensor)
        for kind, weights in named.items()
        for name, tensor in weights.items()
    }
    notes = json.dumps([told.model_dump(mode="json") for told in record.told])
    with whole(folder / STATE) as aside:
        save_file(tensors, aside, {_KEY: notes})
    shutil.rmtree(folder / REPLIES, ignore_errors=True)
    store_policies(folder, plan, record)


def store_policies(folder: Path, plan: Plan, record: Record) -> None:
    """Stores what follows from a state."""
    with whole(folder / ROUNDS) as aside:
        aside.write_text("".join(f"{told.to_json()}\n" for told in record.told))
    save_checkpoint(folder / MERGED, Checkpoint(plan.blueprint, record.weights))


def store_robots(folder: Path, plan: Plan, record: Record) -> None:
    """Stores everyone's policy before the last merge."""
    (folder / ROBOTS).mkdir(exist_ok=True)
    for robot, weights in record.robots.items():
        path = folder / ROBOTS / f"{robot}.safetensors"
        save_checkpoint(path, Checkpoint(plan.blueprint, weights))


def load(folder: Path) -> Record:
    """Reads how far a fleet is.

    Raises:
        TrainingError: The file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / STATE
    named: dict[str, dict[str, Any]] = {}
    try:
        with safe_open(path, "pt") as file:
            notes = json.loads((file.metadata() or {})[_KEY])
            for key in file.keys():  # noqa: SIM118
                kind, _, name = key.rpartition("/")
                named.setdefault(kind, {})[name] = file.get_tensor(key).clone()
        told = tuple(parse(Told, line, str(path)) for line in notes)
        merged = named.pop("merged")
        robots = {int(kind.removeprefix(f"{ROBOTS}/")): named[kind] for kind in named}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise TrainingError(
            f"{path} cannot be read ({error}). Delete {folder}, and begin again."
        ) from None
    return Record(told, merged, dict(sorted(robots.items())))
