"""The folder of a fleet. A kill of the process loses little.

    config.json             the settings of the fleet (`FleetRunSpec`)
    state.safetensors       the state to resume from (`progress.FleetProgress`)
    replies/N.safetensors   reply of robot N in the present round
    exchange.safetensors    the present pass of a streaming round (`partial`)
    answers/N.jsonl         a `round_messages.ClientSummary` for each robot in streaming round N
    kept/N-M-SIZE-KEY.safetensors  answer of robot N in month M of a life (`keeping`)
    months/M.safetensors    the policy after month M of a life
    rounds.jsonl            a line for each round (`progress.RoundSummary`)
    merged.safetensors      the policy after the last round (`policies.checkpoint`)
    robots/N.safetensors    the policy of robot N before the last merge; stored at the end
    combined.safetensors    the last method's result from the robots' networks; likewise
    scenes/POLICY/TASK      datasets of the episodes for distillation (`distillation`); likewise
    distilled.safetensors   a policy that imitates the latter (`distillation`); likewise
    fine_tuned.safetensors  the merged policy, fine-tuned on the held-out episodes; likewise
    report.json             the report (`summary`); likewise

Lines and policies follow from the state, which is stored first.
"""

import contextlib
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from fleet_merging.errors import MessageError
from fleet_merging.queries.validity import NO_LIMITS
from fleet_merging.queries.wire import named
from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.messages import LocalUpdate, checked_update
from fleet_tools.baselines.federated.partial import (
    EXCHANGES,
    Partial,
    is_possible,
    load,
    store,
)
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.progress import FleetProgress, RoundSummary, defects
from fleet_tools.baselines.federated.round_messages import ClientSummary
from fleet_tools.baselines.federated.transport import read_reply, store_reply
from fleet_tools.baselines.federated.vectors import sizes
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    require_weights,
    save_checkpoint,
)
from fleet_tools.baselines.training.run import packages
from fleet_tools.baselines.training.state import Tensors, TrainingError
from fleet_tools.config.values import STORED_IF_SET, parse
from fleet_tools.dataset.stored_episode import file_digest
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.storage.locked_folder import Document
from fleet_tools.storage.run_folder import REMEDY, STATE, RunKind, RunWriter

ROUNDS = "rounds.jsonl"
MERGED, COMBINED = "merged.safetensors", "combined.safetensors"
FINE_TUNED, REPORT = "fine_tuned.safetensors", "report.json"
DISTILLED = "distilled.safetensors"
MONTHS, KEPT = "months", "kept"
REPLIES, ROBOTS, SCENES, SERVER = "replies", "robots", "scenes", "server"
EXCHANGE, ANSWERS = "exchange.safetensors", "answers"

VERSION = 1
"""Version of the content and meaning of `config.json`."""


class FleetRunSpec(Document):
    """The content of `config.json`.

    Attributes:
        version: `VERSION`.
        config: Configuration of the fleet.
        content_digest: Hash of all episodes of the datasets.
        detector_digest: Hash of the file of the configuration's detector; None if it has none.
        backbone_digest: Likewise of its backbone.
        blueprint: Blueprint of all policies.
        packages: Versions of the packages on which the bits of the result depend.
    """

    version: Literal[1] = VERSION
    config: FleetConfig
    content_digest: str
    detector_digest: Annotated[str | None, STORED_IF_SET] = None
    backbone_digest: Annotated[str | None, STORED_IF_SET] = None
    blueprint: Blueprint
    packages: dict[str, str]

    @classmethod
    def of(cls, plan: FleetPlan) -> Self:
        """Describes the run of a fleet on this machine.

        Raises:
            CheckpointError: The detector cannot be read.
        """
        detector = plan.config.detector
        if detector is not None:
            load_checkpoint(detector)
        return cls(
            config=plan.config,
            content_digest=plan.content_digest,
            detector_digest=None if detector is None else file_digest(Path(detector)),
            backbone_digest=plan.assignments[0].backbone_digest,
            blueprint=plan.blueprint,
            packages=packages(),
        )

    def essence(self) -> dict[str, object]:
        """Returns the settings that must not change within one run, by their names in messages."""
        parts = self.model_dump(mode="json", exclude={"blueprint"})  # it follows from the rest
        config = parts.pop("config")
        training = {f"training.{name}": value for name, value in config.pop("training").items()}
        return {**parts, **config, **training}


FLEET = RunKind(
    what="a fleet",
    maker="python -m fleet_tools.baselines.fleet",
    error=TrainingError,
    document=FleetRunSpec,
    version=VERSION,
    log_name=ROUNDS,
    state_key="fleet_tools_fleet",
)
"""Folders that hold fleets."""


