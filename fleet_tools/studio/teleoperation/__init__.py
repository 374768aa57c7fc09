"""A person as a policy: keyboard, gamepad and a gizmo in the browser."""
