"""The targets of the attacks: what a hostile program tries to reach, and checks of what it did.

The workspace holds protected files, next to files that may be changed.
"""

import contextlib
import ctypes
import hashlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from signoff.tools.processes.helpers import isolated
from signoff.tools.sandbox.base import MB, Bounds

ENVIRONMENT = "SIGNOFF_ATTACK_TOKEN"
"""The variable that is set in this process while the attacks run."""

_SLEEP = "import time; time.sleep(900)"
_HARMLESS = ("PATH", "LANG", "HOME", "PWD", "TMPDIR", "LC_")
_BLOCK = 4096


class Arena:
    """Secrets, listeners, a victim process and a terminal, all harmless and all removed in the end.

    mark: the name that every process of a hostile program takes, so that it can be found from outside.
    """

    def __init__(self) -> None:
        self.token = secrets.token_hex(12)
        self.secret = f"secret-{self.token}"
        self.mark = f"sg{secrets.token_hex(5)}"

    def __enter__(self) -> Self:
        self._held = contextlib.ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="signoff-attack-"))
        self._held.callback(shutil.rmtree, self.folder, ignore_errors=True)
        # Open to everybody, so that only the sandbox protects it.
        self.folder.chmod(0o777)
        self.secret_file = self.folder / "secret.txt"
        self.mount_point = self.folder / "mount"
        self.mount_point.mkdir(mode=0o777)
        self.outside = self.folder / "written-outside"
        self.home_file = Path.home() / f".signoff-attack-{self.token}"
        self._held.callback(self.home_file.unlink, missing_ok=True)
        # A home folder that cannot be written has no file to read, so the attempt finds nothing.
        with suppress(OSError):
            self.home_file.write_text(self.secret)
        self._listen()
        self._open_terminal()
        self._victim: subprocess.Popen[bytes] | None = None
        self._held.callback(self._end_victim)
        before = os.environ.get(ENVIRONMENT)
        os.environ[ENVIRONMENT] = self.secret
        self._held.callback(_restore, before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def _open_terminal(self) -> None:
        self.terminal_name = ""
        # Windows has none.
        if hasattr(os, "openpty"):
            self.terminal, follower = os.openpty()
            self.terminal_name = os.ttyname(follower)
            os.set_blocking(self.terminal, False)
            self._held.callback(os.close, self.terminal)
            self._held.callback(os.close, follower)

    def _listen(self) -> None:
        def bound(family: int, kind: int, address: object) -> socket.socket:
            made = self._held.enter_context(socket.socket(family, kind))
            made.bind(address)  # type: ignore[arg-type]  # an address of any family
            made.setblocking(False)
            if kind == socket.SOCK_STREAM:
                made.listen(16)
            return made

        self.abstract = f"signoff-{self.token}"
        self.unix = str(self.folder / "unix")
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        self._sockets = {
            "tcp": bound(socket.AF_INET, stream, ("127.0.0.1", 0)),
            "udp": bound(socket.AF_INET, datagram, ("127.0.0.1", 0)),
        }
        if hasattr(socket, "AF_UNIX"):
            self._sockets["unix"] = bound(socket.AF_UNIX, stream, self.unix)
            self._sockets["datagram"] = bound(socket.AF_UNIX, datagram, f"{self.unix}-datagram")
            os.chmod(self.unix, 0o777)
            os.chmod(f"{self.unix}-datagram", 0o777)
        if sys.platform == "linux":
            self._sockets["abstract"] = bound(socket.AF_UNIX, stream, f"\0{self.abstract}")
        self.tcp_port = self._sockets["tcp"].getsockname()[1]
        self.udp_port = self._sockets["udp"].getsockname()[1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.free_port = free.getsockname()[1]

    @property
    def victim(self) -> int:
        """A process outside with a secret in its environment; `prepare` replaces one that has ended."""
        return 0 if self._victim is None else self._victim.pid

    def _ensure_victim(self) -> None:
        if self._victim is None or self._victim.poll() is not None:
            command = isolated(_SLEEP)
            # Python does not start on Windows without `SYSTEMROOT`.
            env = {"SIGNOFF_VICTIM": self.secret, "SYSTEMROOT": os.environ.get("SYSTEMROOT", "")}
            self._victim = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)

    def victim_ended(self) -> bool:
        return self._victim is not None and self._victim.poll() is not None

    def _end_victim(self) -> None:
        if self._victim is not None:
            self._victim.kill()
            self._victim.wait()

    def prepare(self) -> None:
        """Restores everything for the next program."""
        self.secret_file.write_text(self.secret)
        self.secret_file.chmod(0o644)
        self.outside.unlink(missing_ok=True)
        self.received()
        self._ensure_victim()

    def names(self) -> dict[str, object]:
        """Returns the names that a hostile program gets, so that it does not fail for lack of a target."""
        return {
            "MARK": self.mark,
            "SECRET_FILE": str(self.secret_file),
            "HOME_FILE": str(self.home_file),
            "OUTSIDE": str(self.outside),
            "MOUNT_POINT": str(self.mount_point),
            "TCP": self.tcp_port,
            "UDP": self.udp_port,
            "FREE": self.free_port,
            "UNIX": self.unix,
            "ABSTRACT": self.abstract,
            "TERMINAL": self.terminal_name,
            "VICTIM": self.victim,
            "SHARED_KEY": self.shared_key,
        }

    @property
    def shared_key(self) -> int:
        return int(self.token[:7], 16)

    def received(self) -> str:
        """Returns the names of the listeners that were reached since the last call."""
        reached = []
        for name, listener in self._sockets.items():
            with suppress(BlockingIOError):
                if listener.type == socket.SOCK_STREAM:
                    listener.accept()[0].close()
                else:
                    listener.recv(4096)
                reached.append(name)
        return ", ".join(reached)

    def typed(self) -> str:
        """Returns what was written to the terminal since the last call."""
        with suppress(BlockingIOError):
            if not self.terminal_name:
                return ""
            return os.read(self.terminal, 4096).decode(errors="replace")
        return ""

    def is_listening(self) -> bool:
        """Whether a program listens on the free port."""
        with socket.socket() as client:
            client.settimeout(0.2)
            return client.connect_ex(("127.0.0.1", self.free_port)) == 0

    def own_environment(self) -> list[str]:
        """Returns the values in this process's environment that are worth hiding."""
        raw = Path("/proc/self/environ")
        entries = raw.read_text(errors="replace").split("\0") if raw.exists() else []
        return [entry for entry in entries if len(entry) > 20 and not entry.startswith(_HARMLESS)]

    def disks(self) -> dict[str, str]:
        """Returns the hash of the beginning of every disk that this process can read, by the disk's name."""
        found = {}
        for name in sorted(os.listdir("/sys/block")) if os.path.isdir("/sys/block") else []:
            with suppress(OSError), open(f"/dev/{name}", "rb") as disk:
                start = disk.read(_BLOCK)
                if any(start):
                    found[name] = hashlib.sha256(start).hexdigest()
        return found

    def leftover_files(self, name: str) -> list[Path]:
        """Returns the files called `name` in the temporary folders of this host."""
        places = {Path(tempfile.gettempdir()).resolve(), Path.cwd()}
        return [path for place in places for path in (*place.glob(name), *place.glob(f"*/{name}"))]

    def unmount(self) -> bool:
        """Unmounts what the program mounted; returns whether there was something."""
        if not os.path.ismount(self.mount_point):
            return False
        ctypes.CDLL(None).umount2(os.fsencode(self.mount_point), 2)
        return True

    def shared_memory(self) -> bool:
        """Removes the System V segment of the program; returns whether there was one."""
        table = Path("/proc/sysvipc/shm")
        rows = [line.split() for line in table.read_text().splitlines()[1:]] if table.exists() else []
        found = [int(row[1]) for row in rows if int(row[0]) == self.shared_key]
        for number in found:
            ctypes.CDLL(None).shmctl(number, 0, None)
        return bool(found)


def end(process: int) -> None:
    """Ends a process that a hostile program left behind."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(ENVIRONMENT, None)
    else:
        os.environ[ENVIRONMENT] = before


BOUNDS = Bounds(files=300, disk=40 * MB)
"""Small, so that testing them costs little; how far a program exceeds them does not depend on them."""

OPEN = "src"
"""The folder whose files may be changed."""
TWIN = "copies/twin.py"

_FILES = {
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/config": "[core]\n\tbare = false\n",
    ".git/objects/info/packs": "",
    ".git/refs/heads/main": "0" * 40,
    ".venv/pyvenv.cfg": "home = /usr/bin\n",
    ".venv/bin/python": "#!/bin/sh\n",
    ".venv/lib/python3/site-packages/one.py": "one = 1\n",
    "nested/env/pyvenv.cfg": "home = /usr/bin\n",
    "nested/env/bin/python": "#!/bin/sh\n",
    "nested/note.txt": "a note\n",
    "conda/conda-meta/history": "",
    "conda/bin/python": "#!/bin/sh\n",
    "envs/main/pyvenv.cfg": "home = /usr/bin\n",
    "envs/main/bin/python": "#!/bin/sh\n",
    "kept/bare/HEAD": "ref: refs/heads/main\n",
    "kept/bare/config": "[core]\n\tbare = true\n",
    "kept/bare/objects/info/packs": "",
    "kept/bare/refs/heads/main": "0" * 40,
    ".signoff/threads.sqlite": "threads",
    f"{OPEN}/app.py": "print('hello')\n",
}
_LINK, _TARGET = "linked/.venv", "../envs/main"


@dataclass(frozen=True)
class AddedFiles:
    """What a program has added to the folder that it may change."""

    files: int
    size: int

    @property
    def files_over(self) -> int:
        return max(self.files - BOUNDS.files, 0)

    @property
    def bytes_over(self) -> int:
        return max(self.size - BOUNDS.disk, 0)


TOP = frozenset({".git", ".venv", ".signoff", "conda"})
"""What is protected where the workspace can be changed: by name and place, not under a second name."""
ALL = TOP | {"nested/env", "envs/main", "kept/bare", TWIN, _LINK}


class Grounds:
    """A folder with repositories, environments and Signoff's own files, made again for each program.

    closed: what must not change in it.
    """

    def __init__(self, closed: frozenset[str] = TOP) -> None:
        self._closed = closed

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="signoff-grounds-")).resolve()
        self.prepare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _remove(self.folder)

    def prepare(self) -> None:
        """Restores everything for the next program."""
        for entry in self.folder.iterdir():
            _remove(entry)
        for name, text in _FILES.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if path.parent.name == "bin":
                path.chmod(0o755)
        link = self.folder / _LINK
        link.parent.mkdir()
        # Not available to every user on Windows.
        with suppress(OSError):
            link.symlink_to(_TARGET)
        if TWIN in self._closed:
            (self.folder / TWIN).parent.mkdir()
            os.link(self.folder / ".venv/lib/python3/site-packages/one.py", self.folder / TWIN)
        # Open to everybody, so that only the sandbox protects it.
        for place, folders, files in os.walk(self.folder):
            for name in (".", *folders, *files):
                path = Path(place, name)
                if not path.is_symlink():
                    path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o666 | 0o111 * path.is_dir())
        self._before = self._state()

    def changed(self) -> str:
        """Returns the first protected path that has changed; empty when none has."""
        now = self._state()
        for path in sorted(self._before.keys() | now.keys()):
            if self._before.get(path) != now.get(path):
                return path
        return ""

    def special(self) -> str:
        """Returns the first setuid or setgid file."""
        for place, _, names in os.walk(self.folder):
            for name in names:
                path = Path(place, name)
                if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID):
                    return str(path.relative_to(self.folder))
        return ""

    def is_locked(self) -> bool:
        """Whether somebody else holds a lock on the database."""
        # A lease would hold up who opens it.
        program = "import fcntl, os, sys\nfile = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)\n"
        program += "for lock in (fcntl.flock, fcntl.lockf): lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
        command = isolated(program, str(self.folder / ".signoff/threads.sqlite"))
        return subprocess.run(command, capture_output=True, check=False).returncode != 0

    def has_traps(self) -> bool:
        """Whether there is anything that is neither a file nor a folder nor a link."""
        modes = [path.lstat().st_mode for path in self.folder.rglob("*")]
        return any(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)

    def added_files(self) -> AddedFiles:
        found = [path.lstat() for path in (self.folder / OPEN).rglob("*")]
        return AddedFiles(len(found), sum(info.st_size for info in found))

    def _state(self) -> dict[str, str]:
        """Returns mode, link target and content of every protected file, and of new files next to them."""
        found = {}
        for place, folders, names in os.walk(self.folder):
            for name in (*folders, *names):
                path = Path(place, name)
                short = path.relative_to(self.folder).as_posix()
                # The code's own folder lies in Signoff's.
                if short.startswith(".signoff/outputs") or short == ".signoff/.gitignore":
                    continue
                if any(short == top or short.startswith(f"{top}/") for top in self._closed):
                    found[short] = _describe(path)
        return found


def _describe(path: Path) -> str:
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return f"link {os.readlink(path)}"
    content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(info.st_mode) else ""
    return f"{info.st_mode:o} {content}"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
