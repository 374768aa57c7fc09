"""Compares the simulation with laws of physics: `python benchmarks/physics_exam.py`.

    python benchmarks/physics_exam.py --objects brownie hex_nut
    python benchmarks/physics_exam.py --approximations lagged similar sap

Slabs and blocks fall, lie, slide and tip over on the table. The expert drives nails, turns nuts,
lifts slabs and parts blocks. All forces are recorded. Each quantity is compared with its
closed form (`benchmarks/exam`).
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from exam import CLOSED_FORMS, Answer
from exam.episodes import answers
from exam.free_bodies import LAWS, free_bodies
from scaffold import main_of, print_now, table_head, table_row

from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.errors import require_name
from fleet_tools.sim import world
from fleet_tools.sim.catalog import model_names
from fleet_tools.utils import cli

_COLUMNS = ("law", "expected; measured", "cases", "within 5%", "errors", "worst case", "there")


class ExamOptions(cli.Options):
    """Measures forces, motions and energies, and compares them with their closed forms."""

    objects: tuple[str, ...] = ()
    """Names of objects (default: all of the package)."""
    approximations: tuple[Literal["lagged", "similar", "sap"], ...] = ()
    """Print the laws of free bodies, with a column for each of these approximations by Drake."""


def _measure(options: ExamOptions) -> int:
    known = {
        name for t in task_names() for name in model_names("object", load_task(t).object_family)
    }
    for name in options.objects:
        require_name("object", name, sorted(known))
    if options.approximations:
        return _compare(options)
    found = [*_of_bodies(options), *answers(options.objects)]
    print_now(options, "\n".join([table_head(_COLUMNS), *summary(found)]))
    if options.json_output:
        options.report({"cases": _as_json(found)}, str)
    return cli.OK


def _of_bodies(options: ExamOptions) -> Iterator[Answer]:
    return (law(body) for body in free_bodies(options.objects) for law in LAWS)


def _compare(options: ExamOptions) -> int:
    usual, found = world.CONTACT_APPROXIMATION, {}
    try:
        for name in options.approximations:
            world.CONTACT_APPROXIMATION = name
            found[name] = list(_of_bodies(options))
    finally:
        world.CONTACT_APPROXIMATION = usual
    print_now(options, table_head(("law", *found)))
    for law in CLOSED_FORMS:
        of_law = [[answer for answer in answers if answer.law == law] for answers in found.values()]
        if of_law[0]:
            print_now(options, table_row([law, *map(_passed, of_law)]))
    if options.json_output:
        options.report({name: _as_json(answers) for name, answers in found.items()}, str)
    return cli.OK


def _passed(answers: Sequence[Answer]) -> str:
    passes = sum(answer.passes for answer in answers)
    return f"{passes} of {len(answers)}; {_range_of_errors(answers)}"


def _range_of_errors(answers: Sequence[Answer]) -> str:
    errors = [answer.error for answer in answers]
    return f"{min(errors):+.1%} to {max(errors):+.1%}"


def _as_json(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    return [asdict(answer) | {"error": answer.error} for answer in answers]


def summary(answers: Iterable[Answer]) -> list[str]:
    """Returns a row for each law: its cases, and the worst one."""
    rows = []
    for law, closed_form in CLOSED_FORMS.items():
        of_law = [answer for answer in answers if answer.law == law]
        if not of_law:
            continue
        worst = max(of_law, key=lambda answer: abs(answer.error))
        counts = (str(len(of_law)), str(sum(answer.passes for answer in of_law)))
        values = f"{worst.expected:.3g}; {worst.measured:.3g} {worst.unit}"
        cells = (law, closed_form, *counts, _range_of_errors(of_law), worst.case, values)
        rows.append(table_row(cells))
    return rows


main = main_of(__file__, ExamOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
