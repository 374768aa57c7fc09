"""A backbone: a trained policy, which all robots fine-tune on tasks that it has not seen."""

from pathlib import Path

from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint, load_checkpoint
from fleet_tools.baselines.training.config import TuningConfig
from fleet_tools.dataset.stored_episode import file_digest
from fleet_tools.errors import ConfigError, DatasetError
from fleet_tools.policies.released import PREFIX, find_path


class BackboneConfig(TuningConfig):
    """A trained policy: the initial weights of all robots, and the parameters that they train.

    Attributes:
        checkpoint: Path of the policy, or fleet-tools/NAME for one of this release. The fleet takes
            its config as `policy`, and its scaling of inputs.
    """

    checkpoint: str

    @property
    def name(self) -> str:
        """Its name, without folders of this machine."""
        return self.checkpoint if self.checkpoint.startswith(PREFIX) else Path(self.checkpoint).name

    def digest(self) -> str:
        """Returns the hash of its file.

        Raises:
            UnknownNameError, ReleasedCheckpointError: See `released.find_path`.
        """
        return file_digest(find_path(self.checkpoint))

    def load(self, digest: str | None = None) -> Checkpoint:
        """Returns the policy.

        Args:
            digest: Hash of the file that is expected; None for any.

        Raises:
            UnknownNameError, ReleasedCheckpointError: See `released.find_path`.
            CheckpointError: See `load_checkpoint`.
            DatasetError: The file has another hash.
        """
        policy = load_checkpoint(find_path(self.checkpoint))
        if digest is not None and self.digest() != digest:
            raise DatasetError(
                f"{self.checkpoint} on this machine is not the fleet's backbone. Give all machines "
                "the same file."
            )
        return policy

    def blueprint(self, wanted: Blueprint) -> Blueprint:
        """Returns the blueprint of the policy.

        Args:
            wanted: Blueprint by the fleet's configuration and data; its scaling does not matter.

        Raises:
            ConfigError: They differ; the message lists the differences.
        """
        own = self.load().blueprint
        if found := wanted.differences(own):
            raise ConfigError(
                f"The fleet's policy is not that of its backbone {self.checkpoint}: in the first, "
                f"{'; '.join(found)}. Robots fine-tune the backbone as it is: give its config as "
                "`policy` and data of its layout, or train another backbone."
            )
        return own
