"""Keypoints as a network's output for point clouds, and the tool in the hand.

A part that looks the same after some turns, such as a hexagonal nut, does not show the names of its
sides. Several assignments of names fit a cloud, and their mean is a turn between them. So a network
learns the keypoints of such a part before its turn. It learns the turn by cosine and sine of a
multiple of its angle, which are the same for all turns that look alike.
"""

from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
import pydantic

from fleet_tools.config.values import Count, CountOrZero, Part, Positive, Value
from fleet_tools.envs.array_spec import ArraySpec, masked_keypoints

PARTS: tuple[Part, Part] = ("tool", "object")
NAMES: tuple[str, str] = ("tool_keypoints", "object_keypoints")
"""Entries of the observation with the keypoints of the parts, which a keypoint detector gives."""
CLOUD = "point_cloud"
"""Entry of the observation that a keypoint detector reads."""
HAND = "end_effector_pose"
"""Entry of the observation that corrects the tool's position in the hand."""
TURN_WEIGHT = 0.3
"""Factor of outputs that only distinguish cases: a named turn, and the task."""


class RotationalSymmetry(Value):
    """A part that looks the same after turns by a fraction of a circle.

    Attributes:
        part: The part.
        fold: Number of turns that look alike, within a circle.
        axis: Rows of the keypoints at the start and the end of the axis.
        marker: Row of the keypoint that defines the angle of the part about the axis.
        reference: Number of the axis of the end effector's frame with angle 0.
    """

    part: Part
    fold: Annotated[Count, pydantic.Field(ge=2, le=1000)]
    axis: tuple[CountOrZero, CountOrZero]
    marker: CountOrZero
    reference: Literal[0, 1, 2] = 0

    @pydantic.model_validator(mode="after")
    def _three_keypoints(self) -> Self:
        if len({*self.axis, self.marker}) < 3:
            raise ValueError(
                "expected three different keypoints: the two ends of the axis and the marker"
            )
        return self


class TaskReading(Value):
    """The keypoints of a task's scenes.

    Attributes:
        name: Name of the task.
        tool: Number of keypoints of the tool.
        object: Number of keypoints of the object.
        symmetries: Symmetries of parts, at most one of each.
    """

    name: str
    tool: Count
    object: Count
    symmetries: tuple[RotationalSymmetry, ...] = ()

    @pydantic.model_validator(mode="after")
    def _rows_exist(self) -> Self:
        parts = [each.part for each in self.symmetries]
        if len(set(parts)) < len(parts):
            raise ValueError(f"the task {self.name} has two symmetries of the same part; give one")
        for each in self.symmetries:
            if max(*each.axis, each.marker) >= getattr(self, each.part):
                raise ValueError(f"the {each.part} of {self.name} has no such keypoint")
        return self


