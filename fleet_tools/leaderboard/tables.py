"""The tables of the leaderboard as values, which both pages lay out, and texts in them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fleet_tools.evaluation.result import Rate
from fleet_tools.evaluation.score_tables import CONTACT_METRICS_COLUMNS, contact_metrics_texts
from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.board import HEADINGS, Board, RankedLevel, Ranking, across_levels
from fleet_tools.leaderboard.records import Certificate, StepVerdicts, Verification
from fleet_tools.leaderboard.standings import Standing, SuccessRate
from fleet_tools.leaderboard.submissions import Submission
from fleet_tools.storage.provenance import Machine


class Cell(NamedTuple):
    """A cell of a table.

    Attributes:
        text: Its text.
        value: By what its column is sorted; "" if it is missing, and last in either order.
        kind: "success", "method", "head", another class of the page's style, or "".
        success: The success rate that it shows in place of a text.
        notes: Small print below the text.
        anchor: Identifier of the method's details.
    """

    text: str = ""
    value: str = ""
    kind: str = ""
    success: SuccessRate | None = None
    notes: Sequence[str] = ()
    anchor: str = ""


class Table(NamedTuple):
    """A table.

    Attributes:
        columns: Names of the columns; "" for none.
        rows: Its rows.
        groups: Names above some columns, and how many columns each spans; "" for none.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    groups: Sequence[tuple[str, int]] = ()


def across_table(board: Board) -> Table:
    """Returns the table of all levels: rates of all tools, or of each where some are missing."""
    levels = [each.protocol.level_name for each in board.levels]
    rows = []
    for row in across_levels(board):
        cells = [Cell(HEADINGS[row.track]), Cell(row.name, kind="method")]
        cells.append(Cell(policies_text(row.some)))
        for standing in row.standings:
            if standing is not None and standing.overall is None:
                rates = [f"{task} {percent(rate.rate)}" for task, rate in standing.tasks.items()]
                cells.append(Cell(", ".join(rates)))
            else:
                cells.append(_total(standing))
        rows.append(cells)
    return Table(["track", "method", "policies", *levels], rows)


def ranking_table(ranking: Ranking, board: Board) -> Table:
    """Returns the table of a ranking; its last column is there if episodes ran again."""
    tasks, splits = ranking.protocol.tasks, ranking.protocol.splits
    verified = any(reruns_text(each) for each in ranking.standings)
    columns = ["rank", "method", "total", "letters", *tasks, *map(readable, splits)]
    columns += ["policies", "success once", "errors", *(["verified"] * verified)]
    return Table(
        columns,
        [_row(ranking, standing, board)[: len(columns)] for standing in ranking.standings],
        [("", 4), ("Tools", len(tasks)), ("Splits", len(splits)), ("", 3 + verified)],
    )


def _row(ranking: Ranking, standing: Standing, board: Board) -> list[Cell]:
    overall, label = standing.overall, standing.label
    rank, once = (overall.rank, overall.success_once) if overall else (None, None)
    letters, errors = ranking.letters.get(label, ""), error_counts(standing)
    texts = ", ".join(f"{count} {origin}" for origin, count in errors.items())
    return [
        Cell(str(rank or ""), _number(rank), "rank"),
        Cell(label, label, "method", notes=notes(standing), anchor=board.anchor(standing)),
        _total(standing),
        Cell(letters, letters, "letters"),
        *(_success(standing.tasks.get(task)) for task in ranking.protocol.tasks),
        *(_success(overall and overall.splits[split]) for split in ranking.protocol.splits),
        Cell(policies_text(standing), str(standing.policies)),
        Cell("" if once is None else percent(once), _number(once)),
        Cell(texts or "none", str(sum(errors.values()))),
        _verified(standing),
    ]


def contact_metrics_table(ranking: Ranking) -> Table:
    """Returns the table of how methods handle the tasks; dashes where it is not known."""
    rows = []
    for standing in ranking.standings:
        overall = standing.overall
        gentle, contact_metrics = (
            (overall.gentle, overall.contact_metrics) if overall else (None, None)
        )
        texts = [
            "-" if gentle is None else percent(gentle),
            *contact_metrics_texts(contact_metrics),
        ]
        rows.append([Cell(standing.label, kind="method"), _total(standing), *map(Cell, texts)])
    return Table(["method", "total", "gentle", *CONTACT_METRICS_COLUMNS], rows)


