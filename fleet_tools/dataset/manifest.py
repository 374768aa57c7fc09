"""`manifest.jsonl`: a line for every attempt, and which files belong to it."""

import hashlib
from functools import partial
from pathlib import Path
from typing import Annotated, Self

import pydantic

from fleet_tools.config.values import CountOrZero, Seed, Value

MANIFEST = "manifest.jsonl"
EPISODES = "episodes"
"""Folder of the episodes' files."""

MAX_STEPS = 1_000_000
"""Largest number of steps of an episode; two days at the rate of control."""

_FILE, _DIGEST = rf"^{EPISODES}/[A-Za-z0-9_-]+\.hdf5$", "^[0-9a-f]{32}$"

begin_digest = partial(hashlib.blake2b, digest_size=16)
"""Begins the hash of an episode's file; its argument is the content, or the first part of it."""


def file_digest(path: Path) -> str:
    """Returns the hash of an episode's file, hexadecimal.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, begin_digest).hexdigest()


class AttemptRecord(Value):
    """A line of the manifest: the result of one attempt.

    Attributes:
        attempt: Number of the attempt, from 0.
        seed: Seed of the attempt's scene, as for `env.reset(seed=seed)`.
        outcome: See `fleet_tools.envs.outcomes`.
        success: Whether the outcome is a success.
        steps: Number of control steps.
        file: Path of the episode, relative to the dataset; None if it was not stored.
        file_digest: Hash of the episode's file, hexadecimal; None if it was not stored.
        tool: Tool of the scene; None if the scene could not even begin.
        object: Object of the scene; likewise.
        state_digest: Hash of the final state, hexadecimal.
        seconds: Wall time.
        error: Error message, if there was an error.
        verified: Whether it was run again before it counted, and agreed bit for bit.
        info: See `fleet_tools.rollouts.episode.Episode`.
    """

    attempt: CountOrZero
    seed: Seed
    outcome: str
    success: bool
    steps: Annotated[CountOrZero, pydantic.Field(le=MAX_STEPS)]
    file: Annotated[str, pydantic.Field(pattern=_FILE)] | None = None
    file_digest: Annotated[str, pydantic.Field(pattern=_DIGEST)] | None = None
    tool: str | None = None
    object: str | None = None
    state_digest: str | None = None
    seconds: float
    error: str | None = None
    verified: bool = False
    info: dict[str, pydantic.JsonValue] = {}

    @pydantic.model_validator(mode="after")
    def _digest_of_file(self) -> Self:
        if (self.file is None) != (self.file_digest is None):
            raise ValueError("a stored episode has a file and its digest, another one neither")
        return self
