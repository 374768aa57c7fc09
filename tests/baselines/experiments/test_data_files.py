"""Readers of data files, on small files that are written here; damaged and hostile ones."""

import gzip

import numpy as np
import pytest

pytest.importorskip("torch")

from support.labelled_files import (
    BATCHES,
    drawn,
    idx,
    spoken,
    write_batches,
    write_leaf,
    write_mnist,
)
from support.study_cases import measured

from fleet_tools.baselines.experiments.supervised import sources
from fleet_tools.baselines.experiments.supervised.readers import PIXELS, read_cifar10, read_idx
from fleet_tools.errors import DatasetError, UnknownNameError


@pytest.mark.parametrize("compressed", [False, True])
def test_mnist_is_read(tmp_path, compressed):
    write_mnist(tmp_path)
    for path in list(tmp_path.iterdir()) if compressed else ():
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    for source in ("mnist", "fashion_mnist"):
        training, test = sources.load(source, tmp_path)
        assert (len(training), len(test), training.shape) == (7, 3, (1, 28, 28, 10))
        expected = drawn(7, 28, 28).reshape(7, -1) / 255
        np.testing.assert_allclose(training.inputs.numpy(), expected, atol=1e-7)
        assert training.labels.tolist() == drawn(7, high=10).tolist()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x08",
        idx(drawn(4, 3)),  # two dimensions
        idx(drawn(2, 3, 4))[:-1],
        idx(drawn(2, 3, 4)) + b"\x00",
        b"\x00\x00\x0d\x03" + bytes(12),  # floats
        b"\x00\x00\x08\x03" + b"\xff" * 12,  # 79 billion billion billion bytes
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_damaged_idx_files_are_refused(tmp_path, content, compressed):
    path = tmp_path / ("images.gz" if compressed else "images")
    path.write_bytes(gzip.compress(content) if compressed else content)
    with pytest.raises(DatasetError, match="images"):
        read_idx(tmp_path, "images", 3)


def test_a_truncated_archive_is_refused(tmp_path):
    (tmp_path / "images.gz").write_bytes(gzip.compress(idx(drawn(20, 30, 40)))[:-100])
    with pytest.raises(DatasetError, match="cannot be read"):
        read_idx(tmp_path, "images", 3)


def test_cifar10_is_read(tmp_path):
    write_batches(tmp_path / "cifar-10-batches-bin")
    (images, labels), (_, last) = read_cifar10(tmp_path)
    expected = [drawn(4, PIXELS) + np.uint8(number) for number in range(5)]
    assert np.array_equal(images, np.concatenate(expected))
    assert labels.tolist() == [each for number in range(5) for each in (number, 9, 0, 1)]
    assert last.tolist() == [5, 9, 0, 1]
    training, test = sources.load("cifar10", tmp_path)
    assert (len(training), len(test), training.shape) == (20, 4, (3, 32, 32, 10))


@pytest.mark.parametrize("content", [b"", b"hello", bytes(PIXELS), b"\x0a" + bytes(PIXELS)])
def test_damaged_batches_are_refused(tmp_path, content):
    write_batches(tmp_path, content)
    with pytest.raises(DatasetError, match="data_batch_1"):
        read_cifar10(tmp_path)


def test_no_code_of_a_batch_is_run(tmp_path):
    """CIFAR-10's version for Python has pickles, which are not even opened."""
    victim = tmp_path / "victim"
    command = f"cos\nsystem\n(S'touch {victim}'\ntR.".encode()
    for suffix in ("", ".bin"):
        for name in BATCHES:
            (tmp_path / name.replace(".bin", suffix)).write_bytes(command)
        with pytest.raises(DatasetError):
            read_cifar10(tmp_path)
    assert not victim.exists()


def test_shakespeare_is_read_by_speaker(tmp_path):
    write_leaf(tmp_path / "train", spoken("HAMLET", "OPHELIA"))
    write_leaf(tmp_path / "test", spoken("OPHELIA", "GHOST", count=1))
    training, test = sources.load("shakespeare", tmp_path)
    assert (training.shape, len(training), len(test)) == ((19, 96), 6, 2)
    assert training.speakers is not None and test.speakers is not None
    assert sorted(test.speakers.tolist()) == [1, 2]
    text = "".join(chr(number + 31) for number in training.inputs[0].tolist())
    assert text == "To be, or not to be"
    said = zip(training.speakers.tolist(), training.labels.tolist(), strict=True)
    endings = [0, ord("!") - 31, ord("?") - 31]
    assert sorted(said) == [(who, ending) for who in (0, 1) for ending in endings]


