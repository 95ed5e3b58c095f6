"""The exceptions that Signoff raises.

    SignoffError
    ├── SetupError       the caller's setup is incomplete or wrong; nothing has run
    ├── IllegalEvent     a node reported an event that its row of the table does not list
    ├── StorageError     the database cannot be used; the thread stays resumable
    └── ThreadError      the thread cannot do what was asked; nothing has changed
        ├── ThreadUnknown   nothing is saved under this id
        ├── ThreadBusy      another process is running the thread
        ├── ThreadLost      this runner no longer holds the thread, which another may have
        ├── BadAnswer       the answer does not fit what waits
        └── TooLate         nothing waits for the answer any more

A limit or a failing model is never an exception: it is an outcome.
"""


class SignoffError(Exception):
    """Base class of the exceptions that Signoff raises. The message says what to do."""


class SetupError(SignoffError):
    """The caller's setup is incomplete or wrong; nothing has run."""


class IllegalEvent(SignoffError):
    """A state reported an event that the transition table does not allow there."""


class JournalWarning(UserWarning):
    """Tools that change something run without a journal."""


class ApprovalWarning(UserWarning):
    """Calls need approval, or a tool asks a person, but the run cannot wait for one."""


class MiddlewareWarning(UserWarning):
    """A middleware hook asked for something impossible, and the run goes on without it; or a sub-agent lacks
    the guards that its agent has."""


class StorageError(SignoffError):
    """The database is broken, written in another form, or cannot be reached."""


class Unreadable(StorageError):
    """What is stored of one thread cannot be used, now or later; the database is well."""


class ThreadError(SignoffError):
    """What was asked is not possible in the thread's present state. Nothing has changed."""


class ThreadUnknown(ThreadError):
    """Nothing is saved under this thread id."""


class ThreadBusy(ThreadError):
    """Another runner, in this process or another one, holds this thread."""


class ThreadLost(ThreadError):
    """This runner no longer holds the thread, which another may have taken; what it saved is kept."""


class BadAnswer(ThreadError):
    """The answer does not fit what waits; the message says what would. Nothing has changed."""


class TooLate(ThreadError):
    """Nothing waits for the answer any more, or nothing ever did under its id. Nothing has changed."""


def unknown_thread(thread_id: str) -> ThreadUnknown:
    """The error for a thread that does not exist."""
    return ThreadUnknown(f"There is no thread {quote_id(thread_id)}; start it with a task.")


def quote_id(thread_id: str) -> str:
    """A thread id, quoted for an error message."""
    return repr(thread_id if len(thread_id) <= 80 else f"{thread_id[:80]}…")
