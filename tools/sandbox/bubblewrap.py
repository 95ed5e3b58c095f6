"""The outer layer: bubblewrap shows the code an almost empty machine without a network."""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from signoff.tools.protected import Protected
from signoff.tools.sandbox.program import Installation

_DEVICES = ("null", "zero", "full", "random", "urandom")
DEVICES = tuple(f"/dev/{name}" for name in _DEVICES)
SHARED = "/dev/shm"
SCRATCH = "/tmp"
SCRATCH_INSIDE = f"{SCRATCH}/.scratch"
"""Where a workspace lies in `SCRATCH`, so that rights on one do not extend to the other."""
_SHARED_SIZE = 64_000_000


def program() -> str | None:
    """Returns the path of bubblewrap, or None when it is not installed."""
    return shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin")


def arguments(
    python: Installation,
    workspace: str | None,
    *,
    writable: bool,
    scratch: int,
    protected: Sequence[Protected] = (),
) -> list[str]:
    """Returns the arguments of bubblewrap up to the program that it starts.

    Read-only: the system, this Python, `workspace` unless `writable`, and what in it is `protected`. In
    memory and of bounded size: /tmp (`scratch` bytes) and /dev/shm. As root there is no user namespace: the
    worker then takes a user id that nobody has outside either, because limits on processes count per user.
    """
    apart = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() != 0:
        apart.append("--unshare-user")
    made = ["--die-with-parent", *apart, "--hostname", "sandbox"]
    made += [part for path in python.system for part in _system(path)]
    made += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    made += ["--perms", "1777", "--size", str(_SHARED_SIZE), "--tmpfs", SHARED, "--remount-ro", "/dev"]
    made += ["--perms", "1777", "--size", str(scratch), "--tmpfs", SCRATCH]
    made += ["--perms", "1777", "--dir", SCRATCH_INSIDE]
    inside = [*([workspace] if workspace else []), *python.own]
    made += [part for path in _ancestors(inside) for part in ("--perms", "0755", "--dir", path)]
    if workspace:
        made += ["--bind" if writable else "--ro-bind", workspace, workspace]
        # A folder above a protected one could be renamed and replaced by another. A mount point cannot.
        made += [part for path in folders_above(workspace, protected) for part in ("--bind-try", path, path)]
        made += [part for one in protected if not one.link for part in ("--ro-bind-try", one.path, one.path)]
    # After the workspace: a Python that lies in it stays as it is.
    made += [part for path in python.own for part in ("--ro-bind", path, path)]
    return [*made, "--remount-ro", "/"]


def _system(path: str) -> Iterator[str]:
    if os.path.islink(path) and not path.startswith("/etc/"):
        yield from ("--symlink", os.readlink(path), path)
    else:
        yield from ("--ro-bind", os.path.realpath(path), path)


def mounted_as_wanted(process: int, wanted: Mapping[str, tuple[int, int]]) -> bool:
    """Whether `process` sees each path of `wanted` as a mount of that file, and no mount over another one.

    bubblewrap follows links. A link that replaced a folder while bubblewrap started would have given the code
    access to another folder.
    """
    try:
        for path, identity in wanted.items():
            info = os.lstat(f"/proc/{process}/root{path}")
            if (info.st_dev, info.st_ino) != identity:
                return False
        mounts = Path(f"/proc/{process}/mountinfo").read_text().splitlines()
    except OSError:
        return False
    # The file writes spaces and the like in octal.
    names = (line.split()[4].encode().decode("unicode_escape").encode("latin-1") for line in mounts)
    seen = Counter(map(os.fsdecode, names))
    return wanted.keys() <= seen.keys() and all(seen[path] == 1 for path in seen.keys() - wanted.keys())


def folders_above(workspace: str, protected: Sequence[Protected]) -> list[str]:
    """Returns the folders from `workspace` down to the protected paths, outermost first."""
    above = (str(folder) for one in protected for folder in reversed(PurePath(one.path).parents))
    return list(dict.fromkeys(folder for folder in above if folder.startswith(f"{workspace}/")))


def _ancestors(paths: Sequence[str]) -> list[str]:
    """Returns the folders above `paths`, outermost first: bubblewrap would copy modes that deny access."""
    mounted = {*paths, "/", SCRATCH, SHARED}
    above = (str(folder) for path in paths for folder in reversed(PurePath(path).parents))
    wanted = dict.fromkeys(folder for folder in above if folder not in mounted)
    return [folder for folder in wanted if not any(folder.startswith(f"{path}/") for path in paths)]
