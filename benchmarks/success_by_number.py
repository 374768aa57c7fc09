"""Success by a number of the scene: `python benchmarks/success_by_number.py RESULT ...`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scaffold import main_of, report_rows
from tyro.conf import Positional, arg

from fleet_tools.errors import ConfigError
from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.evaluation.result import Evaluation
    from fleet_tools.sim.scene import Scene

_COLUMNS = ["policy", "task", "level", "within", "outside", "p"]


class SuccessByNumberOptions(cli.Options):
    """Counts the solved scenes in which a number lies within an interval, and the other ones.

    Scenes are drawn again from the seeds of stored results; nothing is simulated. p is by Fisher's
    exact test, two-sided.

    Exit codes:
    0: they were counted.
    2: a result cannot be read, or its scenes do not have this number.
    """

    results: Annotated[tuple[Path, ...], Positional, arg(metavar="RESULT")]
    """Folders of results, each of one level."""
    number: str
    """The number, by its path in the scene, such as `object_pose.rpy_deg.2`."""
    within: tuple[float, float]
    """Ends of the interval; the first one belongs to it."""


def number_of(scene: "Scene", path: str) -> float:
    """Returns a number of a scene.

    Args:
        scene: The scene.
        path: Keys and indices of its JSON form, such as `object_pose.rpy_deg.2`.

    Raises:
        ConfigError: There is no such number.
    """
    content: Any = scene.model_dump(mode="json")
    done: list[str] = []
    for key in path.split("."):
        if isinstance(content, list):
            content = {str(index): entry for index, entry in enumerate(content)}
        known = content if isinstance(content, dict) else {}
        if key not in known:
            raise ConfigError(
                f"A scene has no number {path!r}. {'.'.join(done) or 'It'} has "
                f"{', '.join(known) or 'no entries'}."
            )
        content = known[key]
        done.append(key)
    if not isinstance(content, float | int):
        raise ConfigError(f"{path!r} of a scene is no number: {content!r:.80}.")
    return float(content)


def _count(options: SuccessByNumberOptions) -> int:
    from fleet_tools.evaluation.result_folder import load_evaluation

    evaluations = [load_evaluation(folder) for folder in options.results]
    report_rows(options, _COLUMNS, list(_rows(options, evaluations)))
    return cli.OK


def _rows(
    options: SuccessByNumberOptions, evaluations: "list[Evaluation]"
) -> Iterator[dict[str, Any]]:
    from scipy.stats import fisher_exact

    first, last = options.within
    for evaluation in evaluations:
        protocol = evaluation.result.local_protocol()
        for name in sorted({episode.task for episode in evaluation.episodes}):
            task = protocol.load_task(name)
            counts = {True: [0, 0], False: [0, 0]}
            for episode in evaluation.episodes:
                if episode.task == name:
                    number = number_of(protocol.scene(task, episode), options.number)
                    counts[first <= number < last][episode.success] += 1
            cells = [f"{solved} of {failed + solved}" for failed, solved in counts.values()]
            _, p = fisher_exact(list(counts.values()))
            policy, level = evaluation.result.policy.name, protocol.level_name
            yield dict(zip(_COLUMNS, [policy, name, level, *cells, f"{p:.2g}"], strict=True))


main = main_of(__file__, SuccessByNumberOptions, _count)

if __name__ == "__main__":
    sys.exit(main())
