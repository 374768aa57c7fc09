"""A fleet over a real SuperLink with SuperNodes, TLS and authenticated nodes.

The tests run where `FLEET_TOOLS_FLOWER_PYTHON` names the Python of an environment with Flower.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import numpy as np
import psutil
import torch
import yaml
from support.fleet_cases import config_of, rounds_of, write_data
from support.flower_network import (
    FLOWER_PYTHON,
    Network,
    end_tree,
    needs_flower,
    network,
    wait_for,
)
from support.processes import ROOT

from fleet_tools.baselines.federated.config import FleetConfig
from fleet_tools.baselines.federated.plan import FleetPlan
from fleet_tools.baselines.federated.record import load_progress
from fleet_tools.baselines.federated.vectors import difference
from fleet_tools.baselines.flower.node import Node
from fleet_tools.baselines.flower.nodes_plan import report_of, with_data_of_nodes
from fleet_tools.baselines.flower.protection import Task, weights_after
from fleet_tools.baselines.flower.records import DataQuestion
from fleet_tools.baselines.policies.checkpoint import load_checkpoint
from fleet_tools.config.values import load_yaml

pytestmark = needs_flower

EXAMPLE = ROOT / "examples/flower"


def node_config(number: int, data: Path) -> str:
    return f'partition-id={number} num-partitions=2 data="{data}"'


def write_fleet(folder: Path, **changes: object) -> tuple[Path, list[Path]]:
    """Writes the server's data and configuration, and the data of two nodes."""
    server = write_data(folder / "server", (5, 1, 7, 3, 4))
    own = [write_data(folder / f"own{k}", (4, 6, 2 + k), seed=k + 1) for k in range(2)]
    given = {"robots": 2, "split": {"by": "nothing"}, "method": "git_rebasin"} | changes
    config = config_of(server, **given).model_dump(mode="json", by_alias=True)
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump(config))
    return path, own


def options(folder: Path, config: Path) -> str:
    """Returns the options of a run."""
    return f'fleet="{config}" output="{folder / "flower"}" timeout-s=300.0'


def flower_python(*arguments: str | Path, timeout_s: float = 300) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [str(FLOWER_PYTHON), *map(str, arguments)]
    subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=timeout_s)


def start(net: Network, own: list[Path]) -> None:
    for number, data in enumerate(own):
        net.add_node(f"node{number}", node_config(number, data))


def test_a_fleet_has_the_bits_that_it_has_in_one_process(tmp_path: Path) -> None:
    config, own = write_fleet(tmp_path)
    with network(tmp_path / "network") as net:
        start(net, own)
        log = net.run(EXAMPLE, options(tmp_path, config), timeout_s=900)
    flower, home = tmp_path / "flower", tmp_path / "home"
    assert (flower / "report.json").is_file(), log
    flower_python("tests/support/fleet_at_home.py", config, home, *own)
    names = ["merged.safetensors", "robots/0.safetensors", "robots/1.safetensors", "report.json"]
    for name in names:
        assert (flower / name).read_bytes() == (home / name).read_bytes(), name
    assert rounds_of(flower) == rounds_of(home)
    report = json.loads((flower / "report.json").read_text())
    assert report["rounds"] == 2 and not report["left_out"]
    assert report["traffic"]["messages"] == 4  # one for each robot and round


@pytest.mark.slow
def test_rounds_go_on_without_a_node_that_is_killed_and_with_it_again(tmp_path: Path) -> None:
    training = {"epochs": 4, "batch_size": 8, "seed": 5}
    config, own = write_fleet(tmp_path, merge_every=1, training=training)
    with network(tmp_path / "network") as net:
        start(net, own)
        net.flwr("run", str(EXAMPLE), "tests", "--run-config", options(tmp_path, config))
        rounds = tmp_path / "flower/rounds.jsonl"

        def count() -> int:
            return rounds.read_text().count("\n") if rounds.exists() else 0

        wait_for(lambda: count() >= 1, 600)
        end_tree(net.nodes[1])
        wait_for(lambda: count() >= 2, 600)
        net.start_node("node1", node_config(1, own[1]))
        wait_for((tmp_path / "flower/report.json").is_file, 900)
    report = json.loads((tmp_path / "flower/report.json").read_text())
    print(report["left_out"])
    lost = {each["round"] for each in report["left_out"]}
    assert report["rounds"] == 4 and {each["robot"] for each in report["left_out"]} == {1}
    assert lost and 1 not in lost and 4 not in lost


@pytest.mark.slow
def test_the_guides_app_merges_by_a_method_of_ours(tmp_path: Path) -> None:
    app = shutil.copytree(ROOT / "examples/flower_app", tmp_path / "app")
    output = tmp_path / "merged.pt"
    with network(tmp_path / "network") as net:
        for number in range(2):
            net.add_node(f"node{number}", f"partition-id={number} num-partitions=2")
        log = net.run(app, f'output="{output}"', timeout_s=900)
    assert output.is_file(), log
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    model.load_state_dict(torch.load(output, weights_only=True))
    assert model(torch.randn(3, 4)).isfinite().all()


