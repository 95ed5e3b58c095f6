"""The machine: its states, its events, the table of its transitions, and its drawing as Mermaid or SVG.

`python -m signoff.machine` prints the drawing.
"""

from signoff.graph.drawing.diagram import mermaid, svg
from signoff.graph.machine import TRANSITIONS, Event, State

__all__ = ["TRANSITIONS", "Event", "State", "mermaid", "svg"]

if __name__ == "__main__":
    from signoff.cli.diagram import app

    app()