def strata_table(standing: Standing) -> Table:
    """Returns the table of a method's rates by task and split."""
    splits = standing.protocol.splits
    rows = [
        [Cell(readable(task), kind="head"), *(_success(of_task[split]) for split in splits)]
        for task, of_task in standing.strata.items()
    ]
    return Table(["", *map(readable, splits)], rows)


def preview_table(board: Board) -> Table:
    """Returns the table of incomplete results, from the episodes that are there."""
    tasks, rows = board.protocol.tasks, []
    for submission in board.previews:
        rates, policy = preview_rates(submission), submission.policy
        level = submission.evaluation.result.protocol.level
        run = "" if policy.training_seed is None else f", training seed {policy.training_seed}"
        name = f"{policy.label}{run}{f', {level}' if level else ''}"
        texts = [submission.folder, name, *(rates.get(task, "") for task in tasks)]
        rows.append([*map(Cell, texts), Cell(submission.missing)])
    return Table(["result", "method", *tasks, "missing"], rows)


def plots(board: Board, level: RankedLevel) -> Iterator[tuple[str, list[tuple[str, SuccessRate]]]]:
    """Yields the names of a level's plots, and names and rates of the methods in each."""
    standings = [each for ranking in board.rankings_of(level) for each in ranking.standings]
    overall = [(each.label, each.overall) for each in standings if each.overall]
    found = {"total": [(name, numbers.total) for name, numbers in overall]}
    for task in level.protocol.tasks:
        found[task] = [(e.label, e.tasks[task]) for e in standings if task in e.tasks]
    for split in level.protocol.splits:
        found[readable(split)] = [(name, numbers.splits[split]) for name, numbers in overall]
    yield from ((name, rows) for name, rows in found.items() if rows)


def facts(standing: Standing) -> list[dict[str, str]]:
    """Returns the provenance of each result of a method, as values by name."""
    return [_facts(submission) for submission in standing.submissions]


def _facts(submission: Submission) -> dict[str, str]:
    result = submission.evaluation.result
    policy = result.policy
    env_kwargs = policy.env_kwargs or {"obs_mode": "state"}
    pairs = {
        "result": submission.folder,
        "policy": f"{policy.source} ({readable(policy.kind)})",
        "hash": policy.content_digest or "",
        "training seed": "" if policy.training_seed is None else str(policy.training_seed),
        "environment": ", ".join(f"{name}={value}" for name, value in env_kwargs.items()),
        "versions": ", ".join(f"{name} {version}" for name, version in result.packages.items()),
        "hardware": _hardware(result.machine),
        "command": result.command,
        "verified": _verification(submission.verification),
        "smaller steps": _certificate(submission.certificate),
    }
    return {name: value for name, value in pairs.items() if value}


def _certificate(certificate: Certificate | None) -> str:
    if certificate is None:
        return ""
    marks = "; ".join(_edge(each, certificate.steps_ms) for each in certificate.near_the_edge)
    return ": ".join(filter(None, [certificate_text([certificate]), marks]))


def _edge(episode: StepVerdicts, steps_ms: Sequence[float]) -> str:
    pairs = list(zip(steps_ms, episode.successes, strict=True))
    solved = _steps([step for step, success in pairs if success])
    failed = _steps([step for step, success in pairs if not success])
    told = f"success at {solved}, failure at {failed}"
    return f"episode {episode.index} of {episode.task}, {episode.split} ({told})"


def _steps(steps_ms: Sequence[float]) -> str:
    return " and ".join(f"{step:g}" for step in steps_ms) + " ms"


def _hardware(machine: Machine) -> str:
    return (
        f"{machine.processor}, {machine.cores:g} cores, {machine.memory_gib:g} GiB; "
        f"{machine.system}"
    )


def _verification(found: Verification | None) -> str:
    if found is None:
        return ""
    versions = _instead("the same versions", "other versions", found.other_versions)
    machine = _instead("", "another machine", found.other_machine)
    where = f"{versions}, {machine}," if machine else versions
    by = "by its policy" if found.by == "policy" else "from their actions"
    states = ""
    if found.largest_distance_m is not None:
        states = (
            f", {found.within} of {found.measured} with a last state within {found.within_m:g} m "
            f"(largest distance {found.largest_distance_m:.2g} m)"
        )
    return (
        f"{found.same_outcome} of {found.episodes} episodes ended alike when they ran again {by}, "
        f"{found.same} of them with the same bits{states}, on {where} and "
        f"{_hardware(found.machine)}, drawn with seed {found.seed}."
        f"{''.join(f' {difference}.' for difference in found.differences)}"
    )


