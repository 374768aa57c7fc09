"""Behaviour cloning: a network learns to do what demonstrations did.

    from fleet_tools.baselines.training.config import TrainingConfig
    from fleet_tools.baselines.training.loop import train, validate
    from fleet_tools.baselines.training.state import TrainingState
    from fleet_tools.baselines.training.trajectories import Trajectories

    samples = Samples("data/hammer")                                # mapped episodes
    statistics = normalization_of(samples).observation
    config = policy_config("elman")
    blueprint = Blueprint.of(config, samples.observation, samples.action, statistics)
    trajectories = Trajectories(samples, blueprint)
    state = TrainingState.initial(blueprint.create(seed=0).state_dict())
    state = train(blueprint, trajectories, TrainingConfig(), state, epochs=5)   # weights -> weights
    save_checkpoint(path, Checkpoint(blueprint, state.weights))

What training does follows from these values alone, so it goes on from a stored state as if it had
never stopped. `python -m fleet_tools.baselines.train` adds files, progress and rollouts.
"""
