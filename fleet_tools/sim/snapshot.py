"""The simulation at one moment, as a value."""

import hashlib
from dataclasses import dataclass

import numpy as np

from fleet_tools.robot.reference import Reference


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The simulation at one moment; restored in the same scene, it continues bit for bit.

    Attributes:
        step: Control steps since the start of the episode.
        x: Positions and velocities of the plant.
        reference: The controller's reference.
        impulse: Contact impulse on the object's degrees of freedom during the last control step.
        attribution: What `fleet_tools.sim.part_motion` knows of who moved the object.
        limit_times: (21,), time for which each limit of the arm bound during it, s.
    """

    step: int
    x: np.ndarray
    reference: Reference
    impulse: np.ndarray
    attribution: np.ndarray
    limit_times: np.ndarray

    def digest(self) -> int:
        """Returns a 64-bit hash of the exact bits of step, x and attribution.

        The rest tells how the state was reached; the next step replaces them.
        """
        content = self.step.to_bytes(8, "little") + self.x.tobytes() + self.attribution.tobytes()
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
