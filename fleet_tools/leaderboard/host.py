"""The host's folder, `host/`: the seed of the fresh scenes, and the host's results in them.

host/round.json                  the round, see `Round`
host/.gitignore                  keeps an open round from being published by accident
host/NAME/verification.json      what the host found about the entry NAME, see `Verification`
host/NAME/DIGEST/                evaluation of one of its policies in the fresh scenes

All entries of a round are run in the same scenes. Their seed is drawn after the host has received
the entries, so that even who learns of it then cannot submit a policy for them. It is published at
the end of the round; before that, its hash is shown.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from fleet_tools.config.values import STORED_IF_SET, Value
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.protocol import Protocol, Scenes
from fleet_tools.evaluation.result import Evaluation
from fleet_tools.leaderboard.entries import Entry, EntryPolicy
from fleet_tools.sim.splits import EVALUATION
from fleet_tools.storage.atomic_files import write_file
from fleet_tools.storage.locked_folder import read_document

HOST = "host"
ROUND = "round.json"
VERIFICATION = "verification.json"

SCENES = 8
"""Number of fresh scenes of each task and split."""

LEAST_SCENES = 30
"""Number of fresh scenes of each task from which on a method can have a rank."""

RESERVED = range(EVALUATION.stop - 2**50, EVALUATION.stop)
"""Seeds of fresh scenes; no protocol of the package lists one of them."""


def now() -> str:
    """Returns the time; later times are greater texts."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Round(Value):
    """The content of `round.json`.

    Attributes:
        seed: The host's seed, from which all fresh scenes follow.
        drawn: When it was drawn.
        published: When it was published; None as long as only the host knows it.
        protocol: The fresh scenes: the rules of the first level, other seeds.
        received: When the host first read a policy of an entry, by `key`, in this round or a former
            one.
    """

    schema_version: Literal[1] = 1
    seed: str
    drawn: str
    published: Annotated[str | None, STORED_IF_SET] = None
    protocol: Protocol
    received: dict[str, str] = {}

    def receiving(self, entries: Sequence[Entry]) -> Self:
        """Returns the round after it has received entries, now, unless it has them already."""
        policies = [(entry, policy) for entry in entries for policy in entry.file.policies]
        new = dict.fromkeys((key(*each) for each in policies), now())
        return self.model_copy(update={"received": {**new, **self.received}})

    def has(self, entry: Entry, policy: EntryPolicy) -> bool:
        """Returns whether it received a policy before its seed was drawn."""
        when = self.received.get(key(entry, policy))
        return when is not None and when <= self.drawn

    @property
    def commitment(self) -> str:
        """Hash of the seed, which can be shown before the seed is."""
        return hashlib.sha256(self.seed.encode()).hexdigest()

    def replaced(self, root: Path, **changes: object) -> Self:
        """Stores the round with changes, and returns it."""
        changed = self.model_copy(update=changes)
        write_file(root / HOST / ROUND, changed.to_json() + "\n")
        return changed


class Verification(Value):
    """The content of `verification.json`.

    Attributes:
        name: Name of the entry.
        submission: `Entry.digest` of what was run.
        verified: When that was.
        commitment: See `Round`.
        evaluations: Hashes of the evaluations, by the hashes of the policies.
        checked: By folder of a submitted result, the hash of its episodes and what is wrong with
            them; empty if the policy acts so.
        packages: Versions of the packages of the host.
        seal: Hash of all this with the seed, which nobody but the host can make before the seed is
            public.
    """

    schema_version: Literal[1] = 1
    name: str
    submission: str
    verified: str
    commitment: str
    evaluations: dict[str, str]
    checked: dict[str, tuple[str, str]] = {}
    packages: dict[str, str]
    seal: str = ""

    def sealed(self, seed: str) -> Self:
        """Returns it with its seal."""
        content = self.model_dump(mode="json", exclude={"seal"})
        text = json.dumps(content, sort_keys=True).encode()
        seal = hmac.new(seed.encode(), text, hashlib.sha256).hexdigest()
        return self.model_copy(update={"seal": seal})