class FleetWriter(RunWriter[FleetRunSpec]):
    """Stores a new fleet, or resumes one that was begun with the same configuration.

    Args:
        folder: Created if it does not exist; otherwise empty, or the folder of the same fleet.
        plan: The fleet.

    Attributes:
        plan: As given.

    Raises:
        TrainingError: The folder holds something else, or another process is writing to it.
    """

    def __init__(self, folder: Path, plan: FleetPlan) -> None:
        self.plan = plan
        super().__init__(FLEET, folder, FleetRunSpec.of(plan))

    def load(self) -> FleetProgress | None:
        """Returns the stored progress; None before the end of the first round.

        Raises:
            TrainingError: The state is missing or damaged, or not one of this fleet.
        """
        if not self.has_state():
            return None
        progress = load_progress(self.folder)
        if found := defects(self.plan, progress):
            raise TrainingError(f"{self.folder / STATE} is damaged: {found}. {REMEDY}")
        return progress

    def save(self, progress: FleetProgress) -> None:
        """Stores the progress after a round, and the files that follow from it.

        Raises:
            OSError: The disk is full or gone; the progress before is still stored.
        """
        tensors = named("merged/", progress.weights)
        for robot, weights in progress.robot_weights.items():
            tensors |= named(f"{ROBOTS}/{robot}/", weights)
        for name, state in progress.server_state.items():
            tensors |= named(f"{SERVER}/{name}/", state)
        rounds = [each.model_dump(mode="json", by_alias=True) for each in progress.rounds]
        self.save_state(tensors, rounds, _lines(progress))
        shutil.rmtree(self.folder / REPLIES, ignore_errors=True)
        (self.folder / EXCHANGE).unlink(missing_ok=True)
        self._save_rest(progress)

    def finish(self, progress: FleetProgress) -> None:
        """Stores robots' policies, and files that a kill after the last round left out.

        Args:
            progress: The progress after the last round.
        """
        shutil.rmtree(self.folder / REPLIES, ignore_errors=True)
        self._save_rest(progress)
        if progress.robot_weights:
            (self.folder / ROBOTS).mkdir(exist_ok=True)
        for robot, weights in progress.robot_weights.items():
            self._save_policy(f"{ROBOTS}/{robot}.safetensors", weights)

    def replies(self, round_number: int) -> dict[int, LocalUpdate]:
        """Returns the stored replies to a round, by robot number.

        Damaged replies are left out, and replies to an earlier round, which a kill may have left.
        """
        replies = {}
        for path in (self.folder / REPLIES).glob("[0-9]*.safetensors"):
            with contextlib.suppress(MessageError):
                if path.stem.isdecimal():
                    robot, plan = int(path.stem), self.plan
                    limits = plan.limits(robot) if robot < len(plan.clients) else NO_LIMITS
                    reply = read_reply(path)
                    replies[robot] = checked_update(reply, round_number, plan.form, limits)
        return replies

    def save_reply(self, robot: int, reply: LocalUpdate) -> None:
        """Stores a robot's reply in the present round."""
        (self.folder / REPLIES).mkdir(exist_ok=True)
        store_reply(self.folder / REPLIES / f"{robot}.safetensors", reply)

    def partial(self) -> Partial | None:
        """Returns the unfinished pass of a streaming round; None if there is none."""
        found = load(self.folder / EXCHANGE)
        if found is None:
            return None
        try:
            require_weights(self.plan.form, found.reference)
        except CheckpointError:
            return None
        reference = {name: found.reference[name] for name in self.plan.form}
        participants = self.plan.participants(found.session // EXCHANGES)
        if not is_possible(found, sum(sizes(reference)), participants):
            return None
        return replace(found, reference=reference)

    def save_partial(self, partial: Partial) -> None:
        """Stores a pass in progress.

        Raises:
            OSError: The disk is full or gone.
        """
        store(self.folder / EXCHANGE, partial)

    def save_answers(self, round_number: int, robots: Iterable[ClientSummary]) -> None:
        """Stores the traffic of each robot in a streaming round, a line for each.

        Raises:
            OSError: The disk is full or gone.
        """
        (self.folder / ANSWERS).mkdir(exist_ok=True)
        lines = "".join(f"{each.to_json()}\n" for each in robots)
        write_file(self.folder / ANSWERS / f"{round_number}.jsonl", lines)

    def _save_rest(self, progress: FleetProgress) -> None:
        self.write_log(_lines(progress))
        self._save_policy(MERGED, progress.weights)

    def _save_policy(self, name: str, weights: Tensors) -> None:
        policy = Checkpoint(self.plan.blueprint, weights, self.plan.notes)
        save_checkpoint(self.folder / name, policy)


def load_progress(folder: Path) -> FleetProgress:
    """Reads the progress of a fleet.

    Raises:
        TrainingError: The state is missing or damaged.
    """
    return FLEET.read_state(folder, _progress)


def _progress(tensors: dict[str, Any], data: Any) -> FleetProgress:
    owners: dict[str, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        owner, _, name = key.rpartition("/")
        owners.setdefault(owner, {})[name] = tensor
    rounds = tuple(parse(RoundSummary, each, "A round") for each in data)
    merged = owners.pop("merged")
    server = {
        owner.removeprefix(f"{SERVER}/"): owners.pop(owner)
        for owner in sorted(owners)
        if owner.startswith(f"{SERVER}/")
    }
    robots = {int(owner.removeprefix(f"{ROBOTS}/")): owners[owner] for owner in owners}
    return FleetProgress(rounds, merged, dict(sorted(robots.items())), server)


def _lines(progress: FleetProgress) -> list[str]:
    return [each.to_json() for each in progress.rounds]


def restart(folder: Path) -> Path | None:
    """Sets the folder of a fleet aside, see `RunKind.set_aside`."""
    return FLEET.set_aside(folder)
