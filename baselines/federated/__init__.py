"""Federated learning: robots train apart on their own data, and only weights are exchanged.

    config           configuration of a fleet, as its YAML file has it
    references       names of the fleets with which another one is compared
    assignment       what a robot is sent once
    plan             the robots' data, and what all robots have in common
    messages         what the driver and a robot send each other
    robot            a data holder that also trains
    robot_holder     a robot as the data holder of a merge
    transport        how messages reach robots; robots in this process
    robot_host       serves many robots in turn, in little memory
    ray_transport    robots on Ray: hosts, one for each core
    ray_host         a host in a Ray actor
    outbox           which robot is next for a host
    places           on which machines a robot lives
    reply_cache      replies to the first round, shared by fleets that begin alike
    closing          when a round closes
    rounds           one round: local updates, merge, evaluation
    streaming/       rounds in which robots align at home and send changes
    combination      larger policies made of the robots' networks
    run              all rounds, resumed after the last one that is stored
    run_spec         what a run depends on
    progress         progress of a fleet, and summaries of its rounds
    robot_summary    what a report says of a robot in a round
    record           the output folder
    summary          the report, as JSON and as text

Inputs must be scaled alike wherever weights are averaged, so the driver measures the scaling on
held-out episodes, which no robot has, and sends it with the blueprint. From a robot it receives
weights, the number of steps on which they were trained (the averaging weight), and a mean loss;
with Fleet-Merge, also losses and gradients of the models that it sends (`merging.queries.wire`).

A robot's replies depend only on its assignment and the message: it keeps no optimizer moments from
one round to the next, as in FedAvg (McMahan et al. 2017), and draws the order of its data from its
seed and the epoch. A robot whose process died can therefore be started again, and a resumed run
ends with the same bits.
"""
