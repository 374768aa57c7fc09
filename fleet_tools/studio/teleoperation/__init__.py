"""A person as a policy: keyboard, gamepad, SpaceMouse and a gizmo in the browser."""
