"""Behaviour cloning: a network learns to do what demonstrations did.

    from fleet_tools.baselines.policies.checkpoint import Checkpoint, save_checkpoint
    from fleet_tools.baselines.policies.config import policy_config
    from fleet_tools.baselines.training.config import TrainingConfig
    from fleet_tools.baselines.training.experiment import blueprint_of, split
    from fleet_tools.baselines.training.loop import train, validate
    from fleet_tools.baselines.training.state import TrainingState
    from fleet_tools.baselines.training.trajectories import Trajectories

    learned, judged = split(Samples("data/hammer"), share=0.1, seed=0)          # of episodes
    blueprint = blueprint_of(policy_config("elman"), learned)                   # scaled by them
    trajectories, config = Trajectories(learned, blueprint), TrainingConfig()
    state = TrainingState.initial(blueprint.create(seed=0).state_dict())        # or merged weights
    state = train(blueprint, trajectories, config, state, epochs=5)             # the next state
    loss = validate(blueprint, Trajectories(judged, blueprint), config, state.weights)
    save_checkpoint(path, Checkpoint(blueprint, state.weights))

What training does follows from these values alone, so it goes on from a stored state as if it had
never stopped, in this process or in another. `python -m fleet_tools.baselines.train` adds files,
progress and rollouts (`run`, `record`, `rollouts`).
"""
