"""Bad input by rule: mutations of valid files, and every reader with a valid file to start from.

`mutate` is deterministic in its steps, so that pytest (hypothesis draws the steps) and ``tools/fuzz.py``
(a seeded generator does) try the same kinds of damage.  `run_case` reads one damaged file under a limit
of memory and time and says what came of it.
"""

from __future__ import annotations

import math
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espnet_latentasr.errors import ConfigError, DataError

Step = tuple[str, int, int]  # name of a mutation and two numbers that say where and how
LARGEST = 1 << 21  # bytes of a mutated file
MEMORY = 1 << 29  # bytes that one reading may take beyond what the process has
SECONDS = 10.0

# ---- mutations ---------------------------------------------------------------------------------

BYTES = (
    b"\0", b"\x1b[31m", b"\xff", b"\xc3\x28", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\xed\xa0\x80",
    b"\xe2\x80\xa8", b"\xc2\x85", b"\n", b"\n\n\n", b" ", b"\t", b'"', b"'", b"\\", b"{", b"]", b":",
    b"|", b"/", b"../", b"&a ", b"*a ", b"!!python/object:os.system ", b"- ", b"#", b"%YAML 9.9\n",
    b"\xf0\x9f\x98\x80", b"cat x |",
)  # fmt: skip
TOKENS = (
    b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"nan", b"inf", b".nan", b".inf", b"1e400", b"-1e400",
    b"1e-400", b"-1", b"0", b"-0.0", b"1_0", b"0x10", b"2147483648", b"-2147483649",
    b"9223372036854775808", b"1" * 400, b"9" * 5000, b"true", b"null", b'""', b"[]", b"{}", b"[1, 2]",
    b'{"a": 1}', b'"x"', b'"\\ud800"', b'"\\u0000"', b"2001-99-99", b"1:99:99", b"~", b"\xd9\xa1",
    b"a" * 300, b"0.5", b"3", b"<unk>", b"!!int x", b"!!timestamp x",
)  # fmt: skip
_TOKEN = re.compile(rb'"[^"\n]*"|[^\s,:\[\]{}"=()]+')
_COUNT = 1 << 16  # the numbers of a step are below


def _place(data: bytes, a: int) -> int:
    return a * (len(data) + 1) // _COUNT


def _pick(things: Sequence[Any], b: int) -> Any:
    return things[b % len(things)]


def _lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")


def _token(data: bytes, a: int) -> tuple[int, int]:
    found = [match.span() for match in _TOKEN.finditer(data[:LARGEST])]
    return found[a % len(found)] if found else (0, 0)


def _flip(data: bytes, a: int, b: int) -> bytes:
    at = min(_place(data, a), max(0, len(data) - 1))
    return data[:at] + bytes([data[at] ^ (b % 255 + 1)]) + data[at + 1 :] if data else data


def _insert(data: bytes, a: int, b: int) -> bytes:
    return data[: _place(data, a)] + _pick(BYTES, b) + data[_place(data, a) :]


def _replace_token(data: bytes, a: int, b: int) -> bytes:
    start, end = _token(data, a)
    return data[:start] + _pick(TOKENS, b) + data[end:]


def _remove_token(data: bytes, a: int, b: int) -> bytes:
    start, end = _token(data, a)
    return data[:start] + data[end:]


def _copy_token(data: bytes, a: int, b: int) -> bytes:
    start, end = _token(data, a)
    other = data[slice(*_token(data, b))]
    return data[:start] + other + data[end:]


def _remove_line(data: bytes, a: int, b: int) -> bytes:
    lines = _lines(data)
    del lines[a % len(lines)]
    return b"\n".join(lines)


def _repeat_line(data: bytes, a: int, b: int) -> bytes:
    lines = _lines(data)
    lines.insert(b % (len(lines) + 1), lines[a % len(lines)])
    return b"\n".join(lines)


def _swap_lines(data: bytes, a: int, b: int) -> bytes:
    lines = _lines(data)
    i, j = a % len(lines), b % len(lines)
    lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


