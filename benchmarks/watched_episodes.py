"""Verdicts compared with a person's labels: `python benchmarks/watched_episodes.py film --out DIR`.

    python benchmarks/watched_episodes.py agreement

`film` runs episodes of many kinds, good and bad, and writes frames of each under a number without
its verdict. A person looks at the frames and writes labels. `agreement` compares stored labels with
the verdicts.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cheats import CHEATS, OTHERS
from cheats.motion import Actions, DrivenArm, ScriptPolicy
from cheats.trial import Attack, attacked_scene, run_trial
from honest_ways import HONEST
from PIL import Image, ImageDraw
from scaffold import TaskSelection, print_now, report_rows

from fleet_tools.config.values import Seed
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError
from fleet_tools.experts.demonstrators import NoisyExpert
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.perception.camera_view import CameraView, Pinhole
from fleet_tools.perception.display import DEPTH_RANGE_M, look_at
from fleet_tools.policies.policy import Policy, RandomPolicy
from fleet_tools.sim.scene import Scene, sample_scene
from fleet_tools.utils import cli

WATCHED = Path(__file__).parent / "watched"
"""Folder with the stored labels, `labels.json`, and the verdicts, `verdicts.json`."""

LABELS = ("yes", "no", "unsure")

STRIPS = 8
"""Number of episodes on a sheet."""


class FilmOptions(cli.Options):
    """Runs episodes, and writes sheets of their frames and, in another file, their verdicts.

    Exit codes:
    0: all episodes were run.
    1: an episode was lost.
    """

    out: Path
    """Folder for the sheets and for verdicts.json."""
    tasks: TaskSelection = TaskSelection()
    first_seed: Seed = 5000
    """Seed of the first scene; the others follow."""
    workers: WorkerOptions = WorkerOptions(timeout=1800.0)


class AgreementOptions(cli.Options):
    """Prints the number of labels that agree with the verdicts, by task.

    Exit codes:
    0: it was printed.
    2: the labels do not fit the verdicts.
    """

    folder: Path = WATCHED
    """Folder with labels.json and verdicts.json."""


# --- Episodes -------------------------------------------------------------------------------

FRAMES, SIZE = 8, (200, 150)
"""Number of frames of an episode, and their width and height, pixels."""

_CAMERAS = {"hammer": (0.42, 20.0), "wrench": (0.42, 50.0), "screwdriver": (0.28, 50.0)}
_CAMERA = (0.55, 30.0)
"""Distance of the camera from the object, m, and its elevation, degrees; by task, and otherwise."""

_DRAWN = {"expert": 5, "noisy": 6, "random": 3, "stops_early": 4}
"""Numbers of episodes of policies without scripts, for each task."""


@dataclass(frozen=True)
class WatchJob:
    """An episode to film.

    Attributes:
        number: Its number on the sheets.
        task: Name of the task.
        kind: One of `_DRAWN`, "cheat" or "honest".
        way: Name of the script; empty if there is none.
        seed: Seed of the scene.
    """

    number: int
    task: str
    kind: str
    way: str
    seed: int


def episodes(tasks: Sequence[str], first_seed: int) -> list[WatchJob]:
    """Returns the episodes, in an order independent of their kind."""
    drawn = [
        (task, kind, way)
        for task in tasks
        for kind, ways in (
            *((kind, [""] * count) for kind, count in _DRAWN.items()),
            ("cheat", CHEATS.get(task, {})),
            ("honest", HONEST.get(task, {})),
        )
        for way in ways
    ]
    jobs: list[WatchJob] = []
    for k in np.random.default_rng(0).permutation(len(drawn)).tolist():
        task, kind, way = drawn[k]
        jobs.append(WatchJob(len(jobs), task, kind, way, first_seed + k))
    return jobs


def film(env: ToolUseEnv, job: WatchJob) -> tuple[np.ndarray, dict[str, Any]]:
    """Runs an episode; returns its frames side by side, and its verdict as JSON data.

    Args:
        env: An environment of the task, with render_mode "rgb_array".
        job: The episode.

    Returns:
        (height, `FRAMES` * width, 3) uint8, the start and then from the first touch to the end; and
        the verdict.
    """
    policy, scene = policy_and_scene(env, job)
    states, touched = [], []

    def watch() -> None:
        state = env.world_state()
        touched.append(any(state.in_contact(who, "object") for who in ("tool", "robot")))
        states.append(env.get_state())

    trial = run_trial(env, policy, scene, watch)
    start = max(touched.index(True) - 1, 1) if any(touched) else 1
    shown = [0, *np.linspace(min(start, len(states) - 1), len(states) - 1, FRAMES - 1)]
    frames = []
    for step in np.round(shown).astype(int):
        env.set_state(states[step])
        frames.append(env.image(_view(env)))
    verdict = {
        "models": trial.models,
        "outcome": trial.outcome,
        "success": trial.success,
        "done": trial.done,
        "unmet": list(trial.unmet),
    }
    return np.hstack(frames), verdict


def policy_and_scene(env: ToolUseEnv, job: WatchJob) -> tuple[Attack, Scene]:
    """Returns the policy and the scene of an episode."""
    if job.kind == "cheat":
        script = CHEATS[job.task][job.way]
        return ScriptPolicy(env, script), attacked_scene(env, job.seed, OTHERS.get(script))
    scene = sample_scene(env.task, job.seed, split="all", randomization="on")
    match job.kind:
        case "honest":
            return ScriptPolicy(env, HONEST[job.task][job.way]), scene
        case "stops_early":
            return ScriptPolicy(env, _stops_early), scene
        case "expert":
            return _Endless(ExpertPolicy(env)), scene
        case "noisy":
            return _Endless(NoisyExpert(env)), scene
    return _Endless(RandomPolicy(env, job.seed)), scene


def _stops_early(arm: DrivenArm) -> Actions:
    """The expert stops when a part of the deed is done, or all of it, and rests."""
    fraction = np.random.default_rng([arm.env.scene.seed, 3]).uniform(0.4, 1.1)
    yield from arm.follow_expert(until=arm.done(fraction))


class _Endless:
    """A policy as an attack that never gives up."""

    ended = False

    def __init__(self, policy: Policy) -> None:
        self.reset, self.act = policy.reset, policy.act


def _view(env: ToolUseEnv) -> CameraView:
    """Returns the view of the place where the object stood at the start."""
    distance_m, elevation_deg = _CAMERAS.get(env.task.name, _CAMERA)
    elevation, azimuth = math.radians(elevation_deg), math.radians(-35.0)
    way = [math.cos(elevation) * math.cos(azimuth), math.cos(elevation) * math.sin(azimuth)]
    target = env.scene.object_pose.to_transform().translation() + np.array([0.0, 0.0, 0.05])
    eye = target + distance_m * np.array([*way, math.sin(elevation)])
    X_WC = look_at(tuple(eye), tuple(target))
    return CameraView("watched", Pinhole.from_field_of_view(*SIZE, 34.0), X_WC, DEPTH_RANGE_M)


# --- The two commands -----------------------------------------------------------------------


def _film(options: FilmOptions) -> int:
    jobs = episodes(options.tasks.names_or_paths(), options.first_seed)
    options.out.mkdir(parents=True, exist_ok=True)
    # Episodes of a task run one after the other, since an environment is slow to make.
    by_task = sorted(jobs, key=lambda job: (job.task, job.number))
    strips: dict[int, np.ndarray] = {}
    verdicts, lost = [], 0
    for job, result in options.workers.run(by_task, _make_run):
        if isinstance(result, LostJob):
            lost += 1
            print_now(options, f"{job} was lost: {result.reason}")
            continue
        strips[job.number], verdict = result
        Image.fromarray(strips[job.number]).save(options.out / f"strip_{job.number:03}.png")
        verdicts.append(asdict(job) | verdict)
    verdicts.sort(key=lambda verdict: verdict["number"])
    text = ",\n".join(json.dumps(verdict) for verdict in verdicts)
    (options.out / "verdicts.json").write_text(f"[\n{text}\n]\n")
    tasks = {job.number: job.task for job in jobs}
    numbers = sorted(strips)
    for start in range(0, len(numbers), STRIPS):
        shown = numbers[start : start + STRIPS]
        sheet = draw_sheet([(f"{n} {tasks[n]}", strips[n]) for n in shown])
        sheet.save(options.out / f"sheet_{start // STRIPS:02}.webp", quality=25, method=6)
    return cli.FAILED if lost else cli.OK


def draw_sheet(strips: Sequence[tuple[str, np.ndarray]]):
    """Returns an image with captions and strips of frames below each other."""
    height, width = strips[0][1].shape[:2]
    sheet = Image.new("RGB", (width, height * len(strips)))
    draw = ImageDraw.Draw(sheet)
    for row, (caption, strip) in enumerate(strips):
        sheet.paste(Image.fromarray(strip), (0, row * height))
        draw.text((4, row * height + 2), caption, (200, 0, 0), font_size=14)
    return sheet


def _make_run() -> Callable[[WatchJob], tuple[np.ndarray, dict[str, Any]]]:
    """Returns the function that films a job; it keeps the environment of the last job's task."""
    environments: dict[str, ToolUseEnv] = {}

    def run(job: WatchJob) -> tuple[np.ndarray, dict[str, Any]]:
        if job.task not in environments:
            environments.clear()
            spec = EnvSpec.of(task=job.task, split="all", render_mode="rgb_array")
            environments[job.task] = spec.make_tool_use()
        return film(environments[job.task], job)

    return run


