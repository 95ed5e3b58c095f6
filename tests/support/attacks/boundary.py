"""Hostile programs in a workspace: they change what others start, import or read, or fill the disk.

Each tries many ways, because one that is open is enough. They run in the folder of `grounds`.
"""

from tests.support.attacks.attack import Attack, Observed

_TRY = """
import os
def attempt(work, *names):
    try:
        work(*names)
    except (OSError, NameError, AttributeError, NotImplementedError) as error:
        print(error)
def write(path):
    with open(path, "w") as file:
        file.write("changed")
def append(path):
    with open(path, "a") as file:
        file.write("changed")
def empty(path):
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))
def replace(path):
    other = os.path.join("src", "other")
    write(other)
    os.replace(other, path)
def remake(path):
    os.unlink(path)
    write(path)
def change(path):
    for work in (append, write, empty, replace, remake):
        attempt(work, path)
    attempt(os.chmod, path, 0o600)
    attempt(os.unlink, path)
"""


def _changed(observed: Observed) -> str:
    path = observed.grounds.changed() if observed.grounds else ""
    return f"{path} was changed" if path else ""


def _special(observed: Observed) -> str:
    path = observed.grounds.special() if observed.grounds else ""
    return f"{path} runs as its owner" if path else ""


def _files(observed: Observed) -> str:
    made = observed.made
    ended = observed.result.exit == "killed"
    return f"{made.files:,} files and was not ended" if made and made.files_over and not ended else ""


def _bytes(observed: Observed) -> str:
    made = observed.made
    ended = observed.result.exit == "killed"
    return f"{made.size / 1e6:,.0f} MB and was not ended" if made and made.bytes_over and not ended else ""


def _on(*lines: str) -> str:
    return "\n".join((_TRY, *lines))


