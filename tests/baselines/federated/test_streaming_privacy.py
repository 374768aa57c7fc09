"""What a streaming round reveals: masks, clipping, noise, and no rows of data."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("cryptography")

import numpy as np
from support.fleet_cases import RecordingTransport, answered, local, plan_of, same
from support.streaming_cases import COMMON, stream

from fleet_tools.baselines.federated.messages import LocalUpdateRequest
from fleet_tools.baselines.federated.privacy.quantization import quantize
from fleet_tools.baselines.federated.robot import FleetRobot
from fleet_tools.baselines.federated.streaming.config import StreamingConfig
from fleet_tools.baselines.federated.streaming.messages import (
    ChangeRequest,
    decode_rounded,
    decode_vector,
    encode_change_request,
)
from fleet_tools.baselines.federated.streaming.vectors import difference, displaced, sizes
from fleet_tools.dataset.samples import Samples


def test_a_masked_sum_is_the_plain_sum_exactly(large: Path) -> None:
    streaming = {"bits": 8, "neighbours": 2, "largest": 0.05}
    plan = plan_of(large, **COMMON, robots=6, streaming=streaming, merge_every=None)
    (masked,) = stream(plan)
    base = plan.first_base()
    assert base is not None
    # The same robots without masks: each change rounded by the test, with the robot's own draws.
    total = np.zeros(sum(sizes(base)), np.int64)
    for assignment in plan.assignments:
        seed = assignment.training.seed
        bare = assignment.model_copy(update={"streaming": StreamingConfig()})
        request = encode_change_request(
            ChangeRequest(LocalUpdateRequest(1, 0, 4, None), None, 1000)
        )
        vector = decode_vector(FleetRobot(bare).answer(request), 1, total.size).vector
        total += quantize(vector, 0.05, 8, np.random.default_rng((seed, 1000, 1)))
    expected = displaced(base, (total / 127 * 0.05).astype(np.float32).astype(np.float64) / 6)
    assert same(masked.weights, expected)


def test_no_answer_under_masks_shows_a_change(large: Path) -> None:
    plan = plan_of(
        large, **COMMON, robots=6, streaming={"bits": 8, "neighbours": 2}, merge_every=None
    )
    recordings = [RecordingTransport(local(plan)) for _ in range(2)]
    for recording in recordings:
        stream(plan, recording)
    one, two = (
        [answer for _, _, answer in recording.exchanges if len(answered(answer)) > 600]
        for recording in recordings
    )
    assert len(one) == len(two) == 6
    base = plan.first_base()
    assert base is not None
    size = sum(sizes(base))
    for first, second in zip(one, two, strict=True):  # the same changes under other masks
        tails = [np.frombuffer(answered(each)[-size:], np.uint8) for each in (first, second)]
        assert np.mean(tails[0] == tails[1]) < 0.05
        assert len(np.unique(tails[0])) > 100


def test_clipped_and_rounded_changes_are_not_longer_than_the_clip(large: Path) -> None:
    for bits in (None, 2, 8):
        streaming = {"clip": 0.01, "bits": bits}
        plan = plan_of(large, **COMMON, robots=4, streaming=streaming, merge_every=None)
        recording = RecordingTransport(local(plan))
        stream(plan, recording)
        base = plan.first_base()
        assert base is not None
        counts = sizes(base)
        for _, _, answer in recording.exchanges:
            reply = answered(answer)
            if bits is None:
                vector = decode_vector(reply, 1, sum(counts)).vector
            else:
                vector = decode_rounded(reply, 1, counts, bits).vector
            assert 0 < np.linalg.norm(vector.astype(np.float64)) <= 0.01 * (1 + 1e-6)


def test_noise_has_the_spread_that_epsilon_counts(large: Path) -> None:
    pytest.importorskip("dp_accounting")
    settings = {**COMMON, "robots": 4, "merge_every": None}
    quiet = stream(plan_of(large, **settings, streaming={"clip": 0.5}))[0]
    loud = stream(plan_of(large, **settings, streaming={"clip": 0.5, "noise": 2.0}))[0]
    noise = difference(loud.weights, quiet.weights)
    assert np.std(noise) == pytest.approx(2.0 * 0.5 / 4, rel=0.2)


def test_no_row_of_data_is_in_changes(large: Path) -> None:
    plan = plan_of(
        large, method="fleet_merge", options={"steps": 2}, streaming={}, merge_every=None
    )
    recording = RecordingTransport(local(plan))
    stream(plan, recording)
    exchanged = b"".join(sent + answered(answer) for _, sent, answer in recording.exchanges)
    for assignment in plan.assignments:
        samples = Samples(assignment.data).subset(assignment.episodes)
        rows = samples.gather(np.arange(len(samples)))
        for array in (rows["action"], *rows["observation"].values()):
            for row in array.reshape(len(array), -1):
                assert row[:2].tobytes() not in exchanged
