"""A labelling session, independent of the browser: clicks, choices, undo.

Each action keeps the labels in a file beside the model's folder before it returns, and raises an
OSError where the labels cannot be kept.
"""

from typing import Any

import numpy as np
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.assets.families import HAND, Meaning, known_family, meanings_of
from fleet_tools.assets.solids import Solid
from fleet_tools.config.geometry import Pose
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.studio.labelling.labels import (
    Draft,
    ModelLabels,
    Placed,
    draft_file,
    read_draft,
    write_draft,
)
from fleet_tools.studio.labelling.picking import Hit, Snap, across, behind, nearest, pick, snapped
from fleet_tools.studio.labelling.proposals import centroid, propose_hand
from fleet_tools.studio.labelling.subjects import Subject
from fleet_tools.utils.progress import Tell, silent

HAND_ITEM = "hand"
"""Name of the item that is the grasp; the others are keypoints."""


_QUARTER = RigidTransform(
    RotationMatrix([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]), np.zeros(3)
)
"""A quarter turn about x."""


class LabellingError(FleetToolsError):
    """An action that is not possible; the labels stay as they were."""


class LabellingSession:
    """A person's work on one subject.

    Args:
        subject: What is labelled.

    Attributes:
        subject: What is labelled.
        items: Meanings of what is to be labelled, by name: the keypoints, and a tool's hand.
        labels: The present labels.
        file: File that keeps the labels.
        item: What the next click labels.
        snap: What the next click means.
        first: Position of the first of two clicks, (3,), m, of which the middle is meant.
        between: Whether the middle of two clicks is meant.

    Raises:
        FleetToolsError: The subject cannot be read, or the file has other labels.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        identity = subject.identity
        if HAND_ITEM in identity.keypoints:
            raise ConfigError(
                f"The name {HAND_ITEM} is reserved for the grasp. Rename the keypoint."
            )
        self.items: dict[str, Meaning] = meanings_of(identity.family, list(identity.keypoints))
        if identity.kind == "tool":
            self.items[HAND_ITEM] = HAND
        self.file = draft_file(identity.folder)
        kept = read_draft(self.file, subject.digest())
        unknown = set() if kept is None else kept.keypoints.keys() - set(identity.keypoints)
        if unknown:
            raise ConfigError(
                f"{self.file} has keypoints that a {identity.family} does not have: "
                f"{', '.join(sorted(unknown))}. Remove them there, or move the file away."
            )
        self.labels = subject.initial() if kept is None else kept
        self._past: list[ModelLabels] = []
        self._placed: tuple[object, Placed] | None = None
        self.placed  # noqa: B018 - raises here what it raises
        self.snap: Snap = "surface"
        self.between = False
        self.first: np.ndarray | None = None
        self.item = next(iter(self.items))
        self._advance()

    @property
    def placed(self) -> Placed:
        """The subject in M."""
        key = self.labels.scale, self.labels.up
        if self._placed is None or self._placed[0] != key:
            self._placed = key, self.subject.placed(self.labels)
        return self._placed[1]

    @property
    def surface(self) -> Solid:
        """The surface in M, m."""
        return self.placed.surface

    @property
    def missing(self) -> list[str]:
        """Labels that are missing before the model can be written."""
        names = (*self.subject.identity.keypoints, HAND_ITEM)
        lacking = [name for name in names if name in self.items and not self.is_labelled(name)]
        if self.subject.is_mesh and self.labels.mass is None and self.labels.material is None:
            lacking.append("mass, or material")
        return lacking

    @property
    def can_undo(self) -> bool:
        """Whether there is something to take back."""
        return self.first is not None or bool(self._past)

    def points(self) -> dict[str, np.ndarray]:
        """Returns the labelled keypoints in M, (3,) each, m."""
        placement = self.placed.placement
        return {name: placement.point(p) for name, p in self.labels.keypoints.items()}

    def hand(self) -> Pose | None:
        """Returns the pose of the hand in M; None if it has none."""
        grasp = self.labels.grasp
        if grasp is None:
            return None
        x, y, z = self.placed.placement.point(grasp.translation_m)
        return Pose(translation_m=(float(x), float(y), float(z)), rpy_deg=grasp.rpy_deg)

    def is_labelled(self, item: str) -> bool:
        """Whether an item has its label."""
        return self.labels.grasp is not None if item == HAND_ITEM else item in self.labels.keypoints

    def select(self, item: str) -> None:
        """Chooses the item that the next click labels."""
        self.item, self.first = item, None

    def click(self, origin: np.ndarray, direction: np.ndarray) -> None:
        """Labels the present item where a ray, (3,) each in M, m, meets the surface.

        Raises:
            LabellingError: It misses the surface.
        """
        hit = pick(self.surface, np.asarray(origin, float), np.asarray(direction, float))
        if hit is None:
            raise LabellingError("The click missed the surface. Click on the model.")
        if self.item == HAND_ITEM:
            self._set_hand(self._proposed_hand(hit))
            return
        point = snapped(self.surface, hit, self.snap).point
        if self.between:
            if self.first is None:
                self.first = point
                return
            point = (self.first + point) / 2
        self.place(point)
        self._advance()

    def place(self, point: np.ndarray) -> None:
        """Puts the present keypoint anywhere, (3,), in M, m.

        Raises:
            ValueError: It is not finite.
        """
        self.first = None
        self._change(self.labels.placed(self.item, self.placed.placement.inverse(point)))

    def derive(self) -> None:
        """Computes the present keypoint from the keypoints that it follows from.

        Raises:
            LabellingError: It follows from nothing, from what is not labelled yet, or the line from
                there does not meet the surface.
        """
        derived = self.items[self.item].derived
        if derived is None:
            raise LabellingError(
                f"{self.item} cannot be computed from other keypoints. Click on the model instead."
            )
        points = self.points()
        if lacking := [name for name in derived.of if name not in points]:
            raise LabellingError(f"Label {' and '.join(lacking)} first.")
        if derived.how == "middle":
            one, other = derived.of
            point = (points[one] + points[other]) / 2
        else:
            start = nearest(self.surface, points[derived.of[0]])
            opposite = behind if derived.how == "behind" else across
            hit = opposite(self.surface, start)
            if hit is None:
                raise LabellingError(
                    f"Found no surface {derived.words}. Click on the model instead."
                )
            point = hit.point
        self.place(point)
        self._advance()

    def place_hand(self, X_MG: RigidTransform) -> None:
        """Puts the hand's frame anywhere in M."""
        self._set_hand(Pose.of(X_MG))

    def turn_hand(self) -> None:
        """Turns the hand by a quarter about the handle.

        Raises:
            LabellingError: There is no hand yet.
        """
        hand = self.hand()
        if hand is None:
            raise LabellingError("Click on the handle first.")
        self.place_hand(hand.to_transform() @ _QUARTER)

    def set(self, **values: Any) -> None:
        """Sets scale, up, mass or material.

        Raises:
            ConfigError: The mesh cannot be scaled so.
        """
        labels = self.labels.replaced(**values)
        self.subject.placed(labels)
        self._change(labels)

    def undo(self) -> None:
        """Takes the last change back."""
        if self.first is not None:
            self.first = None
            return
        if not self._past:
            return
        before, self.labels = self.labels, self._past.pop()
        changed = dict(before.keypoints.items() ^ self.labels.keypoints.items())
        if changed:
            self.item = next(iter(changed))
        elif self.labels.grasp != before.grasp:
            self.item = HAND_ITEM
        self.keep()

    def keep(self) -> None:
        """Writes the labels to their file."""
        write_draft(self.file, Draft(labels_of=self.subject.digest(), labels=self.labels))

    def write(self, tell: Tell = silent) -> list[str]:
        """Writes the model's folder; returns remarks for the person.

        Raises:
            LabellingError: Labels are missing.
            FleetToolsError: No model can be made with these labels.
            OSError: The folder cannot be written, or must not be overwritten.
        """
        if self.missing:
            raise LabellingError(f"Still missing: {', '.join(self.missing)}.")
        warnings = self.subject.write(self.labels, tell)
        self.keep()  # a corrected folder has another hash now
        return warnings

    def _change(self, labels: ModelLabels) -> None:
        if labels != self.labels:
            self._past.append(self.labels)
            self.labels = labels
        self.keep()

    def _advance(self) -> None:
        """Goes on to the next item that has no label, if there is one."""
        names = list(self.items)
        start = names.index(self.item)
        following = names[start:] + names[:start]
        self.item = next((n for n in following if not self.is_labelled(n)), self.item)

    def _set_hand(self, X_MG: Pose) -> None:
        x, y, z = (
            float(value) for value in self.placed.placement.inverse(np.array(X_MG.translation_m))
        )
        grasp = Pose(translation_m=(x, y, z), rpy_deg=X_MG.rpy_deg)
        self._change(self.labels.replaced(grasp=grasp))

    def _proposed_hand(self, hit: Hit) -> Pose:
        family, points = known_family(self.subject.identity.family), self.points()
        ahead, down = centroid(self.surface), None
        if family is not None and family.alignment is not None:
            ahead = points.get(family.alignment.ahead, ahead)
            start, end = family.alignment.down
            if start in points and end in points:
                down = points[end] - points[start]
        return propose_hand(self.surface, hit, ahead, down)
