"""The embedded model: a real one, with no key and no network."""

from signoff.models.local.chat import LocalChatModel, local_model
from signoff.models.local.examples import WORKED_EXAMPLES
from signoff.models.local.progress import Progress, Stage

__all__ = ["WORKED_EXAMPLES", "LocalChatModel", "Progress", "Stage", "local_model"]