class Reading(Value):
    """The row of numbers for the keypoints of tool and object, and for the task.

    It begins with coordinates of `rows` keypoints of the tool, and of the object, before the part
    is turned. They are in the end effector's frame and in `unit_m`. Rows beyond a part's keypoints
    repeat the first. The tool's keypoints are at their position in the cloud, which a delay
    displaces, see `HeldTool`. (cos a, sin a, cos fold a, sin fold a) of the angle a of each part
    follow, zeros without a symmetry. The task's one-hot is last. The one-hot, cos a and sin a are
    multiplied by `TURN_WEIGHT`.

    Attributes:
        tasks: The tasks.
        rows: Rows of the keypoints of each part, see `obs_mode="multitask_state"`.
        unit_m: Length that counts as 1, m.
    """

    tasks: Annotated[tuple[TaskReading, ...], pydantic.Field(min_length=1)]
    rows: Annotated[Count, pydantic.Field(le=1000)] = 8
    unit_m: Positive = 0.05

    @pydantic.model_validator(mode="after")
    def _rows_suffice(self) -> Self:
        most = max(max(each.tool, each.object) for each in self.tasks)
        if most > self.rows:
            raise ValueError(f"{most} keypoints do not fit into {self.rows} rows")
        return self

    @property
    def layout(self) -> ArraySpec:
        """Layout of the keypoints of a part, as `obs_mode="multitask_state"` has them."""
        return masked_keypoints(self.rows)

    @property
    def coordinates(self) -> int:
        """The number of coordinates of the keypoints of both parts."""
        return 2 * self.rows * 3

    @property
    def size(self) -> int:
        """The number of numbers."""
        return self.coordinates + 8 + len(self.tasks)

    def targets(self, keypoints: tuple[np.ndarray, np.ndarray], tasks: np.ndarray) -> np.ndarray:
        """Returns the targets of steps.

        Args:
            keypoints: Keypoints of tool and object in the end effector's frame, (n, rows, 3 or
                more), m.
            tasks: Index of each step's task, (n,).

        Returns:
            (n, size) float32.
        """
        steps = len(tasks)
        points = np.stack([each[..., :3] for each in keypoints], 1).astype(float)
        turns, one_hot = np.zeros((steps, 2, 4)), np.eye(len(self.tasks))[tasks]
        for index, task in enumerate(self.tasks):
            of_task = tasks == index
            for number, part in enumerate(PARTS):
                count = getattr(task, part)
                points[of_task, number, count:] = points[of_task, number, :1]
            for each in task.symmetries:
                number = PARTS.index(each.part)
                shown = points[of_task, number]
                angles = turn_angles(shown, each)
                points[of_task, number] = turned(shown, each, -angles)
                multiples = np.stack([angles, each.fold * angles], -1)
                pairs = np.stack([np.cos(multiples), np.sin(multiples)], -1)
                turns[of_task, number] = (pairs * [[TURN_WEIGHT], [1.0]]).reshape(-1, 4)
        rows = (points / self.unit_m, turns, TURN_WEIGHT * one_hot)
        return np.concatenate([each.reshape(steps, -1) for each in rows], 1).astype(np.float32)

    def masks(self, task: int) -> np.ndarray:
        """Returns masks of the rows of tool and object that a task has, (2, rows) bool."""
        counts = [getattr(self.tasks[task], part) for part in PARTS]
        return np.arange(self.rows) < np.array(counts)[:, None]

    def keypoints(
        self, numbers: np.ndarray, task: int, former: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keypoints of a row of numbers.

        Of the turns that look alike, it takes the nearest to the former, or to the named turn.

        Args:
            numbers: (size,).
            task: Index of the task.
            former: Angles of the turns of tool and object in the step before, (2,), rad; None at
                the beginning of an episode.

        Returns:
            Keypoints of tool and object, (2, rows, 4) with masks, zeros where there is none; and
            the angles of their turns, (2,).
        """
        points = numbers[: self.coordinates].reshape(2, self.rows, 3).astype(float) * self.unit_m
        turns = numbers[self.coordinates : self.coordinates + 8].reshape(2, 2, 2)
        angles = np.zeros(2)
        for each in self.tasks[task].symmetries:
            number = PARTS.index(each.part)
            named, alike = np.arctan2(turns[number, :, 1], turns[number, :, 0])
            expected = named if former is None else former[number]
            step = 2 * np.pi / each.fold
            angle = alike / each.fold
            angles[number] = angle + step * np.round((expected - angle) / step)
            shown = points[number, None]
            by = angles[number] - turn_angles(shown, each)
            points[number] = turned(shown, each, by)[0]
        mask = self.masks(task)[..., None]
        return np.concatenate([points * mask, mask], -1).astype(np.float32), angles


def turn_angles(points: np.ndarray, symmetry: RotationalSymmetry) -> np.ndarray:
    """Returns the angles of a part about its axis, rad.

    Args:
        points: Its keypoints, (n, rows, 3).
        symmetry: Its symmetry.

    Returns:
        (n,): the angle of the marker, from the reference's projection onto the plane of the turns.
    """
    x, y, _ = _frames(points, symmetry)
    arm = points[:, symmetry.marker] - points[:, symmetry.axis[0]]
    return np.arctan2(_dot(arm, y), _dot(arm, x))


def turned(points: np.ndarray, symmetry: RotationalSymmetry, angles: np.ndarray) -> np.ndarray:
    """Returns the keypoints of a part that is turned about its axis.

    Args:
        points: Its keypoints, (n, rows, 3).
        symmetry: Its symmetry.
        angles: Angles of the turns, (n,), rad.
    """
    origin = points[:, symmetry.axis[0], None]
    z = np.broadcast_to(_frames(points, symmetry)[2][:, None], points.shape)
    arms, (cos, sin) = points - origin, (f(angles)[:, None, None] for f in (np.cos, np.sin))
    along = _dot(arms, z)[..., None] * z
    return origin + along + cos * (arms - along) + sin * np.cross(z, arms)


def _frames(
    points: np.ndarray, symmetry: RotationalSymmetry
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns axes x, y, z, (n, 3) each: z along the symmetry's, x next to the reference."""
    start, end = (points[:, row] for row in symmetry.axis)
    z = _unit(end - start)
    e = np.eye(3)[symmetry.reference]
    x = _unit(e - _dot(z, e)[:, None] * z)
    return x, np.cross(z, x), z


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-9)


