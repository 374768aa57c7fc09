"""How much code one merge of two networks passes: distinct functions and files of the project.

    python benchmarks/merge_trace.py            # a table
    python benchmarks/merge_trace.py --list     # the functions, too

Calls are counted (see `tracing.traced`) after one merge has been run, so that what runs once on
import is not among them. `problem` begins with a complete `MergeProblem`, as a round of a fleet
does; `models` with modules and loaders, of which tables and data holders are made.
"""

import argparse
from collections.abc import Callable

import torch
from torch import nn
from tracing import traced

from fleet_merging import merge, problem_of


def network(seed: int) -> nn.Module:
    """Returns a small network with weights of its own."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )


def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the functions")
    listed = parser.parse_args().list
    torch.manual_seed(0)
    models = [network(seed) for seed in range(2)]
    data = [[(torch.randn(64, 8), torch.randn(64, 3))] for _ in models]
    cases = {
        "git_rebasin": {},
        "fleet_merge, five steps": {"epochs": 1, "steps": 5},
        "density_gate": {},
    }
    print(f"{'merge of two MLPs':28}{'of':>9}{'functions':>11}{'files':>7}")
    for title, options in cases.items():
        method = title.partition(",")[0]
        problem = problem_of(models, data=data, method=method)
        actions: dict[str, Callable[[], object]] = {
            "problem": lambda m=method, o=options, p=problem: merge(m, p, **o),
            "models": lambda m=method, o=options: merge(m, models, data=data, **o),
        }
        for kind, action in actions.items():
            action()
            found = traced(action)
            files = {file for file, _ in found}
            print(f"{title:28}{kind:>9}{len(found):>11}{len(files):>7}")
            if listed:
                print("\n".join(f"    {file}: {name}" for file, name in sorted(found)))


if __name__ == "__main__":
    main()
