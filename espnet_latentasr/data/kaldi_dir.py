"""Kaldi directories: knows tables keyed by id and their rules, nothing of what audio or text mean.

Ids are sorted in the C locale (by UTF-8 bytes) as all Kaldi and ESPnet tools expect.  A `KaldiDir`
that exists is valid; "changing" one returns a new one.  ``wav.scp`` is written last, so a folder
without it is an unfinished one.  The file is longer than most because the reader of tables, the
rules of a directory and the repair of both are one contract: what one refuses, the other mends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import BOM, decode_line

FIX = "run python -m espnet_latentasr.bin.fix_data_dir SRC DST"


class AudioSource(NamedTuple):
    """Where an utterance's audio is: a file and a span in seconds (``end`` None: to the end)."""

    path: str
    start: float = 0.0
    end: float | None = None


def c_sorted(ids: Iterable[str]) -> list[str]:
    """Sort ids by their UTF-8 bytes, as ``LC_ALL=C sort`` does."""
    return sorted(ids, key=str.encode)


def read_kaldi_table(
    path: str | Path, allow_empty: bool = False, require_sorted: bool = True
) -> dict[str, str]:
    """Read ``id value`` lines; ``allow_empty`` admits an id alone, as an empty hypothesis is.

    Raises:
        DataError: naming file, line and id, for BOM, CRLF, bytes that are not UTF-8, a blank line,
            an id without value, a duplicate or unsorted id, or a last line without its newline.
    """
    table: dict[str, str] = {}
    previous = ""
    for number, line in _lines(Path(path)):
        utt, _, value = re.sub(r"[ \t]+", " ", line, count=1).partition(" ")
        value = value.strip(" \t")
        where = f"{path}:{number}: utterance '{utt}'"
        if not line.strip():
            raise DataError(f"{path}:{number}: blank line, 'ID VALUE' expected; {FIX}")
        if not utt or len(utt.split()) != 1 or utt != utt.strip():
            raise DataError(f"{where}: an id without blanks expected at the line's start; {FIX}")
        if utt in table:
            raise DataError(f"{where}: duplicate id, one line per id expected; {FIX}")
        if not value.strip() and not allow_empty:
            raise DataError(f"{where}: no value after the id; add it, or {FIX}, which drops the id")
        if require_sorted and utt.encode() < previous.encode():
            raise DataError(f"{where}: comes after '{previous}'; sort with LC_ALL=C sort, or {FIX}")
        table[utt] = value
        previous = utt
    return table


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if not path.is_file():
        raise DataError(f"{path}: no such file, a table of 'ID VALUE' lines expected; create it")
    data = path.read_bytes()
    if data.startswith(BOM):
        raise DataError(f"{path}:1: starts with a byte-order mark, plain UTF-8 expected; {FIX}")
    *rows, rest = data.split(b"\n")
    for number, row in enumerate(rows + [rest] * bool(rest), start=1):
        utt = (row.split(maxsplit=1) or [b""])[0].decode("utf-8", "backslashreplace")
        where = f"{path}:{number}: utterance '{utt}'"
        if b"\r" in row:
            raise DataError(f"{where}: carriage return (CRLF), bare newlines expected; {FIX}")
        yield number, decode_line(row, where)
    if rest:
        raise DataError(f"{where}: last line lacks its newline, the file may be cut off; {FIX}")


def write_kaldi_table(path: str | Path, table: dict[str, str]) -> None:
    """Write ``id value`` lines sorted by id, whole or not at all; blanks around values go."""
    for utt, value in table.items():
        if len(utt.split()) != 1 or utt != utt.strip() or "\n" in value or "\r" in value:
            raise DataError(
                f"{path}: utterance {utt!r}: id with blanks or value with a line break {value!r}; "
                "one word and one line expected"
            )
    rows = ((utt, table[utt].strip(" \t")) for utt in c_sorted(table))
    atomic_write_text(path, "".join(f"{utt} {value}".rstrip(" ") + "\n" for utt, value in rows))


