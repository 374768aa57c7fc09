"""A leaderboard of made-up values, with as many methods and levels as it may have."""

from typing import Any

from fleet_tools.evaluation.level_cost import PairedDifference
from fleet_tools.leaderboard.board import (
    Board,
    Clip,
    LevelScore,
    Method,
    Rejection,
    SuccessRate,
    Track,
)

LEVELS = [
    ("nominal", "New scenes of the kind that policies train on."),
    ("cameras", "Depth cameras with noise, lost edges, miscalibration and delay."),
    ("pushes", "Pushes on the hand and on the object while the policy acts."),
    ("physics", "Masses and friction beyond the ranges of training."),
    ("poses", "Poses and grasps beyond the ranges of training."),
    ("long", "Two objects in turn; the spatula carries its slab to a marked place."),
]
TASKS = ("hammer", "knife", "pry_bar", "screwdriver", "spatula", "wrench")
SPLITS = ("train", "unseen_pairs", "unseen_tools", "unseen_objects")
CLIP = Clip(b"\0video", 384, 192, {"hammer": "success", "knife": "time_limit"})


def rate(value: float, half_width: float = 0.06) -> SuccessRate:
    return SuccessRate(value, max(0.0, value - half_width), min(1.0, value + half_width))


def a_method(name: str, track: Track, score: float | None, **others: Any) -> Method:
    """Returns a method that is worse at each level than at the one before."""
    blind = () if track in ("clouds", "images") else ("cameras",)
    levels: dict[str, LevelScore | None] = {}
    for k, (level, _) in enumerate(LEVELS):
        if score is None or level in blind:
            levels[level] = None
            continue
        drop = min(score, 0.05 * k)
        cost = PairedDifference(drop, drop - 0.06, drop + 0.06, 240) if k else None
        around = rate(score - drop, 0.07)
        levels[level] = LevelScore(around.rate, around.low, around.high, cost)
    ranked: dict[str, Any] = {}
    if score is not None:
        ranked = {"score": rate(score), "rank": 1, "letters": "ab"}
    numbers: dict[str, Any] = {
        "levels": levels,
        "tasks": {} if score is None else {task: rate(score, 0.12) for task in TASKS},
        "splits": {} if score is None else {split: rate(score, 0.1) for split in SPLITS},
        "failures": {"grasp": 2, "reach": 31, "time_limit": 8},
        "provenance": {"policy": f"checkpoints/{name}.safetensors", "hash": "0123456789abcdef" * 2},
    }
    given: dict[str, Any] = {"title": name, "description": f"What {name} is, in one line"}
    return Method(name=name, track=track, **(given | ranked | numbers | others))


METHODS = (
    a_method("expert", "privileged", 0.992, clip=CLIP, letters="a"),
    a_method("keypoints_elman_each", "keypoints", 0.84),
    a_method("keypoints_mlp_all", "keypoints", 0.8, rank=2),
    a_method("fedavg_mlp_all", "keypoints", 0.61, rank=3),
    a_method("nothing", "keypoints", 0.0, rank=4, letters="e"),
    a_method("perceived_expert", "clouds", 0.9),
    a_method("perceived_expert_category", "clouds", 0.82, rank=2),
    a_method("detector_elman_each", "clouds", 0.71, rank=3),
    a_method("detector_elman_all", "clouds", 0.66, rank=3, letters="cdef"),
    a_method("pointnet_gru_all", "clouds", 0.45, rank=5),
    a_method(
        "copy_of_the_pointnet", "clouds", 0.45, rank=None, letters="",
        same_actions_as=("pointnet_gru_all",),
    ),
    a_method("x" * 64, "images", None, description="a line " * 60),
)  # fmt: skip
EVERYTHING = Board(
    LEVELS,
    (*METHODS, a_method("told_only", "images", 0.99, rank=None, letters="", self_reported=True)),
    (Rejection("bad/one", "result.json claims <b>100%</b>; its episodes say 40%. Run it again."),),
    "8077234611",
)
"""Twelve methods, one that is self-reported, and one that is rejected."""