def read_round(root: Path) -> Round | None:
    """Returns the present round of a leaderboard; None before the first one.

    Raises:
        ResultError: Its file is damaged.
    """
    path = root / HOST / ROUND
    return read_document(path, Round, 1, ResultError) if path.exists() else None


def open_round(
    root: Path,
    nominal: Protocol,
    entries: Sequence[Entry],
    seed: str | None = None,
    *,
    new: bool = False,
) -> Round:
    """Returns the present round, or begins one.

    Args:
        root: Folder of the leaderboard.
        nominal: The first level of its protocol.
        entries: All entries, which it receives; a new round does so before it draws its seed.
        seed: Seed of a new round; None draws one.
        new: Whether to begin another one if there is one. Its folder is kept as `host_DATE`.

    Raises:
        ResultError: The scenes of the present round are public, or of another protocol.
    """
    present = read_round(root)
    if present is not None:  # also where it has ended: the order in which entries come matters
        present = present.replaced(root, received=present.receiving(entries).received)
    if present is not None and not new:
        if present.published is not None:
            raise ResultError(
                f"The seed of this round was published on {present.published}, so its scenes are "
                "no longer fresh. Start another round with --new-round; all entries are then run "
                "in new scenes."
            )
        if present.protocol != fresh_protocol(nominal, seed or present.seed):
            raise ResultError(
                f"The current round has scenes of another protocol, {present.protocol.title!r}. "
                "Start another round with --new-round; all entries are then run in new scenes."
            )
        return present
    folder = root / HOST
    if present is not None:
        os.rename(folder, root / f"{HOST}_{now().replace(':', '')}")
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / ".gitignore", "*\n")
    former = {} if present is None else present.received
    round_ = Round(seed="", drawn="", protocol=nominal, received=former).receiving(entries)
    seed = seed or secrets.token_hex(16)
    fresh = fresh_protocol(nominal, seed)
    return round_.replaced(root, seed=seed, drawn=now(), protocol=fresh)


def publish(root: Path) -> Round:
    """Ends the present round: its seed may be public from now on; returns the round.

    Raises:
        ResultError: There is none.
    """
    present = read_round(root)
    if present is None:
        raise ResultError(f"{root} has no round yet. Start one with `leaderboard verify`.")
    (root / HOST / ".gitignore").unlink(missing_ok=True)
    return present if present.published else present.replaced(root, published=now())


def fresh_protocol(nominal: Protocol, seed: str) -> Protocol:
    """Returns the fresh scenes of a seed: rules, tasks and splits of a protocol, other scenes."""
    splits: dict[str, Scenes] = {}
    places = len(RESERVED) // SCENES
    taken: set[int] = set()
    for split in nominal.splits:
        draws = (_draw(f"{seed} {split} {attempt}", places) for attempt in range(2**20))
        place = next(place for place in draws if place not in taken)
        taken.add(place)
        splits[split] = Scenes(scenes=SCENES, first_seed=RESERVED.start + place * SCENES)
    description = "Scenes that the host of the leaderboard drew after the submission."
    name = f"{nominal.name}-fresh"
    return nominal.model_copy(update={"name": name, "description": description, "splits": splits})


def _draw(text: str, places: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()) % places


def read_verification(root: Path, name: str) -> Verification | None:
    """Returns the host's results of an entry; None if it has not run it.

    Raises:
        ResultError: The file is damaged.
    """
    path = root / HOST / name / VERIFICATION
    return read_document(path, Verification, 1, ResultError) if path.exists() else None


def key(entry: Entry, policy: EntryPolicy) -> str:
    """Returns the identifier of a policy in `Round.received`."""
    return f"{entry.name} {entry.contents[policy]}"


def evaluation_folder(root: Path, entry: Entry, policy: EntryPolicy) -> Path:
    """Returns the folder of the host's results of a policy."""
    return root / HOST / entry.name / entry.digests[policy][:16]


def evaluation_digest(evaluation: Evaluation) -> str:
    """Returns a hash of an evaluation and its episodes, however they are stored."""
    result = evaluation.result
    digest = hashlib.sha256(f"{result.protocol_digest} {result.policy.to_json()}".encode())
    for episode in evaluation.episodes:
        digest.update(episode.to_json().encode())
    return digest.hexdigest()[:32]