@dataclass(frozen=True)
class KaldiDir:
    """One data set: audio, transcript, speaker and optionally language of each utterance.

    ``wav`` maps an utterance, or with ``segments`` a recording, to an audio file; ``segments`` maps
    an utterance to ``recording start end`` in seconds (end -1: to the end of the recording).

    Raises:
        DataError: an inconsistent directory; the message names file, line, id, counts and remedy.
    """

    path: Path
    wav: dict[str, str]
    text: dict[str, str]
    utt2spk: dict[str, str]
    utt2lang: dict[str, str] | None = None
    segments: dict[str, str] | None = None

    def __post_init__(self) -> None:
        _check_ids(self)
        _check_speakers(self)
        for utt in self.utts:
            if "\0" in self.source(utt).path:
                raise DataError(
                    f"{self.path}/wav.scp: utterance '{utt}': {self.source(utt).path!r} has a zero byte, "
                    "which no path has; write the table again"
                )
            if self.source(utt).path.endswith("|"):
                raise DataError(
                    f"{self.path}/wav.scp: utterance '{utt}': '{self.source(utt).path}' is a "
                    "command; commands are never run: give the path of a file with its audio"
                )

    @classmethod
    def load(cls, path: str | Path, allow_empty_text: bool = False) -> KaldiDir:
        """Read and validate a directory; ``allow_empty_text`` is for sets yet to be filtered."""
        path = Path(path)
        optional = {
            name: read_kaldi_table(path / name) if (path / name).exists() else None
            for name in ("utt2lang", "segments", "spk2utt")
        }
        spk2utt = optional.pop("spk2utt")
        wav, utt2spk = (read_kaldi_table(path / name) for name in ("wav.scp", "utt2spk"))
        text = read_kaldi_table(path / "text", allow_empty=allow_empty_text)
        loaded = cls(path, wav, text, utt2spk, **optional)
        if spk2utt is not None and spk2utt != (right := loaded.spk2utt):
            speakers = c_sorted(spk2utt.keys() | right.keys())
            odd = next(spk for spk in speakers if spk2utt.get(spk) != right.get(spk))
            raise DataError(
                f"{path}/spk2utt: disagrees with utt2spk: speaker '{odd}' has '{spk2utt.get(odd)}', "
                f"'{right.get(odd)}' there; delete it, or {FIX}"
            )
        return loaded

    @property
    def utts(self) -> list[str]:
        """Utterance ids in C-locale order."""
        return c_sorted(self.utt2spk)

    @property
    def spk2utt(self) -> dict[str, str]:
        """Speaker -> its utterances, separated by one blank."""
        speakers: dict[str, list[str]] = {}
        for utt in self.utts:
            speakers.setdefault(self.utt2spk[utt], []).append(utt)
        return {spk: " ".join(utts) for spk, utts in speakers.items()}

    def languages(self) -> dict[str, str]:
        """Return each utterance's language; none is ever assumed.

        Raises:
            DataError: the directory has no ``utt2lang``.
        """
        if self.utt2lang is None:
            raise DataError(
                f"{self.path}/utt2lang: not found, but the prompt names each utterance's language; "
                "write lines 'utterance code', as in 'utt1 en', and format the set again (stage 3)"
            )
        return self.utt2lang

    def source(self, utt: str) -> AudioSource:
        """Return the file and span that hold an utterance."""
        if self.segments is None:
            return AudioSource(self.wav[utt])
        try:
            recording, start, end = self.segments[utt].split()
            span = AudioSource(self.wav[recording], float(start), float(end))
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{self.path}/segments: utterance '{utt}': '{self.segments[utt]}' is not "
                f"'RECORDING START END' with a recording of wav.scp ({len(self.wav)} there); fix it"
            ) from error
        if span.end == -1 and span.start >= 0:
            return span._replace(end=None)
        if not 0 <= span.start < span.end < float("inf"):
            raise DataError(
                f"{self.path}/segments: utterance '{utt}': span {start} to {end} s, "
                "0 <= start < end expected (or end -1 for the whole rest); correct the line"
            )
        return span

    def subset(self, ids: Iterable[str]) -> KaldiDir:
        """Return the directory with these utterances only, and only the recordings they need."""
        keep = c_sorted(set(ids))
        if unknown := [utt for utt in keep if utt not in self.utt2spk]:
            raise DataError(
                f"{self.path}: no utterance '{unknown[0]}' ({len(unknown)} ids unknown)"
            )

        def pick(table: dict[str, str] | None) -> dict[str, str] | None:
            return None if table is None else {utt: table[utt] for utt in keep}

        wav, segments = self.wav, pick(self.segments)
        recordings = c_sorted({e.split()[0] for e in segments.values()}) if segments else keep
        return replace(
            self, wav={r: wav[r] for r in recordings}, text=pick(self.text), segments=segments,
            utt2spk=pick(self.utt2spk), utt2lang=pick(self.utt2lang),
        )  # fmt: skip

    def save(self, path: str | Path) -> KaldiDir:
        """Write all tables and ``spk2utt`` below ``path``; return the directory that is there."""
        path = Path(path)
        (path / "wav.scp").unlink(missing_ok=True)
        for name in ("text", "utt2spk", "spk2utt", "utt2lang", "segments"):
            if (table := getattr(self, name)) is None:
                (path / name).unlink(missing_ok=True)
            else:
                write_kaldi_table(path / name, table)
        write_kaldi_table(path / "wav.scp", self.wav)
        return replace(self, path=path)


