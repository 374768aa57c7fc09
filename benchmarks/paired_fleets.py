"""Compares arms of stored experiments in the same fleets: `python benchmarks/paired_fleets.py`."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from scaffold import ROOT, main_of, report_rows

from fleet_tools.baselines.experiments.result import read_result
from fleet_tools.utils import cli

PAIRS = (
    "fleet_merge git_rebasin",
    "git_rebasin naive_average",
    "sinkhorn_data fleet_merge",
    "fleet_merge common_init",
    "fleet_merge single",
    "linear fleet_merge",
    "fed_sgd fleet_merge",
    "untrained fleet_merge",
    "git_rebasin single",
    "sinkhorn_data single",
    "regmean single",
    "least_squares single",
    "least_squares linear",
    "least_squares fed_sgd",
    "fleet_merge_listing git_rebasin",
    "fleet_merge_half_steps git_rebasin",
    "fleet_merge_identity_in_turn fleet_merge_identity",
)
"""Arms that are compared, in every experiment that has both."""


class PairedFleetsOptions(cli.Options):
    """Prints in how many fleets an arm is more accurate than another, and by how much.

    A fleet is a value and a seed of the experiment. Both arms merge the same networks of it, so
    their difference does not depend on how fleets differ. In experiments of designs, every
    other arm of Fleet-Merge is compared with `fleet_merge`.
    """

    experiments: tuple[str, ...] = (
        "fashion_alphas",
        "fashion_models",
        "fashion_design",
        "mnist_alphas",
        "mnist_models",
        "mnist_design",
        "fashion_elman",
        "cifar10_cnn",
        "speakers",
        "shakespeare",
    )
    """Names of experiments in `experiments/studies`, with one measure of accuracy."""


def _measure(options: PairedFleetsOptions) -> int:
    columns = ("experiment", "arm", "compared with", "fleets", "accuracy", "by value")
    report_rows(options, columns, _rows(options.experiments))
    return cli.OK


def _rows(experiments: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in experiments:
        experiment, result = read_result(ROOT / "experiments/studies" / f"{name}.json")
        cells = {(c["arm"], c["value"], c["seed"]): c["accuracy"] for c in result["cells"]}
        arms = list(dict.fromkeys(arm for arm, _, _ in cells))
        designs = [arm for arm in arms if arm.startswith("fleet_merge_")]
        for pair in (*PAIRS, *(f"{arm} fleet_merge" for arm in designs)):
            one, other = pair.split()
            if one not in arms or other not in arms:
                continue
            gains = [
                (value, accuracy - cells[other, value, seed])
                for (arm, value, seed), accuracy in cells.items()
                if arm == one
            ]
            fleets, accuracy = _counted(gain for _, gain in gains)
            by_value = [
                f"{value}: {', '.join(_counted(gain for at, gain in gains if at == value))}"
                for value in experiment.cases
            ]
            yield {
                "experiment": name,
                "arm": one,
                "compared with": other,
                "fleets": fleets,
                "accuracy": accuracy,
                "by value": "; ".join(by_value),
            }


def _counted(gains: Iterable[float]) -> tuple[str, str]:
    found = list(gains)
    ahead = sum(gain > 0 for gain in found)
    return f"{ahead} of {len(found)}", f"{min(found):+.3f} to {max(found):+.3f}"


main = main_of(__file__, PairedFleetsOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
