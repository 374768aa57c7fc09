"""Texts that the Markdown page and the HTML page share."""

from collections import Counter
from collections.abc import Sequence

from fleet_tools.config.cameras import IDEAL
from fleet_tools.evaluation.result import Rate
from fleet_tools.evaluation.score_tables import HANDLING_COLUMNS, handling_texts
from fleet_tools.evaluation.scores import score
from fleet_tools.leaderboard.board import Board, RankedLevel, Ranking, RankingKind, Reruns, reruns
from fleet_tools.leaderboard.records import Certificate
from fleet_tools.leaderboard.standings import Standing, SuccessRate
from fleet_tools.leaderboard.submissions import Submission

READING = (
    "Success is the rate of episodes whose outcome is a success, with its 95% interval; success "
    "once is the rate of episodes in which the success predicates held after any step. The "
    "interval of a tool or of a split is Wilson's. The total is the mean over all pairs of tool "
    "and split, and its interval is of the same score test for such a mean.",
    "The rank of a method is 1 plus the number of methods of its track whose whole interval of the "
    "total lies above its own. A method without results of every tool has no total and no rank.",
    "Methods that share a letter cannot be told apart, and methods that share none differ. Each "
    "pair of methods of a track is compared scene by scene, by the means over their training "
    "runs: the letters are about the policies as they were trained. In all pairs together, the "
    "probability that two are told apart that are equal is at most 5% (Holm 1979).",
    "For a method that was trained several times, each number is the mean over its training runs, "
    "and its interval is wider the more they differ: other training runs would differ, too.",
    "Errors are episodes that ended by an error: of the policy, which raised one or returned no "
    "valid action; of the worker, a process that died or hung; or of the simulator. Those of the "
    "policy and of the worker count as failures; those of the simulator do not count as trials.",
    "Verified are results of which we ran some episodes again, from their actions or by their "
    "policy, drawn after the submission: each ended alike. Whether the bits are the same, too, "
    "depends on the machine.",
    "Verdicts at smaller time steps are of stored actions that ran again with smaller steps of the "
    "dynamics. An episode is near the edge if its verdict changes: the step decides it.",
)
"""How to read the numbers, by paragraphs."""

HEADINGS: dict[RankingKind, str] = {
    "keypoints": "Keypoints",
    "clouds": "Point clouds",
    "images": "Images",
    "privileged": "Privileged",
    "unverified": "Not verified",
}
"""Headings of the kinds of rankings."""

NOTES: dict[RankingKind, str] = {
    "keypoints": "These methods act on their observations alone, which have exact keypoints.",
    "clouds": "These methods act on point clouds alone, beside the robot's own senses.",
    "images": "These methods act on images alone, beside the robot's own senses.",
    "privileged": "These methods could read the state of the simulator, whether they do or not.",
    "unverified": "These results have no rank: we have not run their episodes again.",
}
"""What methods of each kind of ranking have in common."""

SENSORS_NOTE = (
    "Their depth cameras make the errors of {sensors} cameras: noise, lost edges, miscalibration "
    "and delay, the same for all methods."
)
"""What methods of a ranking with other cameras than ideal ones have in common."""

PREVIEW = (
    "These results are incomplete: they have no rank, are not verified, and nothing else on this "
    "page counts them. A tool needs all its scenes."
)
"""What a preview means."""

SUBMITTING_PAGE = "docs/benchmark/submitting.md"
"""The page that says more about it, from the root of the repository."""

SUBMITTING = (
    (
        "Evaluate your policy: a checkpoint, or module:factory, where factory(env) returns an "
        "object with reset() and act(observation). If the method was trained several times, give "
        "each training run its --training-seed and its own folder.",
        (
            "python -m fleet_tools.evaluate --policy my_module:make_policy --name my_method "
            "--output leaderboard/results/my_method",
        ),
    ),
    (
        "Check the result as we do, and take your verification back, since ours counts. Tools may "
        "be missing, but a tool needs all its scenes.",
        (
            "python -m fleet_tools.leaderboard leaderboard/results --verify 10 --output page.html",
            "git checkout leaderboard/results/verified.jsonl",
        ),
    ),
    (
        "Commit the folder of your method and nothing else, and open a pull request.",
        ('git add leaderboard/results/my_method && git commit -m "Leaderboard: my_method"',),
    ),
)
"""How to submit a result: steps, and the commands of each, which `SUBMITTING_PAGE` has, too."""


ACROSS = (
    "Success over all tools at each level, with its 95% interval; where a method has results of "
    "some tools only, their rates. Methods are sorted by track, which is what they read, and then "
    "as at the first level."
)
"""What the table of all levels shows."""