def _check_ids(data: KaldiDir) -> None:
    """All tables must speak of the same utterances, whose ids must do as file names."""
    key_file, key = ("wav.scp", data.wav) if data.segments is None else ("segments", data.segments)
    if not key:
        raise DataError(f"{data.path}/{key_file}: no utterance at all; prepare the set again")
    for name in ("text", "utt2spk", "utt2lang"):
        if (table := getattr(data, name)) is None:
            continue
        for has, full, lacks, short in ((key_file, key, name, table), (name, table, key_file, key)):
            if missing := full.keys() - short.keys():
                utt = c_sorted(missing)[0]
                raise DataError(
                    f"{data.path}/{has}:{c_sorted(full).index(utt) + 1}: utterance '{utt}' has no "
                    f"entry in {lacks} ({lacks} has {len(short)}, {has} has {len(full)}; "
                    f"{len(missing)} missing); {FIX}"
                )
    if bad := [utt for utt in key if "/" in utt or "\0" in utt]:
        raise DataError(
            f"{data.path}/{key_file}: utterance '{bad[0]}': an id becomes a file name, so it must "
            "not contain '/'; rename it in every table"
        )


def _check_speakers(data: KaldiDir) -> None:
    """Known speakers prefix their utterances and sort alike (Kaldi's rule)."""
    last = ""
    for utt in data.utts:
        spk = data.utt2spk[utt]
        if not utt.startswith(spk) or len(spk.split()) != 1 or spk.encode() < last.encode():
            raise DataError(
                f"{data.path}/utt2spk: utterance '{utt}' has speaker '{spk}' (after speaker "
                f"'{last}'); ids must begin with their speaker and sort as the speakers do: use "
                "ids like SPK-UTT with speakers of one length, or the utterance as its own speaker"
            )
        last = spk


class FixReport(NamedTuple):
    """What `fix_data_dir` did: entries per table before, utterances after, (id, reason) dropped."""

    entries: dict[str, int]
    kept: int
    dropped: list[tuple[str, str]]


def fix_data_dir(path: str | Path, output: str | Path) -> FixReport:
    """Write a sorted, consistent copy of a directory to ``output``; the source stays as it is.

    Strips BOM and CRLF, drops blank lines, ids without value or missing from a table, and repeated
    ids with one value.  What needs a decision (two values for an id, bytes that are not UTF-8,
    speakers that do not prefix ids) raises `DataError`.
    """
    path, output = Path(path), Path(output)
    check_other_dir(path, output)
    dropped: list[tuple[str, str]] = []
    tables: dict[str, dict[str, str] | None] = {"utt2lang": None, "segments": None}
    for name in ("wav.scp", "text", "utt2spk", "utt2lang", "segments"):
        if name in ("wav.scp", "text", "utt2spk") or (path / name).exists():
            tables[name] = _mended_table(path / name, dropped)
    entries = {name: len(table) for name, table in tables.items() if table is not None}
    wav, segments = tables.pop("wav.scp"), tables["segments"]
    per_utt = {"wav.scp": wav} if segments is None else {}
    per_utt |= {name: table for name, table in tables.items() if table is not None}
    for utt in c_sorted(set().union(*per_utt.values())):
        lacking = [name for name, table in per_utt.items() if utt not in table]
        if segments and utt in segments and segments[utt].split()[0] not in wav:
            lacking.append(f"wav.scp (recording {segments[utt].split()[0]})")
        if lacking:
            dropped.append((utt, "not in " + ", ".join(lacking)))
            for table in per_utt.values():
                table.pop(utt, None)
    if segments is not None:
        used = {entry.split()[0] for entry in segments.values()}
        dropped += [(rec, "recording of no utterance") for rec in c_sorted(wav.keys() - used)]
        wav = {rec: wav[rec] for rec in c_sorted(used)}
    fixed = KaldiDir(path, wav, **tables)
    fixed.save(output)
    return FixReport(entries, len(fixed.utts), dropped)


def _mended_table(path: Path, dropped: list[tuple[str, str]]) -> dict[str, str]:
    """Read a table line by line, leniently; append what is left out to ``dropped``."""
    if not path.is_file():
        raise DataError(f"{path}: no such file, and it cannot be made up; write it")
    table: dict[str, str] = {}
    data = path.read_bytes().removeprefix(BOM).replace(b"\r\n", b"\n")
    for number, row in enumerate(data.split(b"\n"), start=1):
        line = decode_line(row, f"{path}:{number}: not UTF-8").strip(" \t\r")
        if not line:
            continue
        if "\r" in line:
            raise DataError(
                f"{path}:{number}: a carriage return within the line ({line!r:.200}); is it two lines? "
                "correct it by hand"
            )
        utt, _, value = re.sub(r"[ \t]+", " ", line, count=1).partition(" ")
        if utt in table and table[utt] != value:
            raise DataError(
                f"{path}:{number}: utterance '{utt}' has two values, '{table[utt]}' and '{value}'; "
                "delete the wrong line by hand"
            )
        if utt in table or not value.strip():
            why = "repeated line" if utt in table else "no value"
            dropped.append((utt, f"{why} in {path.name}"))
        else:
            table[utt] = value
    return table


def check_other_dir(source: Path, output: Path) -> None:
    """Refuse an output directory that is the source directory."""
    if source.resolve() == output.resolve():
        raise DataError(f"{output}: output is the input directory; name another one")
