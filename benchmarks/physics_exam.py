"""Measures what the simulation should do by law: `python benchmarks/physics_exam.py`.

    python benchmarks/physics_exam.py --objects brownie hex_nut --cases
    python benchmarks/physics_exam.py --approximations lagged similar sap

Slabs and blocks fall, lie, slide and tip over on the table; the expert drives nails, turns nuts,
lifts slabs and parts blocks, while all forces are recorded. Each quantity is compared with its
closed form (`benchmarks/exam`).
"""

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from scaffold import main_of, print_now, table_head, table_row

from fleet_tools.utils import cli

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from exam import Answer

_COLUMNS = ("law", "expected; measured", "cases", "within 5%", "errors", "worst case", "there")
_CASE_COLUMNS = ("law", "case", "expected", "measured", "error")


class ExamOptions(cli.Options):
    """Measures forces, motions and energies, and compares them with their closed forms.

    Exit codes:
    0: everything is measured.
    2: it cannot begin.
    130: Ctrl-C.
    """

    objects: tuple[str, ...] = ()
    """Names of objects (default: all of the package)."""
    cases: bool = False
    """Print every case, and not each law with its worst one."""
    approximations: tuple[Literal["lagged", "similar", "sap"], ...] = ()
    """Print the laws of free bodies, with a column for each of these approximations by Drake."""


def _measure(options: ExamOptions) -> int:
    from fleet_tools.config.tasks import load_task, task_names
    from fleet_tools.errors import require_name
    from fleet_tools.sim.catalog import model_names

    known = {
        name for t in task_names() for name in model_names("object", load_task(t).object_family)
    }
    for name in options.objects:
        require_name("object", name, sorted(known))
    if options.approximations:
        return _compare(options)
    found: list[Answer] = []
    print_now(options, table_head(_CASE_COLUMNS if options.cases else _COLUMNS))
    for answer in _answers(options):
        found.append(answer)
        _print_case(options, answer)
    if not options.cases:
        for row in summary(found):
            print_now(options, row)
    if options.json_output:
        options.report({"cases": _as_json(found)}, str)
    return cli.OK


def _answers(options: ExamOptions) -> "Iterator[Answer]":
    from exam.episodes import answers

    return itertools.chain(_of_bodies(options), answers(options.objects))


def _of_bodies(options: ExamOptions) -> "Iterator[Answer]":
    from exam.free_bodies import LAWS, free_bodies

    return (law(body) for body in free_bodies(options.objects) for law in LAWS)


def _compare(options: ExamOptions) -> int:
    from exam import CLOSED_FORMS

    from fleet_tools.sim import world

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


def _passed(answers: "Sequence[Answer]") -> str:
    passes = sum(answer.passes for answer in answers)
    return f"{passes} of {len(answers)}; {_range_of_errors(answers)}"


def _range_of_errors(answers: "Sequence[Answer]") -> str:
    errors = [answer.error for answer in answers]
    return f"{min(errors):+.1%} to {max(errors):+.1%}"


def _as_json(answers: "Iterable[Answer]") -> list[dict[str, Any]]:
    return [asdict(answer) | {"error": answer.error} for answer in answers]


def summary(answers: Iterable["Answer"]) -> list[str]:
    """Returns a row for each law: its cases, and the worst one."""
    from exam import CLOSED_FORMS

    rows = []
    for law, closed_form in CLOSED_FORMS.items():
        of_law = [answer for answer in answers if answer.law == law]
        if not of_law:
            continue
        worst = max(of_law, key=lambda answer: abs(answer.error))
        rows.append(
            table_row(
                [
                    law,
                    closed_form,
                    str(len(of_law)),
                    str(sum(answer.passes for answer in of_law)),
                    _range_of_errors(of_law),
                    worst.case,
                    f"{worst.expected:.3g}; {worst.measured:.3g} {worst.unit}",
                ]
            )
        )
    return rows


def _print_case(options: ExamOptions, answer: "Answer") -> None:
    if options.cases:
        values = (f"{value:.4g} {answer.unit}" for value in (answer.expected, answer.measured))
        print_now(options, table_row([answer.law, answer.case, *values, f"{answer.error:+.2%}"]))


main = main_of(__file__, ExamOptions, _measure)

if __name__ == "__main__":
    sys.exit(main())
