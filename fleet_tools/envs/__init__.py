"""The Gymnasium environment: actions, observations, rewards, success, outcomes, time limit."""
