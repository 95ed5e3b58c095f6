"""The start of the command line: imports its parts only here, so that Ctrl-C can end the imports."""

import atexit
import gc
import io
import signal
import sys
import threading


def main() -> None:
    """The entry point of the `signoff` command."""
    # The imports take a moment: until they are done, ^C ends the process in the default way. As an exception
    # it would print a traceback from some module, or be swallowed there.
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Imported objects live until the end. The garbage collector would scan all of them during the imports,
    # for nothing, and once more at exit, which alone takes a third of the time of a short command.
    gc.disable()
    atexit.register(gc.freeze)
    from signoff.cli.app import app, load

    load(sys.argv[1:])
    gc.freeze()
    gc.enable()
    # A terminal without Unicode gets escapes instead of symbols, and its input need not be valid text.
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
