"""Verdicts against who watches: `python benchmarks/watched_episodes.py film --out FOLDER`.

    python benchmarks/watched_episodes.py agreement

`film` runs episodes of many kinds, good and bad, and writes frames of each under a number that says
nothing of its verdict. Somebody looks at the frames and writes what was seen as labels.
`agreement` compares stored labels with the verdicts.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scaffold import TaskSelection, print_now, table_head, table_row

from fleet_tools.config.values import Seed
from fleet_tools.errors import ConfigError
from fleet_tools.parallel.workers import LostJob, WorkerOptions
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from filmed_episodes import WatchJob

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
    2: it cannot begin.
    130: Ctrl-C.
    """

    out: Path
    """Folder for the sheets and for verdicts.json."""
    tasks: TaskSelection = TaskSelection()
    first_seed: Seed = 5000
    """Seed of the first scene; the others follow."""
    workers: WorkerOptions = WorkerOptions(timeout=1800.0)


class AgreementOptions(cli.Options):
    """Prints how many labels agree with the verdicts, by task.

    Exit codes:
    0: it was printed.
    2: the labels do not fit the verdicts.
    """

    folder: Path = WATCHED
    """Folder with labels.json and verdicts.json."""


def _film(options: FilmOptions) -> int:
    from filmed_episodes import episodes
    from PIL import Image

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
    from PIL import Image, ImageDraw

    height, width = strips[0][1].shape[:2]
    sheet = Image.new("RGB", (width, height * len(strips)))
    draw = ImageDraw.Draw(sheet)
    for row, (caption, strip) in enumerate(strips):
        sheet.paste(Image.fromarray(strip), (0, row * height))
        draw.text((4, row * height + 2), caption, (200, 0, 0), font_size=14)
    return sheet


def _make_run() -> Callable[["WatchJob"], tuple[np.ndarray, dict[str, Any]]]:
    """Returns the function that films a job; it keeps the environment of the last job's task."""
    from filmed_episodes import film

    from fleet_tools.envs.spec import EnvSpec
    from fleet_tools.envs.tool_use_env import ToolUseEnv

    environments: dict[str, ToolUseEnv] = {}

    def run(job: "WatchJob") -> tuple[np.ndarray, dict[str, Any]]:
        if job.task not in environments:
            environments.clear()
            spec = EnvSpec.of(task=job.task, split="all", render_mode="rgb_array")
            environments[job.task] = spec.make_tool_use()
        return film(environments[job.task], job)

    return run


# --- Agreement ------------------------------------------------------------------------------


def _agreement(options: AgreementOptions) -> int:
    verdicts, labels = _read(options.folder)
    rows = list(agreement_rows(verdicts, labels))
    columns = list(rows[0])
    print_now(options, table_head(columns))
    for row in rows:
        print_now(options, table_row(map(str, row.values())))
    differing = [
        verdict | {"label": labels[verdict["number"]]}
        for verdict in verdicts
        if labels.get(verdict["number"], "unsure") not in ("unsure", _word(verdict))
    ]
    print_now(options, "")
    for each in differing:
        print_now(options, json.dumps(each))
    if options.json_output:
        options.report({"rows": rows, "differing": differing}, str)
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
            f"Labels are {', '.join(LABELS)}, of episodes in verdicts.json; not so those of "
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
