"""Options of programs that name observation modes, or give arguments of an environment.

Who gives them on a command line trusts the code of their own that they name as module:name; worker
processes inherit that.
"""

import json
from typing import Annotated, Any

from fleet_tools.envs.observation_modes import OBS_MODES, own_code, require_mode
from fleet_tools.utils.imports import is_own, trust
from fleet_tools.utils.option_parser import key_value, notation


def _read_mode(text: str) -> str:
    require_mode(text)
    if is_own(text):
        trust(text)
    return text


def _read_argument(text: str) -> tuple[str, Any]:
    name, value = key_value(text)
    for named in own_code({name: value}):
        trust(named)
    return name, value


_NOTATION = notation(_read_mode, "|".join([*OBS_MODES, "MODULE:NAME"]))
ObsModeOption = Annotated[str, _NOTATION]
"""An observation mode."""
OptionalObsMode = Annotated[str | None, _NOTATION]
"""Likewise, where there may be none."""

EnvArgument = Annotated[
    tuple[str, Any],
    notation(_read_argument, "KEY=VALUE", lambda given: f"{given[0]}={json.dumps(given[1])}"),
]
"""A keyword argument of an environment."""
