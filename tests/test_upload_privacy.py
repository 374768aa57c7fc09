"""Attacks on uploads: they find what must be found, and nothing where nothing is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
import upload_privacy
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.fleet_cases import config_of, plan_of, write_data
from upload_privacy import (
    ATTACKS,
    MIXTURE,
    MOMENTS,
    RAW,
    WEIGHTS,
    AttackedFleet,
    Upload,
    attacks,
    known_episodes,
    membership,
    strata,
    uploads_of,
)

from fleet_merging.methods import registry
from fleet_merging.moments.mixture import LEAST_EPISODES
from fleet_merging.queries.query import MomentQuery
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.robot import local_data_holder
from fleet_tools.baselines.policies.merged_checkpoints import checkpoint_problem
from fleet_tools.dataset.uploads import RawDataConfig
from fleet_tools.utils.statistics import auc

FLEET: dict[str, Any] = {
    "policy": {"body": {"type": "mlp", "layers": 2, "width": 12}},
    "method": "naive_average",
    "robots": 2,
    "held_out": 0.3,
    "split": {"by": "task", "alpha": 100},
    "merge_every": None,
    "training": {"epochs": 1, "batch_size": 16, "seed": 5},
}
DISTILLED: dict[str, Any] = {
    "last_method": "distillation",
    "last_options": {"teacher": "concatenation", "mixtures": 2, "states": 10, "steps": 10**6},
}


@pytest.fixture(scope="module", name="data")
def _data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("privacy") / "data", [4, 6, 5] * 16)


def plan_for(data: Path, **changes: Any) -> FleetPlan:
    return plan_of(data, **FLEET | changes)


def found(plan: FleetPlan, kind: str, upload: Upload, robot: int) -> tuple[Any, dict[str, Any]]:
    """Returns the membership of a robot's episodes by an upload, and the other findings."""
    members, others = known_episodes(plan)
    score, facts = ATTACKS[kind](plan, upload, members[robot])
    return membership(strata(members[robot], others, score)), facts


@given(
    members=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    others=st.lists(st.integers(0, 9), min_size=1, max_size=12),
)
def test_of_one_stratum_the_area_is_the_known_one(members, others):
    area, low, high = membership([("", np.array(members), np.array(others))])
    assert area == pytest.approx(auc(members, others)[0], abs=1e-6)
    assert low <= area <= high
    opposite = membership([("", -np.array(members), -np.array(others))])
    assert opposite == pytest.approx((1 - area, 1 - high, 1 - low))


def test_scores_that_know_nothing_are_within_the_interval_although_robots_share_the_others():
    generator, within = np.random.default_rng(0), 0
    for _ in range(400):
        given = []
        for task, size in (("a", 8), ("b", 15)):
            others = generator.normal(size=size) + 10 * (task == "b")  # tasks tell nothing
            given += [
                (task, generator.normal(size=n) + 10 * (task == "b"), others) for n in (5, 60)
            ]
        _, low, high = membership(given)
        within += low <= 0.5 <= high
    assert 0.91 <= within / 400 <= 0.98


def test_moments_of_one_episode_tell_it_and_the_step_that_nobody_else_knows(data):
    plan = plan_for(data, last_method="concatenation")
    members, others = known_episodes(plan)
    alone, first = members[0][:1], plan.affine_maps[0].name
    query = MomentQuery(plan.blueprint.create(0).state_dict(), (first,))
    told = ((query, alone[0].holder.answer(query)),)
    score, facts = ATTACKS[MOMENTS](plan, Upload(0, told, 0), alone)
    assert membership(strata(alone, others, score))[0] == 1
    assert facts["error"] < 1e-2


@pytest.mark.parametrize("kind", [WEIGHTS, MOMENTS, MIXTURE])
def test_an_upload_of_another_robot_tells_nothing(data, tmp_path, kind):
    plan = plan_for(data, **DISTILLED)
    other = uploads_of(plan, tmp_path)[kind][1]
    (_, low, high), _ = found(plan, kind, other, 0)
    assert low <= 0.5 <= high


