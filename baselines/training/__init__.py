"""Behaviour cloning: a network learns to imitate demonstrations.

    from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
    from fleet_tools.baselines.policies.config import policy_config
    from fleet_tools.baselines.training.config import TrainingConfig
    from fleet_tools.baselines.training.demonstrations import blueprint_of, split
    from fleet_tools.baselines.training.loop import train, validate
    from fleet_tools.baselines.training.state import TrainingState
    from fleet_tools.baselines.training.demonstrations import Trajectories

    training, validation = split(Samples("data/hammer"), fraction=0.1, seed=0)  # by episodes
    blueprint = blueprint_of(policy_config("elman"), training)                  # with their scaling
    trajectories, config = Trajectories(training, blueprint), TrainingConfig()
    state = TrainingState.initial(blueprint.create(seed=0).state_dict())        # or merged weights
    state = train(blueprint, trajectories, config, state, epochs=5)             # the next state
    loss = validate(blueprint, Trajectories(validation, blueprint), config, state.weights)
    save_checkpoint(path, Checkpoint(blueprint, state.weights))

Training depends on these values alone, so it can continue from a stored state as if it had never
stopped, also in another process. `python -m fleet_tools.baselines.train` adds files, progress and
rollouts (`run`, `record`, `rollouts`).
"""
