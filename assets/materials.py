"""Materials of parts: density, colour and contact properties."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Material:
    """A homogeneous material.

    Attributes:
        density: Density, kg/m^3.
        colour: Diffuse red, green and blue, in [0, 1].
        modulus: Hydroelastic modulus, Pa; an infinite one makes the contact surface rigid.
        friction: Coulomb coefficient, static and dynamic. Drake combines the coefficients a and b
            of two surfaces as 2ab / (a + b).
        dissipation: Hunt-Crossley dissipation, s/m.
    """

    density: float
    colour: tuple[float, float, float]
    modulus: float
    friction: float
    dissipation: float

    def coloured(self, red: float, green: float, blue: float) -> "Material":
        """Returns the same material in another colour."""
        return replace(self, colour=(red, green, blue))


# Moduli are those at which contact resolves well at 4 ms steps, not the materials' own.
STEEL = Material(7850.0, (0.68, 0.69, 0.71), modulus=1e8, friction=0.3, dissipation=5.0)
FORGED_STEEL = STEEL.coloured(0.22, 0.23, 0.25)
BRASS = Material(8500.0, (0.80, 0.62, 0.25), modulus=1e8, friction=0.3, dissipation=5.0)
ASH = Material(680.0, (0.82, 0.64, 0.42), modulus=1e8, friction=0.4, dissipation=10.0)
HICKORY = Material(820.0, (0.72, 0.48, 0.27), modulus=1e8, friction=0.4, dissipation=10.0)
BEECH = Material(720.0, (0.80, 0.58, 0.38), modulus=1e8, friction=0.4, dissipation=10.0)
PINE = Material(500.0, (0.87, 0.73, 0.52), modulus=math.inf, friction=0.4, dissipation=10.0)
FIBREGLASS = Material(1850.0, (0.90, 0.55, 0.08), modulus=1e8, friction=0.4, dissipation=10.0)
NYLON = Material(1150.0, (0.86, 0.14, 0.12), modulus=5e7, friction=0.3, dissipation=10.0)
RUBBER = Material(1200.0, (0.17, 0.17, 0.18), modulus=1e7, friction=0.8, dissipation=20.0)

MaterialName = Literal[
    "ash",
    "beech",
    "brass",
    "fibreglass",
    "forged_steel",
    "hickory",
    "nylon",
    "pine",
    "rubber",
    "steel",
]

MATERIALS: Mapping[MaterialName, Material] = {
    "ash": ASH,
    "beech": BEECH,
    "brass": BRASS,
    "fibreglass": FIBREGLASS,
    "forged_steel": FORGED_STEEL,
    "hickory": HICKORY,
    "nylon": NYLON,
    "pine": PINE,
    "rubber": RUBBER,
    "steel": STEEL,
}
"""Materials that an imported mesh can have, by name."""
