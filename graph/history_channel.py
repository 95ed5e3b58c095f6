"""The channel of the messages: stores what is appended, and a full copy the less often the longer it is."""

from typing import Any

from langgraph.channels import DeltaChannel


class HistoryChannel(DeltaChannel[list[Any]]):
    """LangGraph's DeltaChannel, with a full copy once the history is half as long again as in the last one.

    At a fixed distance the copies of a long thread outgrow the messages themselves; so they stay in
    proportion to them, and so does what has to be read to open the thread. LangGraph's own bound on the
    distance (5,000 super-steps) holds as well. `snapshot_frequency`: at least so many updates between two
    copies.
    """

    @property
    def snapshot_frequency(self) -> int:
        # What is half of the copy is a third of the whole.
        return max(self._least, len(self.value) // 3) if self.is_available() else self._least

    @snapshot_frequency.setter
    def snapshot_frequency(self, least: int) -> None:
        self._least = least
