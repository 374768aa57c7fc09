from .config.tasks import TaskConfig as TaskConfig
from .config.tasks import load_task as load_task
from .config.tasks import task_names as task_names
from .dataset.attempts import collect_episode as collect_episode
from .dataset.dataset_folder import Dataset as Dataset
from .dataset.dataset_folder import DatasetWriter as DatasetWriter
from .dataset.samples import Samples as Samples
from .envs.episode_state import EnvState as EnvState
from .envs.spec import EnvSpec as EnvSpec
from .envs.tool_use_env import ToolUseEnv as ToolUseEnv
from .envs.tool_use_env import unwrap as unwrap
from .errors import FleetToolsError as FleetToolsError
from .evaluation.config import EvaluationConfig as EvaluationConfig
from .evaluation.result import Evaluation as Evaluation
from .evaluation.result_folder import load_evaluation as load_evaluation
from .evaluation.run import evaluate_policy as evaluate_policy
from .evaluation.scores import compare as compare
from .experts.policy import ExpertPolicy as ExpertPolicy
from .parallel.workers import WorkerOptions as WorkerOptions
from .policies.policy import Policy as Policy
from .policies.sources import load_policy as load_policy
from .robot.arm import load_robot as load_robot
from .robot.arm import robot_names as robot_names
from .rollouts.episode import Episode as Episode
from .rollouts.rollout import rollout as rollout
from .sim.scene import Scene as Scene
from .sim.scene import sample_scene as sample_scene
from .sim.world_state import WorldState as WorldState

__all__: list[str]
__version__: str
