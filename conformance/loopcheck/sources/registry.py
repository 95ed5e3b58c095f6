"""The public sources of tasks, by name."""

from collections.abc import Mapping

from loopcheck.sources import agentdojo, bfcl, tau2
from loopcheck.sources.task import Source

SOURCES: Mapping[str, Source] = {one.SOURCE.name: one.SOURCE for one in (agentdojo, tau2, bfcl)}
