"""Raw demonstrations as uploads: errors of half a unit, bytes within a budget, and one error."""

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from support.folders import contents
from support.shares import few
from support.small_datasets import Drawn, a_header, a_record, an_episode, write

from fleet_tools.dataset import Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.uploads import HAND, Demonstrations, RawDataConfig, decode, encode
from fleet_tools.envs.array_spec import ACTION_STEPS, masked_keypoints
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.errors import ConfigError, DatasetError
from fleet_tools.rollouts.episode import Episode

LAYOUT = {HAND: ((3, 4), "float32"), "joint_position": ((7,), "float32")}
CLOUD = {"point_cloud": ((12, 4), "float32")}
PLAIN = RawDataConfig()

CONTENTS = st.builds(
    lambda steps, seed, labelled: Drawn(steps, [True] * len(steps), seed, labelled),
    st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(any),
    st.integers(0, 2**32),
    st.booleans(),
)
CONFIGS = st.builds(
    RawDataConfig,
    length_unit_m=st.floats(1e-4, 1.0),
    state_unit=st.floats(1e-3, 1.0),
)


def header_of(*, clouds: bool = True) -> Header:
    """Returns the header of datasets with all that uploads hold but images."""
    header = a_header({**LAYOUT, **(CLOUD if clouds else {})})
    observation = {**header.observation, "tool_keypoints": masked_keypoints(2)}
    return header.model_copy(update={"observation": observation})


def arrived(samples: Samples, config: RawDataConfig, folder: Path, upload: bytes) -> Samples:
    """Returns what arrives of an upload of one dataset."""
    headers = [samples.episodes[0].header]
    return Samples(decode(upload, headers, list(samples.observation), config, folder))


def steps_of(samples: Samples) -> dict:
    """Returns all steps of samples."""
    return samples.read(np.arange(samples.lengths.sum()))


def grid(cloud: np.ndarray, unit: float) -> list[list[tuple[int, ...]]]:
    """Returns the cells of a grid in which a cloud's parts have points, sorted."""
    cells = np.rint(cloud[:, :3].astype(float) / unit).astype(int)
    return [sorted(set(map(tuple, cells[cloud[:, 3] == mask].tolist()))) for mask in (1, -1, -2)]


@given(content=CONTENTS, config=CONFIGS)
def test_numbers_are_within_half_a_unit_and_clouds_are_the_same_sets(content, config):
    with TemporaryDirectory() as place:
        write(Path(place, "data"), content, header_of())
        samples = Samples(Path(place, "data"))
        upload = encode(samples, [Path(place, "data")], config)
        found = arrived(samples, config, Path(place, "out"), upload)
        sent, back = steps_of(samples), steps_of(found)
    unit = 2.0 ** np.floor(np.log2(config.length_unit_m))
    for name, spec in samples.observation.items():
        one, other = (each["observation"][name].astype(float) for each in (sent, back))
        if spec.kind == "points":
            for a, b in zip(one, other, strict=True):
                assert grid(a, unit) == grid(b, unit)
                assert sorted(a[:, 3]) == sorted(b[:, 3])
        elif spec.kind == "masked_keypoints":
            assert np.abs(one - other)[..., :3].max() <= unit / 2
            assert np.array_equal(one[..., 3], other[..., 3])
        else:
            rows = one.reshape(len(one), -1)
            spread = np.where(np.ptp(rows, 0) > 0, rows.std(0), np.abs(rows).max(0))
            errors = np.abs(rows - other.reshape(rows.shape)).max(0)
            # A unit is no larger than stated, nor smaller than what float32 can tell apart.
            assert (
                errors <= np.maximum(spread * config.state_unit, 2e-7 * abs(rows).max(0)) / 2
            ).all()
    assert np.array_equal(sent["imitate"], back["imitate"])
    actions = (sent["action"] - back["action"])[sent["imitate"]]
    assert np.abs(actions).max(initial=0) <= 0.5 / ACTION_STEPS
    for one, other in zip(samples.corrections, found.corrections, strict=True):
        assert one.shape == other.shape and np.allclose(one, other, atol=0.5 / ACTION_STEPS)