def _instead(same: str, other: str, differing: Mapping[str, tuple[str, str | None]]) -> str:
    pairs = [f"{name} {here} instead of {then}" for name, (then, here) in differing.items()]
    return f"{other} ({', '.join(pairs)})" if pairs else same


# --- Cells ----------------------------------------------------------------------------------


def _success(success: SuccessRate | None) -> Cell:
    return Cell(value=_number(success and success.rate), kind="success", success=success)


def _total(standing: Standing | None) -> Cell:
    return _success(standing.overall.total if standing and standing.overall else None)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _verified(standing: Standing) -> Cell:
    share = [sum(each) for each in zip(*_reruns(standing), strict=True)]
    if not share or not share[0]:
        return Cell()
    episodes, same_outcome, _ = share
    kind = "" if same_outcome == episodes else "bad"
    return Cell(reruns_text(standing), _number(same_outcome / episodes), kind)


def _reruns(standing: Standing) -> list[tuple[int, int, int]]:
    found = [each.verification for each in standing.submissions if each.verification is not None]
    return [(each.episodes, each.same_outcome, each.same) for each in found]


def reruns_text(standing: Standing) -> str:
    """Returns how many episodes ended alike, such as "40 of 40"; and the bits, if they differ."""
    if not (found := _reruns(standing)):
        return ""
    episodes, same_outcome, same = (sum(each) for each in zip(*found, strict=True))
    bits = "" if same == episodes else f", {same} to the same bits"
    return f"{same_outcome} of {episodes}{bits}"


def policies_text(standing: Standing) -> str:
    """Returns how many policies there are, and for which tools, such as "one for all tools"."""
    tools, count = list(standing.tasks), standing.policies
    if count > 1:
        return f"{count} for {len(tools)} tools"
    every = len(tools) > 1 and len(tools) == len(standing.protocol.tasks)
    return "one for all tools" if every else f"one for {', '.join(tools)}"


def percent(rate: float | None) -> str:
    """Returns a rate as text, such as "93.2%"."""
    return "no trials" if rate is None else f"{rate:.1%}"


def interval(rate: SuccessRate | Rate) -> str:
    """Returns an interval as text, such as "90.1% to 95.4%"."""
    return f"{percent(rate.low)} to {percent(rate.high)}"


def training_run_note(standing: Standing) -> str:
    """Returns the number of a method's training runs and their spread; empty for a single one."""
    if len(standing.training_runs) == 1:
        return ""
    rates = standing.overall.total.of_training_runs if standing.overall else ()
    known = [rate for rate in rates if rate is not None]
    spread = f": {percent(min(known))} to {percent(max(known))}" if known else ""
    return f"{len(standing.training_runs)} training runs{spread}"


def notes(standing: Standing) -> list[str]:
    """Returns what stands in small print below a method's name."""
    found = [each.certificate for each in standing.submissions]
    certified = certificate_text([each for each in found if each is not None])
    return [note for note in (standing.description, training_run_note(standing), certified) if note]


def certificate_text(certificates: Sequence[Certificate]) -> str:
    """Returns how many verdicts smaller steps leave as they are; empty without certificates."""
    episodes = sum(len(each.episodes) for each in certificates)
    if not episodes:
        return ""
    near = sum(len(each.near_the_edge) for each in certificates)
    steps = sorted({step for each in certificates for step in each.steps_ms[1:]}, reverse=True)
    edge = f"; {near} near the edge" if near else ""
    return f"{episodes - near} of {episodes} verdicts the same at {_steps(steps)}{edge}"


def preview_rates(submission: Submission) -> dict[str, str]:
    """Returns the success rate of an incomplete result by task, such as "3 of 5 (23% to 88%)"."""
    evaluation = submission.evaluation
    tasks = score(evaluation.result.protocol, evaluation.episodes).tasks
    rates = {task: of_task.success for task, of_task in tasks.items()}
    return {
        task: f"{rate.successes} of {rate.trials} ({interval(rate)})"
        for task, rate in rates.items()
    }


def error_counts(standing: Standing) -> dict[str, int]:
    """Returns the numbers of episodes that ended by an error, by its origin, without zeros."""
    counts = sum((Counter(score.errors) for score in standing.scores), Counter())
    return {origin: count for origin, count in counts.items() if count}


def readable(name: str) -> str:
    """Returns a name with spaces, such as "unseen tools"."""
    return name.replace("_", " ")