def test_the_first_texts_are_of_many_speakers_and_always_the_same(tmp_path):
    """Files hold one speaker after the other, and studies may learn the first texts alone."""
    for part in ("train", "test"):
        write_leaf(tmp_path / part, spoken(*(f"SPEAKER {number}" for number in range(40))))
    (training, _), (again, _) = (sources.load("shakespeare", tmp_path) for _ in range(2))
    few = training.first(20).speakers
    assert few is not None and len(set(few.tolist())) > 10
    assert training.labels.tolist() == again.labels.tolist()


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"users": ["A"]},
        {"user_data": {"A": {"x": ["ab"], "y": []}}},
        {"user_data": {"A": {"x": ["ab"], "y": ["cd"]}}},
        {"user_data": {"A": {"x": [1], "y": ["c"]}}},
        {"user_data": {"A": {"x": ["ab", "abc"], "y": ["c", "d"]}}},
        {"user_data": {}},
    ],
)
def test_damaged_leaf_files_are_refused(tmp_path, content):
    for part in ("train", "test"):
        write_leaf(tmp_path / part, content)
    with pytest.raises(DatasetError, match=r"LEAF|character each"):
        sources.load("shakespeare", tmp_path)
    (tmp_path / "train" / "all_data.json").write_text("{")
    with pytest.raises(DatasetError, match="cannot be read"):
        sources.load("shakespeare", tmp_path)


def test_texts_are_merged_by_moments_beside_controls(tmp_path):
    control = {"options": {"of": "base"}, "initialization": "common"}
    moments = {"options": {"alignment": "activations"}}
    arms = {
        "naive_average": {"method": "naive_average"},
        "regmean": {"method": "regmean", **moments},
        "least_squares": {"method": "least_squares", **moments},
        "untrained": {"method": "head_refit", **control},
        "linear": {"network": "linear", "method": "head_refit", **control},
    }
    base = {"network": "language", "models": 2, "alpha": 1.0, "training": {"epochs": 1}}
    training, test = sources.load("markov_speakers")
    found = measured(tmp_path, training.first(200), test, base=base, arms=arms)
    assert all(0 <= value["accuracy"] <= 1 for value in found.values()) and len(found) == 5


def test_speakers_differ_and_stay_the_same():
    (texts, _, who), (again, _, _) = sources.draw_speakers(40, 0), sources.draw_speakers(40, 0)
    assert np.array_equal(texts, again) and texts.max() < sources.LETTERS
    assert sorted(set(who)) == list(range(sources.SPEAKERS))
    (many, _, said), (other, _, whose) = (
        sources.draw_speakers(400, 0),
        sources.draw_speakers(400, 1),
    )

    def frequencies(rows: np.ndarray) -> np.ndarray:
        counts = np.zeros((sources.LETTERS,) * 2)
        np.add.at(counts, (rows[:, 2:-1].ravel(), rows[:, 3:].ravel()), 1)
        return counts.ravel() / counts.sum()

    mine = frequencies(many[said == 3])
    same = np.abs(mine - frequencies(other[whose == 3])).sum()
    different = np.abs(mine - frequencies(other[whose == 4])).sum()
    assert same < 0.5 * different


def test_what_speakers_have_in_common_takes_memory():
    (texts, following, _), (seen, expected, _) = (
        sources.draw_speakers(400, 0),
        sources.draw_speakers(100, 1),
    )

    def accuracy(place: int) -> float:
        counts = np.zeros((sources.LETTERS,) * 2)
        np.add.at(counts, (texts[:, place], following), 1)
        return (counts.argmax(1)[seen[:, place]] == expected).mean()

    assert accuracy(-2) > 0.4 and accuracy(-1) < 0.2


def test_what_is_missing_is_said_with_where_to_get_it(tmp_path):
    for name, words in (
        ("mnist", "ossci-datasets"),
        ("fashion_mnist", "dataset-fashion-mnist"),
        ("cifar10", "cifar-10-binary"),
        ("shakespeare", "TalwalkarLab"),
    ):
        with pytest.raises(DatasetError, match=words):
            sources.load(name, tmp_path / "no")
    with pytest.raises(DatasetError, match="`data_root`"):
        sources.load("mnist")
    with pytest.raises(UnknownNameError, match="mnist"):
        sources.load("mnisst")