@few(15)
@given(content=CONTENTS)
def test_the_same_demonstrations_give_the_same_bytes_on_both_sides(content):
    with TemporaryDirectory() as place:
        root = Path(place)
        write(root / "data", content, header_of())
        samples = Samples(root / "data")
        upload = encode(samples, [root / "data"], PLAIN)
        assert encode(samples, [root / "data"], PLAIN) == upload
        for name in ("one", "other"):
            arrived(samples, PLAIN, root / name, upload)
        arrived(samples, PLAIN, root / "one", upload)  # again, as after a kill
        assert contents(root / "one") == contents(root / "other")
        # What arrived is in whole units, and is sent without any further loss.
        again = encode(
            found := Samples(next((root / "one").iterdir())), [found.episodes[0].folder], PLAIN
        )
        once_more = arrived(found, PLAIN, root / "again", again)
        one, other = steps_of(found), steps_of(once_more)
        assert np.array_equal(one["action"], other["action"])
        keypoints = [each["observation"]["tool_keypoints"] for each in (one, other)]
        assert np.array_equal(*keypoints)


@few(15)
@given(content=CONTENTS, order=st.randoms(use_true_random=False))
def test_the_order_of_a_parts_points_changes_no_byte(content, order):
    uploads = []
    with TemporaryDirectory() as place:
        for name in ("one", "other"):
            header, generator = header_of(), np.random.default_rng(content.seed)
            layout = {k: (a.shape, a.dtype) for k, a in header.observation.items()}
            with DatasetWriter(Path(place, name), header) as writer:
                for number, steps in enumerate(content.steps):
                    episode = an_episode(generator, steps, True, layout)
                    if name == "other":
                        for cloud in episode.observations["point_cloud"]:
                            cloud[:] = cloud[order.sample(range(len(cloud)), len(cloud))]
                    record = a_record(number, episode)
                    writer.add(record, episode_file.to_bytes(episode, number, ()))
            uploads.append(encode(Samples(Path(place, name)), [Path(place, name)], PLAIN))
    assert uploads[0] == uploads[1]


