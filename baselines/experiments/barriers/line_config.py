"""Configuration of the lines between two policies."""

from typing import Annotated, Any, Self

import pydantic
from tyro.conf import UseAppendAction, arg

from fleet_tools.config.options import OptionGroup
from fleet_tools.config.values import Count, CountOrZero
from fleet_tools.errors import UnknownNameError


def _require_middle(points: int) -> int:
    if points < 3 or points % 2 == 0:
        raise ValueError("give an odd number, at least 3")
    return points


OddCount = Annotated[Count, pydantic.AfterValidator(_require_middle)]
"""Number of evenly spaced points on a line, which include the middle."""


class LineConfig(OptionGroup):
    """Points on the line between two policies, and the methods that align the two."""

    methods: Annotated[tuple[str, ...], pydantic.Field(min_length=1), arg(metavar="NAME ...")] = (
        "naive_average",
        "git_rebasin",
        "fleet_merge",
    )
    """Methods that align two policies: names of merging.methods.registry, or module:function for
    your own, whose code is run."""
    options: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="METHOD.NAME=VALUE")] = ()
    """Option of a method or its Descent, such as fleet_merge.steps=60; may be repeated."""
    points: OddCount = 11
    """Number of points at which losses are measured, with both ends: odd, at least 3."""
    rollouts: CountOrZero = 0
    """Number of validation scenes of each task in which policies on the line are evaluated; 0
    evaluates none."""
    rollout_points: OddCount = 5
    """Number of points at which policies are evaluated, with both ends: odd, at least 3."""

    @pydantic.model_validator(mode="after")
    def _valid_options(self) -> Self:
        self.method_options()
        return self

    def method_options(self) -> dict[str, dict[str, str]]:
        """Returns the options of each method, as texts by name.

        Raises:
            ValueError: An option has another form, or names another method.
        """
        options: dict[str, dict[str, str]] = {method: {} for method in self.methods}
        for text in self.options:
            key, equals, value = text.partition("=")
            method, dot, name = key.rpartition(".")
            if not (equals and dot):
                raise ValueError(
                    f"the option {text!r} is not of the form METHOD.NAME=VALUE, such as "
                    "fleet_merge.steps=60"
                )
            if method not in options:
                raise UnknownNameError("chosen method", method, options)
            options[method][name] = value
        return options

    def settings(self) -> dict[str, Any]:
        """Returns the configuration as plain JSON data."""
        return {
            "methods": self.method_options(),
            "points": self.points,
            "rollouts": self.rollouts,
            "rollout_points": self.rollout_points,
        }