def level_text(level: RankedLevel) -> str:
    """Returns what a level is, as plain text."""
    protocol = level.protocol
    episodes = len(protocol.trials())
    return f"{protocol.title}, {episodes} episodes. {protocol.description}"


def across_columns(board: Board) -> list[str]:
    """Returns the names of the columns of the table of all levels."""
    return ["track", "method", "policies", *(each.protocol.level_name for each in board.levels)]


def policies_text(standing: Standing) -> str:
    """Returns how many policies there are, and for which tools, such as "one for all tools"."""
    tools, count = list(standing.tasks), standing.policies
    if count > 1:
        return f"{count} for {len(tools)} tools"
    every = len(tools) > 1 and len(tools) == len(standing.protocol.tasks)
    return "one for all tools" if every else f"one for {', '.join(tools)}"


def part_text(standing: Standing) -> str:
    """Returns the rates of a method without a total, by tool."""
    return ", ".join(f"{task} {percent(rate.rate)}" for task, rate in standing.tasks.items())


def heading(ranking: Ranking) -> str:
    """Returns the heading of a ranking."""
    kind = HEADINGS[ranking.kind]
    usual = ranking.sensors == (ranking.protocol.sensors or IDEAL)
    return kind if usual else f"{kind}, {readable(ranking.sensors)} sensors"


def ranking_notes(ranking: Ranking) -> str:
    """Returns what the methods of a ranking have in common."""
    note = NOTES[ranking.kind]
    if ranking.sensors == IDEAL:
        return note
    return f"{note} {SENSORS_NOTE.format(sensors=readable(ranking.sensors))}"


def column_names(ranking: Ranking) -> list[str]:
    """Returns the names of the table's columns; "verified" only where results are."""
    verified = ["verified"] if has_reruns(ranking) else []
    return [
        *("rank", "method", "total", "letters"),
        *ranking.protocol.tasks,
        *ranking.protocol.splits,
        *("policies", "success once", "errors"),
        *verified,
    ]


HANDLING_NOTE = (
    "How they handle the tasks, as means over episodes, failures included. Gentle is the rate "
    "of successes in which the hand's force on object and table, and its work while it touches the "
    "table, stay within the limits of the task. A dash stands where a result does not tell it."
)
"""What the table of handling shows."""


def handling_columns() -> list[str]:
    """Returns the names of the columns of the table of handling."""
    return ["method", "total", "gentle", *HANDLING_COLUMNS]


def has_handling(ranking: Ranking) -> bool:
    """Returns whether it is known of any of its methods how it handles the tasks."""
    return any(each.overall and each.overall.handling for each in ranking.standings)


def handling_cells(standing: Standing) -> list[tuple[float | None, str]]:
    """Returns numbers and texts of that table, from gentle on; dashes where they are not known."""
    overall = standing.overall
    gentle, numbers = (overall.gentle, overall.handling) if overall else (None, None)
    known = numbers or {}
    values = [known.get(name) for name in HANDLING_COLUMNS.values()]
    texts = ["-" if gentle is None else percent(gentle), *handling_texts(numbers)]
    return list(zip([gentle, *values], texts, strict=True))


def has_reruns(ranking: Ranking) -> bool:
    """Returns whether episodes of any of its methods ran again."""
    return any(reruns(standing) is not None for standing in ranking.standings)


def reruns_text(again: Reruns) -> str:
    """Returns how many episodes ended alike, such as "40 of 40"; and the bits, if they differ."""
    bits = "" if again.same == again.episodes else f", {again.same} to the same bits"
    return f"{again.same_outcome} of {again.episodes}{bits}"


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
    return f"{episodes - near} of {episodes} verdicts the same at {steps_text(steps)}{edge}"


def steps_text(steps_ms: Sequence[float]) -> str:
    """Returns time steps in milliseconds as text, such as "2 and 1 ms"."""
    return " and ".join(f"{step:g}" for step in steps_ms) + " ms"


def preview_columns(board: Board) -> list[str]:
    """Returns the names of the columns of the table of incomplete results."""
    return ["result", "method", *board.protocol.tasks, "missing"]


def preview_row(board: Board, submission: Submission) -> list[str]:
    """Returns an incomplete result's cells, from the episodes that are there."""
    protocol = submission.evaluation.result.protocol
    rates = preview_rates(submission)
    level = f", {protocol.level}" if protocol.level else ""
    seed = submission.policy.training_seed
    run = "" if seed is None else f", training seed {seed}"
    return [
        submission.folder,
        f"{submission.policy.label}{run}{level}",
        *(rates.get(task, "") for task in board.protocol.tasks),
        submission.missing,
    ]


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