@pytest.fixture(scope="module", name="many")
def _many(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """A dozen episodes."""
    folder = tmp_path_factory.mktemp("many") / "data"
    write(folder, Drawn([4, 9, 2, 7] * 3, [True] * 12, 1, labelled=True), header_of())
    return Samples(folder)


def demonstrations(samples: Samples, **changes) -> Demonstrations:
    """Returns the demonstrations of one dataset."""
    folder = samples.episodes[0].folder
    only = changes.pop("only_imitated", False)
    return Demonstrations(samples, [folder], RawDataConfig(**changes), only)


@pytest.mark.parametrize("choice", ["random", "k_centres"])
def test_an_upload_fits_its_budget_and_a_larger_one_sends_more(many, tmp_path, choice):
    sender = demonstrations(many, choice=choice)
    order, before = sender.order(3), list[int]()
    assert sorted(order) == list(range(12))
    for budget in (0, 100, 800, 1500, 3000, 10_000, None):
        upload, chosen = sender.within(budget, 3)
        assert len(upload) <= (budget if budget is not None else len(upload))
        assert upload == sender.upload(chosen)
        assert chosen == order[: len(chosen)] and chosen[: len(before)] == before
        if len(chosen) < 12:
            assert len(sender.upload(order[: len(chosen) + 1])) > (budget or 0)
        before = chosen
        if chosen:
            found = arrived(many, sender._config, tmp_path / str(budget), upload)
            known = {many.episodes[each].record.attempt for each in chosen}
            assert {each.record.attempt for each in found.episodes} == known
    assert len(before) == 12
    assert decode(b"", [many.episodes[0].header], list(many.observation), PLAIN, tmp_path) == []


def test_k_centres_begin_with_episodes_that_are_least_alike(tmp_path):
    """Three kinds of episodes, of which each is chosen before any a second time."""
    header = header_of(clouds=False)
    layout = {name: (array.shape, array.dtype) for name, array in header.observation.items()}
    generator = np.random.default_rng(0)
    with DatasetWriter(tmp_path, header) as writer:
        for number in range(12):
            episode = an_episode(generator, 3, True, layout)
            for rows in episode.observations.values():
                rows *= 1e-3
            episode.observations["joint_position"][:] += 5.0 * (number % 3)
            record = a_record(number, episode)
            writer.add(record, episode_file.to_bytes(episode, number, ()))
    for seed in range(5):
        order = demonstrations(Samples(tmp_path), choice="k_centres").order(seed)
        assert {number % 3 for number in order[:3]} == {0, 1, 2}


def test_steps_that_are_not_to_be_imitated_are_left_out_for_who_needs_none(many, tmp_path):
    whole, imitated = (demonstrations(many, only_imitated=only) for only in (False, True))
    upload, _ = imitated.within(None, 0)
    assert len(upload) < len(whole.within(None, 0)[0])
    sent, back = steps_of(many), steps_of(arrived(many, PLAIN, tmp_path, upload))
    kept = np.abs(sent["observation"]["joint_position"][sent["imitate"]]).sum()
    assert back["imitate"].all() and len(back["imitate"]) == sent["imitate"].sum()
    assert np.abs(back["observation"]["joint_position"]).sum() == pytest.approx(kept, rel=0.01)


def test_fewer_points_are_some_of_all_and_farthest_from_one_another(many, tmp_path):
    config = RawDataConfig(points=2)
    folder = many.episodes[0].folder
    upload = encode(many, [folder], config)
    assert len(upload) < len(encode(many, [folder], PLAIN))
    sent, back = steps_of(many), steps_of(arrived(many, config, tmp_path, upload))
    for one, other in zip(
        *(each["observation"]["point_cloud"] for each in (sent, back)), strict=True
    ):
        for every, some in zip(grid(one, 2**-10), grid(other, 2**-10), strict=True):
            assert set(some) <= set(every) and len(some) == min(2, len(every))
            if (
                len(every) > 2
            ):  # from the point farthest from the centroid to the one farthest of it
                points = np.array(every, float)
                first = np.linalg.norm(points - points.mean(0), axis=1).argmax()
                second = np.linalg.norm(points - points[first], axis=1).argmax()
                assert {every[first], every[second]} == set(some)


def test_between_clouds_that_are_sent_tools_stay_in_the_hand_and_objects_in_the_world(tmp_path):
    """A tool that is held and an object that rests are seen as they are, in every step."""
    generator, header, steps = np.random.default_rng(0), header_of(), 9
    layout = {name: (array.shape, array.dtype) for name, array in header.observation.items()}
    episode = an_episode(generator, steps, True, layout)
    R = Rotation.random(steps + 1, rng=generator).as_matrix()
    p = generator.uniform(-0.5, 0.5, (steps + 1, 3, 1))
    tool, p_W = generator.uniform(-0.1, 0.1, (2, 6, 3))
    cloud = np.zeros((steps + 1, 12, 4), np.float32)
    cloud[:, :6, :3], cloud[:, :6, 3], cloud[:, 6:, 3] = tool, 1, -1
    cloud[:, 6:, :3] = np.einsum("tji,tnj->tni", R, p_W[None] - p[:, None, :, 0])
    episode.observations["point_cloud"][:] = cloud
    episode.observations[HAND][:] = np.concatenate([R, p], 2)
    with DatasetWriter(tmp_path / "data", header) as writer:
        writer.add(a_record(0, episode), episode_file.to_bytes(episode, 0, ()))
    samples, sizes = Samples(tmp_path / "data"), {}
    for every in (1, 4):
        config = RawDataConfig(cloud_every=every, state_unit=1e-4)
        upload = encode(samples, [tmp_path / "data"], config)
        sizes[every] = len(upload)
        back = steps_of(arrived(samples, config, tmp_path / str(every), upload))
        seen = back["observation"]["point_cloud"]
        for one, other in zip(cloud, seen, strict=False):
            for mask in (1, -1):
                pairs = one[one[:, 3] == mask, None, :3] - other[other[:, 3] == mask, :3]
                assert np.linalg.norm(pairs, axis=-1).min(0).max() < 2e-3
                assert np.linalg.norm(pairs, axis=-1).min(1).max() < 2e-3
    assert sizes[4] < sizes[1]


@pytest.fixture(scope="module", name="upload")
def _upload(many: Samples) -> bytes:
    return encode(many, [many.episodes[0].folder], PLAIN)


@pytest.mark.parametrize(
    ("changes", "names"),
    [({}, ["joint_position"]), ({"cloud_every": 3}, None), ({}, [HAND, "joint_position"])],
)
def test_another_configuration_or_other_entries_are_refused(many, upload, tmp_path, changes, names):
    headers, config = [many.episodes[0].header], RawDataConfig(**changes)
    with pytest.raises(DatasetError, match="cannot be decoded"):
        decode(upload, headers, names or list(many.observation), config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_entries_that_no_policy_reads_are_refused(tmp_path):
    write(tmp_path / "data", Drawn([3], [True], 0), a_header())  # with integers
    with pytest.raises(ConfigError, match="'ticks' is state of int64"):
        encode(Samples(tmp_path / "data"), [tmp_path / "data"], PLAIN)
    write(tmp_path / "cloud", Drawn([3], [True], 0), a_header(CLOUD))
    with pytest.raises(ConfigError, match=f"needs {HAND} to move clouds"):
        encode(Samples(tmp_path / "cloud"), [tmp_path / "cloud"], RawDataConfig(cloud_every=2))


def test_decoded_episodes_have_no_scene_and_say_so(many, upload, tmp_path):
    found = arrived(many, PLAIN, tmp_path, upload)
    with pytest.raises(DatasetError, match="it came in an upload, without a scene"):
        Dataset(found.episodes[0].folder).episode(0)


def test_images_arrive_as_videos_of_few_bytes(tmp_path):
    """A square that moves over a gradient, as a video of a hundredth of its bytes."""
    pytest.importorskip("av")
    header = a_header({"wrist_rgb": ((64, 96, 3), "uint8")})
    images = np.zeros((9, 64, 96, 3), np.uint8)
    images[..., 0], images[..., 1] = np.arange(96) * 2, (np.arange(64) * 3)[:, None]
    for step, image in enumerate(images):
        image[20:40, 5 * step : 5 * step + 20, 2] = 200
    episode = an_episode(np.random.default_rng(0), 8, True, {})
    episode = Episode(**{**vars(episode), "observations": {"wrist_rgb": images}})
    assert episode.outcome == SUCCESS
    with DatasetWriter(tmp_path / "data", header) as writer:
        writer.add(a_record(0, episode), episode_file.to_bytes(episode, 0, header.images))
    samples, sizes = Samples(tmp_path / "data"), []
    for quality in (20, 50):
        config = RawDataConfig(video_quality=quality)
        upload = encode(samples, [tmp_path / "data"], config)
        assert encode(samples, [tmp_path / "data"], config) == upload
        back = steps_of(arrived(samples, config, tmp_path / str(quality), upload))
        errors = back["observation"]["wrist_rgb"].astype(float) - images[:8]
        sizes.append((len(upload), np.square(errors).mean()))
    (fine, small), (coarse, large) = sizes
    assert coarse < fine < images.nbytes / 50 and small < large < 300
    with pytest.raises(DatasetError, match="video"):
        broken = bytearray(upload[8:])
        broken[-60:] = bytes(60)
        digest = hashlib.blake2b(bytes(broken), digest_size=8).digest()
        headers = [samples.episodes[0].header]
        decode(digest + bytes(broken), headers, ["wrist_rgb"], config, tmp_path / "no")
