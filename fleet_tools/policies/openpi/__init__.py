"""openpi's protocol: its servers act as policies here, and ours answer its clients.

The protocol is that of the package openpi-client (https://pypi.org/project/openpi-client): over
WebSocket, the server first sends a map of metadata; each request is a map of an observation's
entries, and its answer a map with `actions`, (horizon, action), or a text that says why not.
"""