class HeldTool(NamedTuple):
    """Memory of the tool's keypoints, for a batch of B episodes.

    A cloud is in the present frame of the end effector, but shows the world at the time of the
    images. If images are delayed, the hand has moved since, and the tool appears displaced by this
    motion.

    The hand holds the tool without slip. So the delay, 0 or 1 step, is estimated by the smaller
    variation of the keypoints in the hand; 0 if both are equal.

    Attributes:
        X_WE: Pose of the end effector in the step before, (B, 3, 4).
        steps: Number of steps, (B,).
        means: Mean keypoints in the hand by delay, (B, 2, rows, 3), m.
        spreads: Sums of squared distances from the means by delay, (B, 2), m^2.
    """

    X_WE: np.ndarray
    steps: np.ndarray
    means: np.ndarray
    spreads: np.ndarray

    @classmethod
    def begin(cls, shown: np.ndarray, X_WE: np.ndarray) -> Self:
        """Returns the memory before the first step, which has no delay.

        Args:
            shown: Keypoints in the first step, see `follow`.
            X_WE: Pose of the end effector in it, (B, 3, 4).
        """
        both = np.stack([shown, shown], 1)
        return cls(X_WE, np.zeros(len(shown)), both, np.zeros(both.shape[:2]))

    def follow(self, shown: np.ndarray, X_WE: np.ndarray) -> tuple[np.ndarray, Self]:
        """Returns the keypoints in the hand, (B, rows, 3), m, and the next memory.

        Args:
            shown: Keypoints at their position in the cloud, in the present frame of the end
                effector, (B, rows, 3), m.
            X_WE: Pose of the end effector, (B, 3, 4).
        """
        held = np.stack([shown, in_other_frame(shown, X_WE, self.X_WE)], 1)
        steps = self.steps + 1
        means = self.means + (held - self.means) / steps[:, None, None, None]
        spreads = self.spreads + ((held - self.means) * (held - means)).sum((2, 3))
        delay = (spreads[:, 1] < spreads[:, 0]).astype(int)
        return held[np.arange(len(held)), delay], self._replace(
            X_WE=X_WE, steps=steps, means=means, spreads=spreads
        )


def in_other_frame(points: np.ndarray, X_WA: np.ndarray, X_WB: np.ndarray) -> np.ndarray:
    """Returns points of a frame A in a frame B, (n, rows, 3), m.

    Args:
        points: Points in A, (n, rows, 3), m.
        X_WA: Poses of A in the world, (n, 3, 4).
        X_WB: Poses of B, likewise.
    """
    p_W = points @ X_WA[..., :3].swapaxes(-1, -2) + X_WA[..., None, :, 3]
    return (p_W - X_WB[..., None, :, 3]) @ X_WB[..., :3]
