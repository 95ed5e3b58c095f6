"""A conformance suite for agent loops: what really happens is judged, not what a framework says of itself."""

VERSION = "1.0.0"
"""Of the suite: a change of what is played or judged raises it. Results of two versions are not compared."""
