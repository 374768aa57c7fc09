"""Small experiments with fleets."""

import json
from pathlib import Path
from typing import Any

import yaml
from support.fleet_cases import POLICY

from fleet_tools.baselines import experiment as program


def content_of(data: Path, **changes: Any) -> dict[str, Any]:
    """Returns the content of a small experiment's YAML."""
    content = {
        "arena": "tool_use",
        "data": str(data),
        "vary": "split.alpha",
        "values": [0.1, 10],
        "seeds": 2,
        "base": {
            "policy": POLICY,
            "robots": 2,
            "held_out": 0.2,
            "training": {"epochs": 2, "batch_size": 8},
        },
        "arms": {
            "naive": {"method": "naive_average"},
            "common": {"method": "naive_average", "initialization": "common"},
        },
        "references": ["single", "joint"],
    }
    return content | changes


def run(folder: Path, data: Path, *more: str, **changes: Any) -> int:
    """Runs the program on a small experiment, whose results are in `folder/out/small.*`."""
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(content_of(data, **changes), sort_keys=False))
    output = ["--output", str(folder / "out")]
    return program.main([str(path), *output, "--workers", "0", "--quiet", *more])


def result_in(folder: Path) -> dict[str, Any]:
    """Returns the result that the program stored."""
    return json.loads((folder / "out" / "small.json").read_text())