BOUNDARY = (
    Attack(
        "environment",
        "replace the Python of a virtual environment",
        _on(
            'for name in (".venv/bin/python", ".venv/pyvenv.cfg", "nested/env/bin/python"): change(name)',
            'for name in ("conda/bin/python", "conda/conda-meta/history"): change(name)',
            'for name in (".venv/bin/git", "nested/env/bin/pip", "conda/bin/new"): attempt(write, name)',
        ),
        _changed,
        in_grounds=True,
    ),
    Attack(
        "path file",
        "put a .pth file and a module into site-packages",
        _on(
            'packages = ".venv/lib/python3/site-packages"',
            'for name in ("evil.pth", "sitecustomize.py", "one.py"): attempt(write, f"{packages}/{name}")',
            'attempt(os.mkdir, ".venv/lib/python3/site-packages/json")',
            'attempt(os.symlink, "../../../../src", ".venv/lib/python3/site-packages/src")',
        ),
        _changed,
        in_grounds=True,
    ),
    Attack(
        "git configuration",
        "let the next git command run a program (core.fsmonitor, hooks)",
        _on(
            'for name in (".git/config", ".git/HEAD", "kept/bare/config", "kept/bare/HEAD"): change(name)',
            'for name in (".git/hooks", "kept/bare/hooks"): attempt(os.mkdir, name)',
            'for name in (".git/hooks/pre-commit", ".git/config.worktree"): attempt(write, name)',
            'handle = os.open(".git", os.O_RDONLY)',
            'attempt(write, f"/proc/self/fd/{handle}/config")',
            'attempt(lambda: os.write(os.open("config", os.O_WRONLY, dir_fd=handle), b"changed"))',
        ),
        _changed,
        in_grounds=True,
    ),
    Attack(
        "renamed parent",
        "move a protected folder, or one above it, and replace it with another",
        _on(
            'for name in (".git", ".venv", ".signoff", "nested", "nested/env", "kept", "kept/bare",',
            '             "envs", "envs/main", "linked", "linked/.venv", "conda"):',
            '    attempt(os.rename, name, "src/moved")',
            '    attempt(os.rename, name, name + ".moved")',
            '    attempt(os.makedirs, os.path.join(name, "bin"))',
            '    attempt(write, os.path.join(name, "bin", "python"))',
        ),
        _changed,
        in_grounds=True,
    ),
    Attack(
        "linked environment",
        "replace an environment that is a link, and write through it",
        _on(
            'change("linked/.venv/bin/python")',
            'change("linked/.venv")',
            'attempt(os.symlink, "../src", "linked/.venv")',
            'attempt(os.symlink, "../src", "src/new")',
            'attempt(os.rename, "src/new", "linked/.venv")',
        ),
        _changed,
        in_grounds=True,
    ),
    Attack(
        "second name",
        "write a protected file under another name, through existing and new links",
        _on(
            'change("copies/twin.py")',
            'for number, make in enumerate((os.link, os.symlink)):',
            '    for name in (".venv/bin/python", ".git/config", "nested/env/bin/python"):',
            '        other = f"src/{number}"',
            '        attempt(make, os.path.abspath(name), other)',
            '        attempt(append, other)',
            '        attempt(os.unlink, other)',
        ),
        _changed,
        in_grounds=True,
    ),
    Attack(
        "mounts",
        "remove the protection: unmount it, or mount it writable, in a namespace of its own",
        _on(
            "import ctypes",
            "libc = ctypes.CDLL(None, use_errno=True)",
            "libc.unshare(0x10020000)",
            'for name in (b".git", b".venv", b"nested", b"kept/bare"):',
            "    libc.umount2(name, 2)",
            '    libc.mount(None, name, None, 4096 | 32, None)',
            'for name in (".git/config", ".venv/bin/python", "kept/bare/config"): attempt(append, name)',
        ),
        _changed,
        in_grounds=True,
    ),
    Attack(
        "locks",
        "hold locks on a file that others lock",
        _on(
            "import fcntl",
            'held = open(".signoff/threads.sqlite", "rb")',
            "for lock, how in ((fcntl.flock, fcntl.LOCK_EX), (fcntl.lockf, fcntl.LOCK_SH)):",
            "    attempt(lock, held, how | fcntl.LOCK_NB)",
            "attempt(fcntl.fcntl, held, fcntl.F_SETLEASE, fcntl.F_RDLCK)",
        ),
        lambda observed: "a lock was held" if observed.grounds and observed.grounds.is_locked() else "",
        in_grounds=True,
    ),
    Attack(
        "traps",
        "leave a pipe and a socket, on which who opens them waits for ever",
        _on(
            'for folder in ("src", os.path.expanduser("~")):',
            '    attempt(os.mkfifo, f"{folder}/pipe")',
            '    attempt(os.mknod, f"{folder}/pipe2", 0o010600)',
            '    attempt(os.mknod, f"{folder}/socket", 0o140600)',
        ),
        lambda observed: "a pipe was left" if observed.grounds and observed.grounds.has_traps() else "",
        in_grounds=True,
    ),
    Attack(
        "own state",
        "change Signoff's own files in the workspace",
        _on(
            'change(".signoff/threads.sqlite")',
            'attempt(write, ".signoff/threads.sqlite-wal")',
        ),
        _changed,
        in_grounds=True,
    ),
    Attack(
        "setuid file",
        "leave a setuid program behind",
        _on(
            'for bits in (0o4755, 0o2755, 0o6777):',
            '    attempt(os.open, f"src/{bits}", os.O_CREAT | os.O_WRONLY, bits)',
            '    attempt(os.mknod, f"src/{bits}-node", 0o100000 | bits)',
            '    attempt(write, "src/plain")',
            '    attempt(os.chmod, "src/plain", bits)',
            '    attempt(lambda: os.fchmod(os.open("src/plain", os.O_WRONLY), bits))',
            '    attempt(lambda: os.chmod("plain", bits, dir_fd=os.open("src", os.O_RDONLY)))',
            "import ctypes",
            "libc = ctypes.CDLL(None, use_errno=True)",
            'for number in (90, 452): libc.syscall(number, b"src/plain", 0o4755, 0, 0)',
            'libc.syscall(452, -100, b"src/plain", 0o4755, 0)',
        ),
        _special,
        in_grounds=True,
    ),
    Attack(
        "files without end",
        "fill the workspace with files, by several processes",
        _on(
            "for number in range(2):",
            "    attempt(os.fork)",
            'folder = f"src/{os.getpid()}"',
            "os.mkdir(folder)",
            "number = 0",
            "while True:",
            "    number += 1",
            '    os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))',
        ),
        _files,
        5.0,
        in_grounds=True,
    ),
    Attack(
        "names without end",
        "fill the workspace with hard links to one file, which take no space on the disk",
        _on(
            'os.mkdir("src/names")',
            'open("src/names/one", "w").close()',
            "number = 0",
            "while True:",
            "    number += 1",
            '    attempt(os.link, "src/names/one", f"src/names/{number}")',
        ),
        _files,
        5.0,
        in_grounds=True,
    ),
    Attack(
        "bytes without end",
        "fill the workspace with large files",
        _on(
            'block = b"x" * 1_000_000',
            "number = 0",
            "while True:",
            "    number += 1",
            '    with open(f"src/large{number}", "wb") as file:',
            '        attempt(os.posix_fallocate, file.fileno(), 0, 8_000_000)',
            "        for _ in range(20): file.write(block)",
        ),
        _bytes,
        2.0,
        in_grounds=True,
    ),
)  # fmt: skip