def _number(data: bytes, a: int, b: int) -> bytes:
    """Overwrite two, four or eight bytes by a number that a header might have."""
    width = (2, 4, 8)[b % 3]
    value = _pick((0, 1, -1, 1 << (8 * width - 1), (1 << (8 * width - 1)) - 1, 1 << (4 * width)), b // 3)
    order = "little" if b // 18 % 2 else "big"
    at = _place(data, a)
    return data[:at] + (value % (1 << 8 * width)).to_bytes(width, order) + data[at + width :]


def _cut_out(data: bytes, a: int, b: int) -> bytes:
    first, last = sorted((_place(data, a), _place(data, b)))
    return data[:first] + data[last:]


def _double(data: bytes, a: int, b: int) -> bytes:
    first, last = sorted((_place(data, a), _place(data, b)))
    return data[:last] + data[first:last] + data[last:]


def _long(data: bytes, a: int, b: int) -> bytes:
    return (
        data[: _place(data, a)]
        + _pick((b"a", b"1", b" ", b"\xc3\xa4", b"-"), b) * 100_000
        + data[_place(data, a) :]
    )


def _deep(data: bytes, a: int, b: int) -> bytes:
    opening = _pick((b"[", b'{"a":', b"{a: ", b"- ", b"("), b) * 3000
    start, end = _token(data, a)
    return data[:start] + opening + data[end:]


MUTATIONS: dict[str, Callable[[bytes, int, int], bytes]] = {
    "flip": _flip,
    "insert": _insert,
    "replace_token": _replace_token,
    "remove_token": _remove_token,
    "copy_token": _copy_token,
    "remove_line": _remove_line,
    "repeat_line": _repeat_line,
    "swap_lines": _swap_lines,
    "number": _number,
    "cut_out": _cut_out,
    "double": _double,
    "truncate": lambda data, a, b: data[: _place(data, a)],
    "long": _long,
    "deep": _deep,
    "bom": lambda data, a, b: b"\xef\xbb\xbf" + data,
    "crlf": lambda data, a, b: data.replace(b"\n", b"\r\n"),
    "utf16": lambda data, a, b: data.decode("latin-1").encode("utf-16"),
    "latin1": lambda data, a, b: data[: _place(data, a)] + b"\xe4" + data[_place(data, a) :],
    "no_last_newline": lambda data, a, b: data.rstrip(b"\n"),
    "empty": lambda data, a, b: b"",
}
# Rare ones are drawn less often: most damage is small.
WEIGHTS = {name: 1 for name in MUTATIONS} | {
    "flip": 6, "insert": 6, "replace_token": 10, "remove_token": 3, "copy_token": 4, "number": 6,
    "truncate": 3, "cut_out": 3, "remove_line": 3, "repeat_line": 3, "swap_lines": 2,
}  # fmt: skip
NAMES = tuple(name for name, weight in WEIGHTS.items() for _ in range(weight))
# What every file is given whatever is drawn.
ALWAYS: tuple[tuple[Step, ...], ...] = (
    *(((name, 20_000, 0),) for name in MUTATIONS),
    *((("truncate", _COUNT * k // 8, 0),) for k in range(1, 8)),
    *((("deep", 7919 * k, k),) for k in range(1, 2)),
)


def mutate(data: bytes, steps: Sequence[Step]) -> bytes:
    """Return ``data`` after some mutations, cut to `LARGEST` bytes."""
    for name, a, b in steps:
        data = MUTATIONS[name](data, a, b)[:LARGEST]
    return data


# ---- running -----------------------------------------------------------------------------------


class Hang(BaseException):
    """Reading took longer than allowed; no `Exception`, so that no reader takes it for its own."""


@contextmanager
def limits(memory: int = MEMORY, seconds: float = SECONDS) -> Iterator[None]:
    """Give the code within this much more address space and time; both are an exception there."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)

    def late(*_: object) -> None:
        raise Hang(f"over {seconds:g} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of the CPU: a busy machine is no hang
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass(frozen=True)
class Reader:
    """A reader and a valid file for it.

    Args:
        seed: writes what the reader needs below a folder and returns the file that is to be damaged.
        read: reads it; an AssertionError says that what was accepted is no valid value.
        place: what a message must hold besides the file: by default a line, an utterance or a byte;
            ``""`` where a file is one thing, as a sound file or a JSON object is.
        whole: messages about a file as a whole, which name no place in it.
    """

    name: str
    seed: Callable[[Path], Path]
    read: Callable[[Path], object]
    place: str = r":\d+|line \d+|(utterance|speaker|id) '"
    whole: str = r"cannot be read|no such|cut off|no .* in it|nothing there|no utterance"


@dataclass(frozen=True)
class Outcome:
    """``kind``: accepted, refused, or what must not happen: crash, hang, memory, unnamed, invalid."""

    kind: str
    detail: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.kind in ("accepted", "refused")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def run_case(reader: Reader, root: Path, path: Path, data: bytes) -> Outcome:
    """Write ``data`` to ``path``, a file of the seed below ``root``, and read it; in CPU seconds."""
    path.write_bytes(data)
    started = time.process_time()
    try:
        with limits():
            reader.read(path)
        kind, detail = "accepted", ""
    except AssertionError as error:
        kind, detail = "invalid", f"accepted, but {error}"
    except (DataError, ConfigError) as error:
        kind, detail = "refused", str(error)
        if any(isinstance(one, MemoryError) for one in _chain(error)):
            kind = "memory"
        elif str(root) not in detail:
            kind, detail = "unnamed", f"no file in: {detail}"
        elif reader.place and not re.search(f"{reader.place}|{reader.whole}", detail):
            kind, detail = "unnamed", f"no place in: {detail}"
        elif len(detail) > 10_000:
            kind, detail = "unnamed", f"{len(detail)} characters: {detail[:500]}"
    except Hang as error:
        kind, detail = "hang", str(error)
    except MemoryError as error:
        kind, detail = "memory", repr(error)
    except Exception as error:  # whatever a reader lets out is what is looked for
        kind, detail = "crash", f"{type(error).__name__}: {error}"
    return Outcome(kind, detail[:2000], time.process_time() - started)


def finite(value: float) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
