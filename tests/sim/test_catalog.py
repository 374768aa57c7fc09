"""The catalog: models by family and name or by path, and messages about wrong ones."""

import itertools
import shutil
from typing import Any

import pytest

from fleet_tools.config.file_access import assets_root
from fleet_tools.config.tasks import NO_MODELS, load_task, task_names, task_path
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.catalog import find_model, find_task_model, load_model, model_names
from fleet_tools.sim.world import build_world
from fleet_tools.storage.provenance import read_task_file


@pytest.fixture(name="own")
def _own(tmp_path):
    """A folder of a user's own: a copy of the claw hammer."""
    return shutil.copytree(assets_root() / "tools" / "hammer" / "claw", tmp_path / "own")


def test_every_model_of_the_package_loads():
    for kind in ("tool", "object"):
        for labels in assets_root().glob(f"{kind}s/*/*/keypoints.yaml"):
            family, name = labels.parts[-3:-1]
            model = find_model(kind, family, name)
            assert (model.name, model.labels.kind, model.labels.family) == (name, kind, family)
            assert model.file.is_file()


HAMMERS, NAILS = model_names("tool", "hammer"), model_names("object", "nail")
EACH_ONCE = list(zip(HAMMERS, itertools.cycle(NAILS), strict=False))  # hammers outnumber nails


@pytest.mark.parametrize(
    ("tool", "object"),
    [
        pytest.param(*pair, marks=() if pair in EACH_ONCE else pytest.mark.slow)
        for pair in itertools.product(HAMMERS, NAILS)
    ],
)
def test_every_hammer_meets_every_nail_in_a_world(tool, object):
    assert {nail for _, nail in EACH_ONCE} == set(NAILS)
    models = find_model("tool", "hammer", tool), find_model("object", "nail", object)
    world = build_world(load_task("hammer"), load_robot(), *models)
    assert list(world.adjustable.brakes) == ["slide"]
    assert world.plant.num_positions() == 8


def test_a_users_own_model_is_given_by_path(own, monkeypatch):
    assert find_model("tool", "hammer", str(own)).name == "own"
    monkeypatch.chdir(own.parent)
    assert find_model("tool", "hammer", "./own").file == (own / "model.sdf").resolve()


def test_a_users_folder_of_models_is_added_to_the_packages_own(tmp_path):
    source = assets_root() / "tools" / "hammer" / "claw"
    shutil.copytree(source, tmp_path / "tools" / "hammer" / "own")
    names = model_names("tool", "hammer", str(tmp_path))
    assert {"own", "claw"} <= set(names)
    assert find_model("tool", "hammer", "own", str(tmp_path)).name == "own"


def test_a_users_model_hides_none_of_the_package(own, tmp_path):
    file = tmp_path / "task.yaml"
    file.write_text("name: mine\nextends: hammer\nassets: .\n")
    hiding = tmp_path / "tools" / "hammer" / "claw"
    shutil.copytree(own, hiding)
    package = assets_root() / "tools" / "hammer" / "claw"
    stored = read_task_file(str(file))
    for read in (lambda: load_task(str(file)), stored.load, EnvSpec.of(task=str(file)).make):
        with pytest.raises(ConfigError) as error:
            read()
        assert f"{hiding} and the package's {package}" in str(error.value)
        assert "rename the folder" in str(error.value)
    # Data that carry their models keep them, whatever the package got since.
    kept = stored.with_models(tmp_path, NO_MODELS).load()
    assert find_task_model(kept, "tool", "claw").file.parent == hiding
    hiding.rename(hiding.parent / "mine")
    task = load_task(str(file))
    assert find_task_model(task, "tool", "claw").file.parent == package
    assert find_task_model(task, "tool", "mine").name == "mine"
    file.write_text(f"name: mine\nextends: hammer\nassets: {assets_root()}\n")  # the same models
    assert find_task_model(load_task(str(file)), "tool", "claw").file.parent.samefile(package)


