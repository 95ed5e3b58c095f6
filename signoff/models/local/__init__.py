"""The embedded model: a real model that needs no key and no network."""

from signoff.models.local.chat import WORKED_EXAMPLES, LocalChatModel, local_model
from signoff.models.local.weights import Progress, Stage

__all__ = ["WORKED_EXAMPLES", "LocalChatModel", "Progress", "Stage", "local_model"]
