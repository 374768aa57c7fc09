"""Compact uploads of raw demonstrations, and the dataset that the receiver trains on.

Both sides know the headers of the datasets, which entries a policy reads, and the configuration. An
upload holds, for each episode, what learning needs and nothing else: no scene, no state, no reward.
Units are powers of two, so that decoded numbers are exact multiples of theirs.

    numbers  multiples of a unit, by columns over time (`storage.integers`)
    clouds   the set of a part's points on a grid, above its lowest corner, sorted by x
    images   a video for each camera and episode (AV1, by PyAV)

Who has the simulator could make everything from scene and actions. No robot could send it a scene,
so that uploads do not use this.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic

from fleet_tools.config.values import Count, Positive, Value
from fleet_tools.dataset import episode_file
from fleet_tools.dataset.attempts import scene_seed
from fleet_tools.dataset.dataset_folder import DatasetWriter
from fleet_tools.dataset.header import ArraySpec, Header
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.stored_episode import AttemptRecord, StoredEpisode, disallowed
from fleet_tools.dataset.upload_clouds import PARTS, GridClouds, exponent_of, in_units, moved
from fleet_tools.dataset.videos import read_video, write_video
from fleet_tools.envs.array_spec import ACTION_STEPS, Layout
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.errors import ConfigError, DatasetError, require_name
from fleet_tools.rollouts.episode import (
    EXPERT_ACTIONS,
    LEARNER_STEPS,
    NOISE_STEPS,
    Episode,
    hexadecimal,
)
from fleet_tools.storage.integers import packed, unpacked

MOST_NUMBERS = 2**26
"""Largest number of numbers in an upload; 1,500 episodes of clouds have 2**25."""

HAND = "end_effector_pose"
"""Entry by which a cloud moves between two that are sent."""

_ACTION, _IMITATED, _NOISE, _LEARNER = -(ACTION_STEPS.bit_length() - 1), 0, 1, 2
_DIGEST, _SIZE = 8, 4
_EXPONENTS = 120  # beyond which float32 ends
_DIGITS = 23  # of a multiple of a unit, all of which float32 keeps


class RawDataConfig(Value):
    """Compression of demonstrations; the defaults lose nothing that a policy would see.

    Attributes:
        length_unit_m: Unit of keypoints and of points of clouds, m; rounded down to a power of two,
            as the next.
        state_unit: Unit of other numbers, by their standard deviation in the robot's episodes.
        points: Number of points of each part of a cloud, chosen by farthest-point sampling; None
            for all.
        cloud_every: Steps from one cloud that is sent to the next. Between these, the tool's points
            stay in the hand, and the others in the world.
        video_quality: Constant rate factor of AV1, from 1 (best) to 63.
        choice: Which episodes are sent if not all fit: drawn at random, or those that are least
            alike ("k_centres": each is the one farthest from all before; Gonzalez 1985).
    """

    length_unit_m: Positive = 1e-3
    state_unit: Positive = 0.01
    points: Count | None = None
    cloud_every: Count = 1
    video_quality: Annotated[int, pydantic.Field(ge=1, le=63)] = 35
    choice: Literal["random", "k_centres"] = "random"


def encode(samples: Samples, folders: Sequence[Path], config: RawDataConfig) -> bytes:
    """Returns all steps of demonstrations as an upload; see `Demonstrations`."""
    demonstrations = Demonstrations(samples, folders, config)
    return demonstrations.upload(range(len(demonstrations.episodes)))


class Demonstrations:
    """Demonstrations in whole units, the content of uploads.

    Args:
        samples: The demonstrations, with the entries of the observation that are sent.
        folders: Folders of all datasets, as whoever decodes lists their headers.
        config: How they are made small.
        only_imitated: Whether steps that are not to be imitated are left out, which only policies
            with memory or chunks of actions need.

    Attributes:
        episodes: The episodes that have any step.

    Raises:
        ConfigError: An entry cannot be sent, or clouds cannot be moved between those that are.
        DatasetError: An episode cannot be read.
        MissingLibraryError: Images need PyAV.
    """

    def __init__(
        self,
        samples: Samples,
        folders: Sequence[Path],
        config: RawDataConfig,
        only_imitated: bool = False,
    ) -> None:
        self._config, self._entries = config, _Entries.of(samples.observation, config)
        numbers = {str(folder): number for number, folder in enumerate(folders)}
        read = []
        for start, length, episode in zip(
            samples.starts, samples.lengths, samples.episodes, strict=True
        ):
            rows = np.arange(start, start + length)
            if only_imitated:
                rows = rows[episode.imitate]
            if len(rows):
                batch = samples.read(rows)
                read.append((episode, numbers[str(episode.folder)], rows - start, batch))
        self.episodes: tuple[StoredEpisode, ...] = tuple(episode for episode, *_ in read)
        found = [self._entries.numbers(batch["observation"]) for *_, batch in read]
        self._units = self._entries.units(found, config)
        self._contents = [
            _Content(
                np.array([number, episode.record.attempt, len(rows)]),
                _labels(episode, rows),
                np.column_stack(
                    [
                        in_units(values, self._units),
                        in_units(batch["action"] * batch["imitate"][:, None], _ACTION),
                    ]
                ),
                [
                    GridClouds.of(
                        batch["observation"][name][:: config.cloud_every],
                        exponent_of(config.length_unit_m),
                        config.points,
                    )
                    for name in self._entries.clouds
                ],
                [batch["observation"][name] for name in self._entries.images],
                config.video_quality,
            )
            for (episode, number, rows, batch), values in zip(read, found, strict=True)
        ]

    def upload(self, chosen: Sequence[int]) -> bytes:
        """Returns some episodes, by their indices in `episodes`, as an upload."""
        contents = [self._contents[index] for index in chosen]
        if not contents:
            return b""
        facts = np.stack([each.facts for each in contents])
        columns = [*facts.T, np.concatenate([each.labels for each in contents]), self._units]
        columns.extend(np.concatenate([each.numbers for each in contents]).T)
        for index in range(len(self._entries.clouds)):
            clouds = [each.clouds[index] for each in contents]
            columns.extend(np.concatenate([each.counts for each in clouds]).T)
            columns.extend(np.concatenate([each.lowest for each in clouds]).T)
            columns.extend(np.concatenate([each.points for each in clouds]).T)
        videos = [video for each in contents for video in each.videos]
        columns.append(np.array([len(video) for video in videos], np.int64))
        numbers = packed(columns)
        body = len(numbers).to_bytes(_SIZE, "little") + numbers + b"".join(videos)
        return _digest(body) + body

    def order(self, seed: int) -> list[int]:
        """Returns the indices of the episodes in the order in which they are sent.

        Args:
            seed: Seed of the draw; of k-centres, of the first episode.
        """
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(self.episodes)).tolist()
        if self._config.choice == "random":
            return order
        features = np.stack([each.summary for each in self._contents])
        spread = features.std(0)
        features = features[:, spread > 0] / spread[spread > 0]
        chosen, nearest = [order[0]], np.full(len(features), np.inf)
        while len(chosen) < len(features):
            distances = np.linalg.norm(features - features[chosen[-1]], axis=1)
            nearest = np.minimum(nearest, distances)
            nearest[chosen] = -1.0
            chosen.append(int(nearest.argmax()))
        return chosen

    def within(self, budget: int | None, seed: int) -> tuple[bytes, list[int]]:
        """Returns the largest upload of at most some bytes, and which episodes it holds.

        Args:
            budget: Number of bytes; None for all episodes.
            seed: See `order`.
        """
        order = self.order(seed)
        fits, upload = 0, b""
        count = high = len(order)
        while fits < count:
            tried = self.upload(order[:count])
            if budget is None or len(tried) <= budget:
                fits, upload = count, tried
            else:
                high = count - 1
            count = (fits + high + 1) // 2
        return upload, order[:fits]


def decode(
    upload: bytes,
    headers: Sequence[Header],
    observations: Sequence[str],
    config: RawDataConfig,
    folder: Path,
) -> list[Path]:
    """Writes the episodes of an upload as datasets, one for each that it was made of.

    Their episodes have no scene and so cannot be replayed; what was not sent is zero, and the
    observation after the last action repeats the one before. Decoding is deterministic.

    Args:
        upload: The upload; one without bytes holds no episode.
        headers: Headers of the datasets, as they were listed when it was made.
        observations: Names of the entries of the observation that it holds.
        config: As it was made.
        folder: Folder for the datasets, which is created.

    Returns:
        Folders of the datasets.

    Raises:
        DatasetError: The upload is damaged, cut off, or does not fit headers and configuration.
            Nothing was written.
        MissingLibraryError: Images need PyAV.
    """
    if not upload:
        return []
    for name in observations:
        require_name("entry of the observation", name, headers[0].observation)
    layout = {name: headers[0].observation[name] for name in sorted(observations)}
    own = [header.model_copy(update={"observation": layout}) for header in headers]
    try:
        if upload[:_DIGEST] != _digest(upload[_DIGEST:]):
            raise ValueError("its digest does not match its content")
        decoded = list(_decoded(upload[_DIGEST:], own, _Entries.of(layout, config), config))
        if len({(number, record.attempt) for number, record, _ in decoded}) < len(decoded):
            raise ValueError("it holds an episode twice")
    except (ValueError, IndexError, OverflowError) as error:
        raise DatasetError(
            f"An upload of {len(upload)} bytes cannot be decoded: {error}. Make it again from the "
            "same datasets, entries and configuration, and send it."
        ) from None
    found: dict[int, list[tuple[AttemptRecord, Episode]]] = {}
    for number, record, episode in decoded:
        found.setdefault(number, []).append((record, episode))
    folders = []
    for number, episodes in sorted(found.items()):
        header = own[number]
        folders.append(folder / f"{number}_{header.task.name}")
        with DatasetWriter(folders[-1], header) as writer:
            present = {each.attempt for each in writer.records}
            for record, episode in episodes:
                if record.attempt not in present:
                    content = episode_file.to_bytes(episode, record.attempt, header.images)
                    writer.add(record, content)
    return folders


@dataclass(frozen=True, eq=False)
class _Content:
    """An episode in whole units.

    Attributes:
        facts: Number of its dataset, of its attempt, and of its steps.
        labels: Kind of each step.
        numbers: Multiples of units, (steps, columns), and of the action's.
        clouds: By entry.
        images: By entry, (steps, height, width, 3).
        quality: Of the videos.
    """

    facts: np.ndarray
    labels: np.ndarray
    numbers: np.ndarray
    clouds: list[GridClouds]
    images: list[np.ndarray]
    quality: int

    @cached_property
    def videos(self) -> list[bytes]:
        """The images of each entry as a video."""
        return [write_video(each, self.quality) for each in self.images]

    @property
    def summary(self) -> np.ndarray:
        """Where the episode begins and ends, by which episodes are alike."""
        first, last = self.numbers[0], self.numbers[-1]
        corners = [each.lowest[: len(PARTS)].ravel() for each in self.clouds]
        colours = [each[0, ::40, ::40].ravel() for each in self.images]
        return np.concatenate([first, last, *corners, *colours]).astype(float)


@dataclass(frozen=True)
class _Entries:
    """The entries of an observation by how they are sent.

    Attributes:
        layout: All entries that are sent as numbers, by name.
        clouds: Names of the point clouds.
        images: Names of the images.
    """

    layout: Mapping[str, ArraySpec]
    clouds: Mapping[str, ArraySpec]
    images: Mapping[str, ArraySpec]

    @classmethod
    def of(cls, layout: Layout, config: RawDataConfig) -> "_Entries":
        kinds: dict[str, dict[str, ArraySpec]] = {"numbers": {}, "points": {}, "rgb": {}}
        for name, spec in sorted(layout.items()):
            if spec.kind in ("depth", "segmentation") or spec.dtype != (
                "uint8" if spec.kind == "rgb" else "float32"
            ):
                raise ConfigError(
                    f"{name!r} is {spec.kind} of {spec.dtype}, but an upload holds only float32 "
                    "numbers, point clouds and colour images. Name other entries as `observations`."
                )
            kinds[spec.kind if spec.kind in kinds else "numbers"][name] = spec
        numbers, clouds, images = kinds.values()
        if clouds and config.cloud_every > 1 and HAND not in numbers:
            raise ConfigError(
                f"`cloud_every: {config.cloud_every}` needs {HAND} to move clouds, but {HAND} is "
                "not sent. Let the policy read it, or set `cloud_every: 1`."
            )
        return cls(numbers, clouds, images)

    def numbers(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the numbers of steps, (steps, columns) float64."""
        parts = [observation[name] for name in self.layout]
        steps = len(next(iter(observation.values())))
        flat = [each.reshape(steps, -1).astype(float) for each in parts]
        return np.concatenate([np.zeros((steps, 0)), *flat], 1)

    def units(self, found: Sequence[np.ndarray], config: RawDataConfig) -> np.ndarray:
        """Returns the exponent of the unit of each column, of which float32 holds multiples."""
        rows = np.concatenate([np.zeros((0, sum(map(_size, self.layout.values())))), *found])
        largest = np.abs(rows).max(0, initial=0.0)
        # Where a number never changes, its own size is the measure.
        spread = np.where(np.ptp(rows, axis=0) > 0, rows.std(0), largest) if len(rows) else largest
        wanted = np.where(spread > 0, spread * config.state_unit, 1.0)
        offset = 0
        for spec in self.layout.values():
            size = _size(spec)
            own = wanted[offset : offset + size].reshape(-1, spec.shape[-1] if spec.shape else 1)
            if spec.kind in ("keypoints", "masked_keypoints"):
                own[:, :3] = config.length_unit_m
                own[:, 3:] = 1.0  # the masks
            elif spec.kind == "one_hot":
                own[:] = 1.0
            offset += size
        least = np.frexp(np.maximum(largest, 2.0**-_EXPONENTS))[1] - _DIGITS
        return np.maximum(np.frexp(wanted)[1] - 1, least).astype(np.int64)

    def arrays(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Returns entries of numbers, (steps, columns) float64, by name."""
        found, offset = {}, 0
        for name, spec in self.layout.items():
            part = numbers[:, offset : offset + _size(spec)]
            offset += _size(spec)
            with np.errstate(over="ignore"):  # infinity is refused
                found[name] = part.reshape(len(numbers), *spec.shape).astype(spec.dtype)
        return found


class _NoScene(Value):
    """The scene of a decoded episode, which no upload holds; reading it as a scene fails."""

    task: str
    seed: int
    tool: None = None
    object: None = None

    def to_json(self) -> str:
        return "null"


def _decoded(
    body: bytes, headers: Sequence[Header], entries: _Entries, config: RawDataConfig
) -> Iterator[tuple[int, AttemptRecord, Episode]]:
    """Yields the number of a dataset, the record and the episode of each episode."""
    size = int.from_bytes(body[:_SIZE], "little")
    columns = iter(unpacked(body[_SIZE : _SIZE + size], MOST_NUMBERS))
    videos, taken = body[_SIZE + size :], 0

    def take(count: int, length: int | None = None) -> np.ndarray:
        try:
            found = np.stack([next(columns) for _ in range(count)], -1)
        except StopIteration:
            raise ValueError("it lacks columns") from None
        if length is not None and len(found) != length:
            raise ValueError("its columns differ in length")
        return found

    facts, labels = take(3), take(1)[:, 0]
    units, steps = take(1)[:, 0], facts[:, 2]
    width, action = len(units), headers[0].action
    if (
        width != sum(map(_size, entries.layout.values()))
        or np.abs(units).max(initial=0) > _EXPONENTS
    ):
        raise ValueError("its units belong to other entries")
    if not (steps > 0).all() or steps.sum() != len(labels) or facts.min() < 0:
        raise ValueError("its numbers of steps match no episodes")
    numbers = take(width + _size(action), len(labels))
    exponents = np.concatenate([units, np.full(_size(action), _ACTION)])
    values = np.ldexp(numbers.astype(float), exponents)
    sent = -(-steps // config.cloud_every)
    clouds = [
        GridClouds(
            counts := take(2 * len(PARTS), int(sent.sum())),
            take(3, len(counts) * len(PARTS)),
            take(3, int(counts[:, ::2].sum())),
        ).rows(spec.shape[0], exponent_of(config.length_unit_m))
        for spec in entries.clouds.values()
    ]
    lengths = iter(take(1, len(facts) * len(entries.images))[:, 0].tolist())
    begin = 0
    for (number, attempt, length), count in zip(facts.tolist(), sent.tolist(), strict=True):
        rows, begin = values[begin : begin + length], begin + length
        header = headers[number]
        observations = entries.arrays(rows[:, :width])
        for name, each in zip(entries.clouds, clouds, strict=True):
            given = np.stack([next(each) for _ in range(count)])
            hand = observations.get(HAND)
            observations[name] = moved(given, hand, length, config.cloud_every)
        for name, spec in entries.images.items():
            size = next(lengths)
            observations[name] = read_video(videos[taken : taken + size], length, spec.shape)
            taken += size
        kinds = labels[begin - length : begin]
        actions = rows[:, width:].reshape(length, *action.shape).astype(action.dtype)
        layout = {**entries.layout, **entries.clouds, **entries.images}
        for name, spec in layout.items():
            _require_allowed(name, spec, observations[name])
        _require_allowed("actions", action, actions)
        yield number, *_episode(header, attempt, observations, actions, kinds)


def _episode(
    header: Header,
    attempt: int,
    observations: Mapping[str, np.ndarray],
    actions: np.ndarray,
    kinds: np.ndarray,
) -> tuple[AttemptRecord, Episode]:
    """Returns the record of a decoded episode, and the episode."""
    steps, digest = len(actions), hashlib.blake2b(digest_size=8)
    for each in (*observations.values(), actions, kinds):
        digest.update(np.ascontiguousarray(each).tobytes())
    digests = np.zeros(steps + 1, np.uint64)  # the last one identifies the episode
    digests[-1] = int.from_bytes(digest.digest(), "little")
    learner = np.flatnonzero(kinds == _LEARNER)
    info = {
        NOISE_STEPS: np.flatnonzero(kinds == _NOISE).tolist(),
        LEARNER_STEPS: learner.tolist(),
        EXPERT_ACTIONS: actions[learner].tolist(),
    }
    seed = scene_seed(header.seed, attempt)
    episode = Episode(
        scene=_NoScene(task=header.task.name, seed=seed),
        observations={name: np.concatenate([a, a[-1:]]) for name, a in observations.items()},
        actions=actions,
        rewards=np.zeros(steps),
        terminated=np.zeros(steps, bool),
        truncated=np.zeros(steps, bool),
        success=np.arange(steps) == steps - 1,
        digests=digests,
        outcome=SUCCESS,
        info=info,
    )
    record = AttemptRecord(
        attempt=attempt,
        seed=seed,
        outcome=SUCCESS,
        success=True,
        steps=steps,
        state_digest=hexadecimal(digests[-1]),
        seconds=0.0,
        info=info,
    )
    return record, episode


def _labels(episode: StoredEpisode, rows: np.ndarray) -> np.ndarray:
    """Returns the kinds of an episode's steps."""
    kinds = np.where(episode.imitate, _IMITATED, _NOISE)
    kinds[list(episode.labels.learner_steps)] = _LEARNER
    return kinds[rows]


def _size(spec: ArraySpec) -> int:
    return int(np.prod(spec.shape))


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST).digest()


def _require_allowed(name: str, spec: ArraySpec, rows: np.ndarray) -> None:
    if wrong := disallowed(spec.kind, rows):
        raise ValueError(f"{name!r} holds {wrong}")