def test_a_users_task_has_a_name_of_its_own_in_data(tmp_path):
    for name in task_names():
        (tmp_path / f"{name}.yaml").write_text(f"extends: {name}\nname: {name}\n")
        with pytest.raises(
            ConfigError, match=f"has the name of a task of the package, '{name}'.*another `name`"
        ):
            read_task_file(str(tmp_path / f"{name}.yaml"))
        assert read_task_file(str(task_path(name))).name == name  # the package's own, by its path


UNNAMED: tuple[Any, ...] = ("", 5, "~no-such-user/claw")


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: model_names("tool", "hamer"), "family of tools: 'hamer'. Did you mean 'hammer'"),
        (lambda: find_model("tool", "hammer", "clow"), "'clow'. Did you mean 'claw'.*its folder"),
        *(
            (lambda given=given: find_model("tool", "hammer", given), "Unknown tool")
            for given in UNNAMED
        ),
        (
            lambda: find_model("tool", "hammer", "claw").keypoint("haed"),
            "'claw': 'haed'. Did you mean 'head'",
        ),
    ],
)
def test_what_is_unknown_is_refused_with_the_nearest_and_the_remedy(use, message):
    with pytest.raises(UnknownNameError, match=message):
        use()


NO_POINTS = "family: hammer\nkind: tool\nkeypoints: {}\n"


@pytest.mark.parametrize(
    "kind, written, gone, message",
    [
        ("tool", {}, "model.sdf", r"must hold one SDFormat or URDF file.*holds none"),
        ("tool", {"1.sdf": "", "2.sdf": ""}, "model.sdf", r"1\.sdf.*2\.sdf"),
        ("tool", {}, "keypoints.yaml", r"lacks keypoints\.yaml.*keypoints: \{head"),
        (
            "tool",
            {"keypoints.yaml": NO_POINTS},
            "",
            r"keypoints\.yaml.*\n.*keypoints: .*at least 1",
        ),
        ("object", {}, "", "has `kind: tool`"),
        ("tool", {}, ".", "is not a folder"),
    ],
)
def test_a_folder_that_is_no_model_of_its_kind_is_refused(own, kind, written, gone, message):
    for name, text in written.items():
        (own / name).write_text(text)
    if gone == ".":
        own.rename(own.parent / "other")
    elif gone:
        (own / gone).unlink()
    with pytest.raises(ConfigError, match=message):
        load_model(own, kind)


def test_one_model_file_may_have_any_name(own):
    (own / "model.sdf").rename(own / "any.sdf")
    assert load_model(own, "tool").file == own / "any.sdf"


def test_a_keypoint_on_a_link_that_does_not_exist_is_refused(own):
    labels = (own / "keypoints.yaml").read_text()
    (own / "keypoints.yaml").write_text(labels.replace("link: hammer", "link: hamer", 1))
    models = find_model("tool", "hammer", str(own)), find_model("object", "nail", "round_nail")
    with pytest.raises(
        ConfigError, match=r"'hamer', which does not exist in the model.*Its links: .*ham"
    ):
        build_world(load_task("hammer"), load_robot(), *models)


def test_a_model_file_that_drake_cannot_read_is_refused(own):
    (own / "model.sdf").write_text("<sdf version='1.9'><model name='broken'>")
    models = find_model("tool", "hammer", str(own)), find_model("object", "nail", "round_nail")
    with pytest.raises(ConfigError, match=r"model\.sdf"):
        build_world(load_task("hammer"), load_robot(), *models)


def test_an_object_without_the_tasks_brake_is_refused(tmp_path):
    own = shutil.copytree(assets_root() / "objects" / "nail" / "round_nail", tmp_path / "bare")
    text = (own / "model.sdf").read_text()
    (own / "model.sdf").write_text(text.replace('<drake:controller_gains p="0" d="100000" />', ""))
    models = find_model("tool", "hammer", "claw"), find_model("object", "nail", str(own))
    with pytest.raises(ConfigError, match=r"sets the resistance of the joint 'slide'.*no brake"):
        build_world(load_task("hammer"), load_robot(), *models)
