"""Files that are written whole or not at all, and folders that one process writes; knows no content."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shlex
import shutil
import socket
import sys
import time
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from espnet_latentasr.errors import DataError

_FULL = {
    errno.ENOSPC: "the disk is full: make room",
    errno.EDQUOT: "the quota is used up: make room",
    errno.EFBIG: "the size of files is limited: lift the limit (ulimit -f)",
}
_FORBIDDEN = {
    errno.EROFS: "the file system is read-only: have it mounted for writing",
    errno.EACCES: "writing there is not allowed: change the permissions",
    errno.EPERM: "it is protected: lift the protection (chmod, chattr)",
}
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
NEARLY_FULL = 65536  # bytes; libraries report a full disk by errors of their own
PARTIAL = ".*.partial"  # what a killed writer leaves behind


class WriteError(DataError, OSError):
    """A file that could not be written: which, why, and what to do."""


class Busy(DataError):
    """A folder that another process is writing: which process, and what to do."""


def _free(path: Path) -> int:
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    return shutil.disk_usage(folder).free


def _refused(path: Path, error: Exception) -> int | None:
    """The system's number of an error that is the disk's refusal to write ``path``, else None."""
    if not isinstance(error, OSError):
        full = not isinstance(error, DataError) and _free(path) < NEARLY_FULL
        return errno.ENOSPC if full else None
    if error.errno in _FORBIDDEN and error.filename is not None:
        # An input that may not be read is another matter.
        named = Path(os.fsdecode(error.filename)).absolute()
        above = path.absolute().parents
        return error.errno if named.parent == above[0] or named in above else None
    return error.errno if error.errno in _FULL | _FORBIDDEN else None


def refusal(error: OSError) -> str | None:
    """One line about a full disk, for errors of files that ``naming`` was not told about; else None."""
    if error.errno not in _FULL:
        return None
    name = error.filename or "a file"
    return f"{name}: cannot be written ({error.strerror}); {_FULL[error.errno]}, then run the same again"


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name ``path`` in the error when the disk refuses what is written to it.

    Raises:
        WriteError: a full disk, a used-up quota, a read-only place; other errors pass as they are.
    """
    try:
        yield
    except WriteError:
        raise
    except Exception as error:
        if (code := _refused(Path(path), error)) is None:
            raise
        room = f", {_free(Path(path)) / 1e6:.1f} MB free" if code in _FULL else ""
        found = WriteError(
            f"{path}: cannot be written ({os.strerror(code)}{room}); {(_FULL | _FORBIDDEN)[code]} or "
            "choose another place, then run the same command again: finished work is kept"
        )
        found.errno = code
        raise found from error


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary sibling of ``path`` that replaces it on success and vanishes on failure.

    Missing parent folders are made.  A killed job or a full disk leaves the old file, or none, never
    half a file; a killed one may also leave the sibling (``PARTIAL``).

    Raises:
        WriteError: a full disk, a used-up quota, a read-only place.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def atomic_write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``path``, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def zip_damage(path: str | Path) -> str | None:
    """What is wrong with a zip archive, which a PyTorch checkpoint is: None if all checksums hold."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (OSError, zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        return str(getattr(error, "strerror", None) or error)
    return None if bad is None else f"the checksum of its part '{bad}' does not hold"


# ---- one process at a time -------------------------------------------------------------------------
# Locks are advisory and the kernel's: a process that dies, however it does, no longer holds its own.


def _occupied(what: str | Path, lock: Path) -> Busy:
    written = lock.read_text(encoding="utf-8", errors="replace").strip() or "a process that left no name"
    holders = ", ".join(holders_of(lock))
    return Busy(
        f"{what} is being written by {written}{f' (now held by {holders})' if holders else ''}; wait for "
        "it, or end it: the lock is freed when its last process ends"
    )


def holders_of(lock: Path) -> list[str]:
    """``PID COMMAND`` of other processes here (Linux) that have a file open, but not of those who ask."""
    found, target = [], os.stat(lock)
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) in (os.getpid(), os.getppid()):
            continue
        with suppress(OSError):
            stats = [os.stat(entry) for entry in (folder / "fd").iterdir() if os.path.exists(entry)]
            if any(os.path.samestat(target, stat) for stat in stats):
                words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                found += [f"{folder.name} {shlex.join(words[:-1])[:80]}"] if words[0] else []
    return found


def _sign(descriptor: int, pid: int, command: str) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    line = f"process {pid} on {socket.gethostname()} since {since}: {command}\n"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, line.encode(), 0)


def lock_for_shell(descriptor: int, lock: Path, what: str, pid: int, command: str, wait: bool) -> None:
    """Lock a file that a shell script has open, for as long as it, or a child of it, lives.

    Args:
        descriptor: the script's, inherited; the lock belongs to it and not to this process.
        what: what the lock stands for, in messages.
        wait: wait for another holder, and say whom for, instead of refusing.

    Raises:
        Busy: another one holds it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            raise _occupied(what, lock) from None
        print(f"waiting: {_occupied(what, lock)}", flush=True)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        print(f"{lock}: this file system has no locks ({error.strerror}): never run two at once there")
        return
    with naming(lock):
        _sign(descriptor, pid, command)


@contextmanager
def exclusive(folder: str | Path) -> Iterator[None]:
    """Let this process alone write ``folder``; what killed writers left half-written in it goes.

    The lock is the hidden sibling ``.<name>.lock``, so that it outlives the folder.  It is a record
    lock: forked workers do not hold it, it works over NFS, and it is lost when this process opens and
    closes that file once more.

    Raises:
        Busy: another process has it.
        WriteError: the lock cannot be made.
    """
    folder = Path(os.path.abspath(folder))
    lock = folder.with_name(f".{folder.name}.lock")
    with naming(lock):
        folder.parent.mkdir(parents=True, exist_ok=True)
        file = open(lock, "a+b")
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise _occupied(folder, lock) from None
            if error.errno not in _NO_LOCKS:
                raise
            logging.warning("%s: no locks there (%s): never run two at once", lock, error.strerror)
        else:
            with naming(lock):
                _sign(file.fileno(), os.getpid(), shlex.join(sys.argv)[:200])
        for left in folder.glob(PARTIAL):
            if left.is_file():
                left.unlink(missing_ok=True)
        yield
