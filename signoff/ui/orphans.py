"""A process that a server started ends with it, also when the server is killed."""

import os
import threading
import time
from collections.abc import Callable

SERVED_BY = "SIGNOFF_SERVED_BY"
"""The variable that names the server's process."""

_LOOK_SECONDS = 0.5


def end_with_server(close: Callable[[], None]) -> None:
    """Ends this process when the server that started it has ended; a killed server can tell nobody.

    close: ends what this process has started. Does nothing for a process that no server started.
    """
    server = os.environ.get(SERVED_BY)
    if server is None:
        return

    def watch() -> None:
        while os.getppid() == int(server):
            time.sleep(_LOOK_SECONDS)
        close()
        os._exit(0)

    threading.Thread(target=watch, name="signoff-server", daemon=True).start()
