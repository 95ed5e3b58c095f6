"""How the command line starts: what it is made of is imported only here, and can be interrupted."""

import atexit
import gc
import io
import signal
import sys
import threading


def main() -> None:
    """The entry point of the `signoff` command."""
    # What is imported takes a moment: until it is there, ^C ends the process as it ends any other.
    # As an exception it would show where in somebody's module it came, or be swallowed there.
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What is imported stays until the end. The collector would go through all of it while it comes, for
    # nothing, and once more when the process ends, which alone takes a third of the time of a short command.
    gc.disable()
    atexit.register(gc.freeze)
    from signoff.cli.app import app, load

    load(sys.argv[1:])
    gc.freeze()
    gc.enable()
    # A terminal without Unicode gets escapes in place of symbols, and what it sends need not be text.
    for stream, errors in (
        (sys.stdin, "replace"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
