#!/bin/sh
# Serves policy/my_policy.py in a container without network and files, and evaluates it from another
# one over the loopback address that both share. Run it in the root of a checkout.
set -eu
docker build --build-arg EXTRAS=learning,serve -t fleet-tools .
docker run --rm --detach --name policy --network none --read-only --tmpfs /tmp:size=1g --user 2000:2000 \
    --cap-drop ALL --security-opt no-new-privileges --memory 8g --cpus 2 --pids-limit 256 \
    --env HOME=/tmp --env PYTHONPATH=/policy --workdir /tmp \
    --mount "type=bind,source=$PWD/policy,target=/policy,readonly" \
    fleet-tools fleet-tools serve my_policy:make --tool hammer
until docker logs policy 2>&1 | grep -q "is served at"; do sleep 1; done
mkdir -p results
docker run --rm --network container:policy --user "$(id -u):$(id -g)" --env HOME=/tmp --env USER="$USER" \
    --mount "type=bind,source=$PWD/results,target=/results" \
    fleet-tools fleet-tools evaluate --policy ws://127.0.0.1:8000 --tool hammer --output /results/my_policy
docker stop policy
