"""Federated learning: robots train apart on their own data, and only weights are exchanged.

    config            configuration of a fleet, as its YAML file has it
    references        fleets with which another one is compared
    round_config      when a round closes, whether it streams, and the server's step
    plan              the robots' data, and what all robots have in common
    messages          what the server and a robot send each other
    robot             a data holder that also trains
    compact           answers as few bytes
    central           a server that learns from raw data, and merges nothing
    changes           a robot aligns its policy, and sends the difference
    vectors           weights as one vector, and as integers of a few bits
    transport         how messages reach robots; robots in this process
    ray_transport     robots on Ray: hosts, one for each core
    ray_host          a host in a Ray actor, where it runs, and which robot is next
    round_messages    messages and answers of a round, and what was exchanged with each robot
    aggregation       updates that are kept, changes that are summed
    rounds            one round
    partial           what is kept of a round in progress
    life              who takes part in a fleet when, with which episodes
    keeping           a month of a life in which the server keeps what robots sent before
    life_report       report of a life: stays, forgotten robots, policies fitted at home
    server_optimizer  the server's step after a merge
    progress          progress of a fleet, and summaries of its rounds
    record            the output folder
    run               all rounds, resumed after the last one that is stored
    distillation      a policy that imitates the last merge
    summary           the report, as JSON and as text

Inputs must be scaled alike wherever weights are averaged, so the server measures the scaling on
episodes of its own, and sends it with the blueprint. From a robot it receives
weights, the number of steps on which they were trained (the averaging weight), and a mean loss;
with Fleet-Merge, also losses and gradients of the models that it sends (`merging.queries.query`).

A robot's replies depend only on its assignment and the message. It keeps no optimizer moments from
one round to the next, as in FedAvg (McMahan et al. 2017), and draws the order of its data from its
seed and the epoch. A robot whose process died can therefore be started again, and a resumed run
ends with the same bits.
"""

from typing import Literal, get_args

ReferenceName = Literal[
    "joint",
    "joint_all_steps",
    "joint_wide",
    "joint_ensemble",
    "single",
    "task_specific",
    "task_specific_equal_steps",
    "last_month",
    "sequential",
]
"""Names of the fleets with which another one is compared, see `references.reference`."""

REFERENCES: tuple[str, ...] = get_args(ReferenceName)
