"""An exam of the simulation: quantities of contact beside their closed forms.

All answers are of worlds of the package's tasks: their arm, models, contact and time step.
"""

from dataclasses import dataclass

G = 9.81
"""Gravity, m/s^2."""

WITHIN = 0.05
"""Relative error up to which an answer passes."""

CLOSED_FORMS = {
    "free fall": "distance: g t^2 / 2 after 0.4 s",
    "penetration": "foundation: N H / (E A), loaded so that this is 0.1 mm",
    "penetration by its own weight": "foundation: m g H / (E A)",
    "friction onset": "push: mu N",
    "sliding stop": "distance: v^2 / (2 mu g) from 1 m/s",
    "tipping onset": "push at a height h: m g b / h, to the nearest edge b away",
    "work on the nail": "(resistance - weight) depth + kinetic energy",
    "torque on the nut": "resistance; force of the hand x its arm, from the motors' torques",
    "weight on the blade": "m g; force on the hand, from the motors' torques",
    "lever of the weight": "distance of the centre of mass; moment / force, likewise",
    "energy of an episode": "brake + contact + stop; motors' work - mechanical energy",
    "impulses of contact": "motion of the arm; `joint_external_torque`",
    "impulses of the observed wrench": "motion of the arm; `end_effector_wrench`",
    "impulses on the tool": "motion of the arm; `info['forces']`, on the object alone",
    "impulses of contact metrics": "motion of the arm, on object and table; contact metrics",
}
"""Expected quantities by law; of two compared quantities, the expected one comes first."""


@dataclass(frozen=True)
class Answer:
    """A measured quantity beside its closed form.

    Attributes:
        law: The law, of `CLOSED_FORMS`.
        case: The measured case.
        expected: Its closed form.
        measured: The simulation's value.
        unit: Unit of both.
    """

    law: str
    case: str
    expected: float
    measured: float
    unit: str

    @property
    def error(self) -> float:
        """Relative error."""
        return self.measured / self.expected - 1.0

    @property
    def passes(self) -> bool:
        """Whether it is within the bound of the exam."""
        return abs(self.error) <= WITHIN