@pytest.mark.parametrize("bits", [None, 8])
def test_the_adversary_reads_the_same_inputs_as_the_robot(data, tmp_path, bits):
    """By another route: the moments of the adversary's rows are the upload, as far as it rounds."""
    plan = plan_for(data, method="structured_compression", uploads={"bits": bits})
    (own, *_), _ = known_episodes(plan)
    upload = uploads_of(plan, tmp_path)[MOMENTS][0]
    assert len(upload.answers) == 3 and upload.size > 0
    for query, answer in upload.answers:
        network = upload_privacy.network_like(plan.blueprint, query.model)
        for name, moments in answer.items():
            models, names = (query.model, *query.beside), (name,)
            parts = [upload_privacy._rows_of(network, models, e, names, query.target) for e in own]
            X = np.concatenate([each[name] for each in parts])
            G, sent = X.T @ X / len(X), moments.inputs[0].numpy()
            bound = (1e-5 if bits is None else 0.05) * np.sqrt(np.outer(G.diagonal(), G.diagonal()))
            assert (np.abs(sent - G) <= bound + 1e-6).all()


def test_whoever_knows_all_other_steps_computes_the_last_one_unless_noise_hides_it(data, tmp_path):
    errors = []
    for noise in (0.0, 0.1):
        plan = plan_for(data, last_method="density_gated_ensemble", moment_noise=noise)
        upload = uploads_of(plan, tmp_path)[MOMENTS][0]
        errors.append(found(plan, MOMENTS, upload, 0)[1]["error"])
    assert errors[0] < 0.01 < 0.3 < errors[1]


def test_gradients_that_cancel_tell_a_step(data):
    """A linear policy with the least loss is the end of perfect training."""
    plan = plan_for(data, policy={"body": {"type": "mlp", "layers": 0, "width": 12}})
    members, _ = known_episodes(plan)
    every = upload_privacy.Samples(plan.config.data, observations=list(plan.blueprint.observation))
    own = upload_privacy.Trajectories(every.subset(plan.assignments[0].episodes), plan.blueprint)
    home = local_data_holder(plan.blueprint, own, 16)
    weights = plan.blueprint.create(0).state_dict()
    problem = checkpoint_problem(plan.blueprint, [weights], [home], base=weights)
    best = registry.merge("head_refit", problem, of="base", ridge=1e-9).state
    tell, hide = (
        upload_privacy._error_by_gradients(plan, each, members[0]) for each in (best, weights)
    )
    assert tell is not None and hide is not None and tell < 0.01 and hide > 0.1


def test_a_mixture_has_no_state_as_a_mean_unless_it_is_forged(data, tmp_path):
    plan = plan_for(data, **DISTILLED)
    members, _ = known_episodes(plan)
    (upload, *_) = uploads_of(plan, tmp_path)[MIXTURE]
    _, facts = found(plan, MIXTURE, upload, 0)
    assert facts["nearest"] > 0.05 and facts["episodes"] >= LEAST_EPISODES
    ((query, mixture),) = upload.answers
    home: Any = members[0][0].holder
    (states,) = home.episodes(None)
    means = torch.cat([states[:1].clamp(-10, 10), mixture.means[1:]])
    forged = Upload(0, ((query, replace(mixture, means=means)),), 0)
    assert found(plan, MIXTURE, forged, 0)[1]["nearest"] == pytest.approx(0, abs=1e-6)


def test_raw_data_tell_everything(data, tmp_path):
    config = config_of(data, **FLEET)
    ((kind, robots),) = attacks(AttackedFleet("raw", config, RawDataConfig()), tmp_path)
    assert kind == RAW
    for each in robots:
        assert membership(each["strata"])[0] == 1 and each["error"] < 0.05


def test_the_program_prints_a_row_for_each_kind_of_upload(data, tmp_path, capsys):
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump({"data": [str(data)], **FLEET, **DISTILLED}))
    assert upload_privacy.main([str(path), "--output", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["upload"] for row in rows] == [WEIGHTS, MOMENTS, MIXTURE]
    assert all(row["method"] == "distillation" and row["bytes"] > 0 for row in rows)