def _agreement(options: AgreementOptions) -> int:
    verdicts, labels = _read(options.folder)
    rows = list(agreement_rows(verdicts, labels))
    differing = [
        verdict | {"label": labels[verdict["number"]]}
        for verdict in verdicts
        if labels.get(verdict["number"], "unsure") not in ("unsure", _word(verdict))
    ]
    report_rows(options, list(rows[0]), rows, differing=differing)
    for each in differing:
        print_now(options, json.dumps(each))
    return cli.OK


def _word(verdict: dict[str, Any]) -> str:
    return "yes" if verdict["success"] else "no"


def _read(folder: Path) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Returns verdicts, and labels by number.

    Raises:
        ConfigError: A label is unknown, or belongs to no verdict.
    """
    verdicts = json.loads((folder / "verdicts.json").read_text())
    stored = json.loads((folder / "labels.json").read_text())
    labels = {int(number): label for number, label in stored["labels"].items()}
    known = {verdict["number"] for verdict in verdicts}
    wrong = [n for n, label in labels.items() if label not in LABELS or n not in known]
    if wrong:
        raise ConfigError(
            f"Labels are {', '.join(LABELS)}, of episodes in verdicts.json. Correct or remove "
            f"{', '.join(map(str, wrong))} in {folder / 'labels.json'}."
        )
    return verdicts, labels


def agreement_rows(
    verdicts: Sequence[dict[str, Any]], labels: dict[int, str]
) -> Iterator[dict[str, Any]]:
    """Yields counts of labelled episodes for each task, and for all."""
    tasks = list(dict.fromkeys(verdict["task"] for verdict in verdicts))
    for task in (*sorted(tasks), "all"):
        pairs = Counter(
            (labels[verdict["number"]], _word(verdict))
            for verdict in verdicts
            if verdict["number"] in labels and task in ("all", verdict["task"])
        )
        sure = sum(count for (label, _), count in pairs.items() if label != "unsure")
        agreed = pairs["yes", "yes"] + pairs["no", "no"]
        yield {
            "task": task,
            "labelled": pairs.total(),
            "unsure": pairs.total() - sure,
            "both yes": pairs["yes", "yes"],
            "both no": pairs["no", "no"],
            "seen, refused": pairs["yes", "no"],
            "not seen, accepted": pairs["no", "yes"],
            "agreement": f"{agreed / sure:.1%}" if sure else "",
        }


PROGRAM = cli.Program(
    "watched_episodes.py",
    {
        "film": cli.Command(FilmOptions, _film),
        "agreement": cli.Command(AgreementOptions, _agreement),
    },
    description="Compares verdicts with what somebody sees who does not know them.",
    launcher="python benchmarks/",
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