RECORDING = """
import numpy as np
from flwr.common import bytes_to_ndarray
from flwr.serverapp import ServerApp
from fleet_tools.baselines.flower.server import run_fleet

app = ServerApp()
seen = []


class Curious:
    def __init__(self, grid):
        self._grid = grid

    def __getattr__(self, name):
        return getattr(self._grid, name)

    def send_and_receive(self, messages, **options):
        replies = list(self._grid.send_and_receive(messages, **options))
        for reply in replies:
            for record in reply.content.config_records.values():
                seen.extend(bytes_to_ndarray(v[-1]) for k, v in record.items() if "masked" in k)
        return replies


@app.main()
def main(grid, context):
    run_fleet(Curious(grid), context)
    np.save(context.run_config["output"] + "/seen.npy", np.array(seen, np.int64))
"""


@pytest.mark.slow
@pytest.mark.parametrize("protection", ["sums", "noise"])
def test_a_protected_fleet_has_the_mean_of_its_robots(tmp_path: Path, protection: str) -> None:
    given = {"streaming": {}, "initialization": "common", "robots": 3, "merge_every": None}
    config, own = write_fleet(tmp_path, **given)
    own.append(write_data(tmp_path / "own2", (4, 6, 5), seed=9))
    app, output = tmp_path / "app", tmp_path / "flower"
    app.mkdir()
    (app / "curious.py").write_text(RECORDING)
    project = (EXAMPLE / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(
        project.replace("fleet_tools.baselines.flower.server:app", "curious:app")
    )
    protected = f'{options(tmp_path, config)} protection="{protection}" clip=1000.0 noise=0.00001'
    with network(tmp_path / "network") as net:
        for number, data in enumerate(own):
            folder = f'partition-id={number} num-partitions=3 data="{data}"'
            net.add_node(f"node{number}", f'{folder} protection="{protection}"')
        log = net.run(app, protected, timeout_s=1500)
    assert (output / "report.json").is_file(), log
    plan = FleetPlan.of(load_yaml(FleetConfig, config))
    nodes = [Node(number, 3, (str(folder),)) for number, folder in enumerate(own)]
    question = DataQuestion(blueprint=plan.blueprint, by=plan.config.split.by)
    plan = with_data_of_nodes(plan, {node.partition: report_of(node, question) for node in nodes})
    base = plan.first_base()
    assert base is not None
    zero = {name: each * 0 for name, each in base.items()}
    begun, epochs = difference(base, zero), plan.config.epochs_per_round
    robots = [
        weights_after(
            node.localized(each), Task(assignment=each, round=1, epoch=0, epochs=epochs), begun
        )
        for node, each in zip(nodes, plan.assignments, strict=True)
    ]
    merged = difference(load_checkpoint(output / "merged.safetensors").weights, zero)
    # Rounding of SecAgg+, or noise of 1000 * 0.00001 / 3.
    near = 1e-4 if protection == "sums" else 5 * 0.01 / 3
    assert np.abs(merged - np.mean(robots, axis=0)).max() < near
    seen = np.load(output / "seen.npy")
    assert len(seen) == (3 if protection == "sums" else 0)
    for masked in seen:  # what the server sees of one robot tells nothing of its weights
        for secret in robots:
            assert abs(np.corrcoef(masked.reshape(-1), secret)[0, 1]) < 5 / np.sqrt(secret.size)


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 2048])
def test_what_a_message_costs(width: int, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Prints time, memory and bytes of messages to a robot that trains for an instant."""
    body = {"type": "mlp", "layers": 3, "width": width}
    config, own = write_fleet(tmp_path, robots=1, method="naive_average", policy={"body": body})
    seen: dict[int, tuple[float, float, float]] = {}
    with network(tmp_path / "network") as net:
        net.add_node("node0", f'partition-id=0 num-partitions=1 data="{own[0]}"')
        net.flwr("run", str(EXAMPLE), "tests", "--run-config", options(tmp_path, config))
        begun = time.monotonic()
        while not (tmp_path / "flower/report.json").is_file():
            assert time.monotonic() < begun + 600
            for process in psutil.Process(net.nodes[0].pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if "flwr-clientapp" in " ".join(process.cmdline()):
                        memory, cpu = process.memory_info().rss, process.cpu_times()
                        _, _, most = seen.get(process.pid, (0, 0, 0))
                        lived = time.time() - process.create_time()
                        seen[process.pid] = (lived, cpu.user + cpu.system, max(most, memory))
            time.sleep(0.2)
    report = json.loads((tmp_path / "flower/report.json").read_text())
    assert report["traffic"]["messages"] == 2  # with the first question, three processes
    rounds = [each.seconds for each in load_progress(tmp_path / "flower").rounds]
    with capsys.disabled():
        print(f"\nwidth {width}: {report['traffic']}, rounds of {rounds} s, load {os.getloadavg()}")
        for lived, cpu, memory in sorted(seen.values())[-3:]:
            print(f"a process of {lived:.1f} s, {cpu:.1f} s of CPU, {memory / 1e6:.0f} MB")


def test_what_needs_flower_itself_holds_in_its_environment() -> None:
    files = [
        f"tests/baselines/flower/test_{name}.py" for name in ("transport", "strategy", "protection")
    ]
    flower_python("-m", "pytest", "-q", "-o", "addopts=--import-mode=importlib", *files)
