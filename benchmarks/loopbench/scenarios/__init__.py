"""All scenarios, in the order of the table."""

from benchmarks.loopbench.scenario import Scenario
from benchmarks.loopbench.scenarios import children, crashes, ending, limits, people, replies

THEMES: dict[str, tuple[Scenario, ...]] = {
    "Ending": ending.SCENARIOS,
    "Odd replies": replies.SCENARIOS,
    "Limits": limits.SCENARIOS,
    "Crashes": crashes.SCENARIOS,
    "People": people.SCENARIOS,
    "Sub-agents": children.SCENARIOS,
}
SCENARIOS: tuple[Scenario, ...] = tuple(scenario for theme in THEMES.values() for scenario in theme)

__all__ = ["SCENARIOS", "THEMES"]
