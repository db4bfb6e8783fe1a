"""The agent that runs on a device at the line. Its own distribution (`loopline-edge`): no Django, no torch.

The server and the recipe import two modules only: `edge.protocol` (words on the wire) and `edge.pictures` (bytes to
pixels).
"""

__version__ = "0.1.0"
