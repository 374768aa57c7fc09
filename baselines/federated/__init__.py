"""Federated learning: robots train apart on their own data, and only weights are exchanged.

    config            configuration of a fleet, read from its YAML file
    references        control runs for a fleet
    round_config      when a round closes, whether it streams, and the server's step
    plan              the robots' data, and their common settings
    messages          messages between the server and a robot
    robot             a data holder that also trains
    compact           answers in few bytes
    central           a server that learns from raw data, and merges nothing
    changes           a robot aligns its policy, and sends the difference
    vectors           weights as one vector, and as integers of a few bits
    transport         how messages reach robots; robots in this process
    ray_transport     robots on Ray: hosts, one for each core
    ray_host          a host in a Ray actor, its machine, and its next robot
    round_messages    messages and answers of a round, and the traffic of each robot
    aggregation       aggregators: stored updates, or a sum of changes
    rounds            one round
    partial           checkpoint of an unfinished round
    life              arrivals, absences and departures of robots, with their episodes
    keeping           a month of a life in which the server keeps earlier answers
    life_report       report of a life: stays, forgotten robots, policies fitted at home
    server_optimizer  the server's step after a merge
    progress          progress of a fleet, and summaries of its rounds
    record            the output folder
    run               all rounds, resumed after the last one that is stored
    distillation      a policy that imitates the last merge
    summary           the report, as JSON and as text

Averaged weights need inputs of one scale. So the server measures the scaling on its own episodes,
and sends it with the blueprint. From a robot it receives weights, a mean loss, and the number of
training steps, which is the averaging weight. With Fleet-Merge, a robot also sends losses and
gradients of models (`merging.queries.query`).

A robot's replies depend only on its assignment and the message. As in FedAvg (McMahan et al. 2017),
it keeps no optimizer moments between rounds. Its seed and the epoch determine the order of its
data. So a robot can be started again after a crash, and a resumed run ends with the same bits.
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
"""Names of the control runs for a fleet, see `references.reference`."""

REFERENCES: tuple[str, ...] = get_args(ReferenceName)
