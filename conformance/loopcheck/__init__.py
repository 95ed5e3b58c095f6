"""A conformance suite for agent loops. It judges what happens, not what a framework says about itself."""

VERSION = "1.0.0"
"""The suite's version, raised by any change in what is played or judged. It separates results."""
