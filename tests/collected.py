"""What tests of collecting compare: a small data set, however it came about."""

import json
import sys
from pathlib import Path

import fleet_tools
from fleet_tools.errors import InfeasibleError
from fleet_tools.experts.policy import ExpertPolicy

ROOT = Path(fleet_tools.__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "fleet_tools.collect"]
EPISODES = 4


def options(folder, *more, episodes=EPISODES):
    where = ["--output", str(folder), "--workers", "0"]
    return ["--tool", "hammer", "--episodes", str(episodes), *where, *more]


class Reluctant:
    """A policy that has no plan for any scene."""

    def __init__(self, env):
        pass

    def reset(self):
        raise InfeasibleError("No plan.", {"point_to_point(head, head)": "0.12 m"})

    def act(self, observation):
        raise AssertionError("reset has failed")


def expert(env):
    """A factory of policies from outside."""
    return ExpertPolicy(env)


def timeless(folder):
    """Every file's content, apart from how long it took and the order in which it came."""

    def content(path):
        if path.name != "manifest.jsonl":
            return path.read_bytes()
        lines = map(json.loads, path.read_text().splitlines())
        return {
            line["attempt"]: {k: v for k, v in line.items() if k not in ("seconds", "info")}
            for line in lines
        }

    return {
        str(path.relative_to(folder)): content(path) for path in folder.rglob("*") if path.is_file()
    }
