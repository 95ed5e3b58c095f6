"""The path of a thread, written down in short."""

from signoff.session import Step


def told(path: list[Step]) -> list[str]:
    """Each step as "state event", those in which no state ran by the event alone."""
    return [f"{step.name} {step.event}".strip() for step in path]
