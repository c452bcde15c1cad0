"""Published layouts of corpora: knows files and columns, yields utterances; decodes no audio.

Every reader gives `Row` after `Row` in published order and holds one line, or one recording of a JSON
file, at a time.  Audio is only named; what the hub embeds in its rows is in `data.hub`.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from espnet_latentasr.data.json_lists import read_array
from espnet_latentasr.data.published import Layout
from espnet_latentasr.errors import DataError
from espnet_latentasr.reading import read_lines

NO_SPEAKER = {"", "none", "nan", "n/a", "unknown"}
IGNORED = "ignore_time_segment_in_scoring"


@dataclass(frozen=True, slots=True)
class Row:
    """One published utterance.

    ``audio`` names its file, within the file ``span`` (seconds) if that is given; or ``data`` is the
    encoded file itself, and ``audio`` its name.  ``speaker`` and ``language`` are "" where none is
    published; ``where`` says in messages where the row is.
    """

    id: str
    text: str
    audio: str
    where: str
    speaker: str = ""
    language: str = ""
    span: tuple[float, float] | None = None
    data: bytes | None = None


class Clips:
    """Where the audio files of a layout are: as its templates say, or in archives.

    Args:
        unpack: archives -> folder in which they are unpacked.
    """

    def __init__(
        self, layout: Layout, root: Path, names: Mapping[str, str], unpack: Callable[[list[Path]], Path]
    ) -> None:
        self.layout, self.root, self.names, self.unpack = layout, root, names, unpack
        self.template: str | None = None
        self.index: dict[str, str] | None = None

    def path(self, name: str, utt: str, table: Path) -> str:
        """Return the file of an utterance whose audio is called ``name``; it need not exist."""
        if self.template is None and self.index is None:
            self._choose(name, utt, table)
        if self.index is None:
            return self._fill(self.template, name, utt, table)
        # Names in a table may lack the suffix that a template adds.
        files = [name, *(self._fill(template, name, utt, table) for template in self.layout.audio)]
        found = (self.index.get(os.path.basename(file)) for file in files)
        return next(filter(None, found), str(self.root / name))

    def _choose(self, name: str, utt: str, table: Path) -> None:
        """Decide by the first row: the template whose folder has such files, archives, or the first."""
        for template in self.layout.audio:
            path = Path(self._fill(template, name, utt, table))
            if name and _has_files(path.parent, path.suffix):
                self.template = template
                return
        archives = [p for pattern in self.layout.archives
                    for p in sorted(self.root.glob(pattern.format_map(self.names)))]  # fmt: skip
        if archives:
            self.index = index_files(self.unpack(archives))
        else:
            self.template = self.layout.audio[0]

    def _fill(self, template: str, name: str, utt: str, table: Path) -> str:
        a, b, *_ = [*re.split("[-_]", utt), "", ""]
        path = template.format(name=name, a=a, b=b, dir=table.parent, **self.names)
        return os.path.join(self.root, path)


def _has_files(folder: Path, suffix: str) -> bool:
    if not folder.is_dir():
        return False
    with os.scandir(folder) as entries:
        return any(entry.name.endswith(suffix) for entry in entries)


def index_files(folder: Path) -> dict[str, str]:
    """Return the files below a folder by their names.

    Raises:
        DataError: two files of one name, so that a name says too little.
    """
    index: dict[str, str] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.name in index:
            raise DataError(f"{path}: the name is also that of {index[path.name]}; unpack them apart")
        index[path.name] = str(path)
    return index


def find_files(root: Path, patterns: Iterable[str], names: Mapping[str, str]) -> list[Path]:
    """Return, sorted, the files of the first pattern that has any."""
    for pattern in patterns:
        # Not Path.glob, which asks for every folder of a pattern: a corpus has hundreds of sets.
        if found := sorted(glob(pattern.format_map(names), root_dir=root)):
            return [root / path for path in found]
    return []


def read_layout(layout: Layout, tables: list[Path], clips: Clips) -> Iterator[Row]:
    """Yield the utterances of the files of a layout; `READERS` has its readers.

    Raises:
        DataError: a file that is not what the layout says, naming the line.
    """
    for table in tables:
        try:
            yield from READERS[layout.reader](layout, table, clips)
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{table}: cannot be read ({error}); get the file again") from error


def read_table(layout: Layout, table: Path, clips: Clips) -> Iterator[Row]:
    """Yield the rows of a CSV or TSV file, by its header or ``layout.names``."""
    tab = table.suffix == ".tsv"
    # Sentences hold quotes that quote nothing in TSV files.
    style = dict(delimiter="\t", quoting=csv.QUOTE_NONE) if tab else {}
    csv.field_size_limit(1 << 24)
    with open(table, encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, **style)
        names = list(layout.names) or next(lines, [])
        for fields in lines:
            where = f"{table}:{lines.line_num}"
            if not fields:
                continue
            if len(fields) != len(names):
                raise DataError(
                    f"{where}: {len(fields)} fields, {len(names)} expected ({', '.join(names)}); get the "
                    "file again, it may be cut off"
                )
            row = dict(zip(names, fields, strict=True))
            found = pick_columns(row, layout.columns, where)
            utt = Path(found["id"]).stem if found["id"] == found["audio"] else found["id"]
            audio = clips.path(found["audio"], utt, table)
            yield Row(utt, found["text"], audio, where, found["speaker"], found["language"])


def pick_columns(row: Mapping[str, Any], columns: Mapping[str, str], where: str) -> dict[str, str]:
    """Pick what a row says by the names of our columns; "" for a column that is not published."""
    if missing := [name for name in columns.values() if name not in row]:
        raise DataError(f"{where}: no column '{missing[0]}'; there are: {', '.join(map(str, row))}")
    found = {ours: row[columns[ours]] if ours in columns else "" for ours in ("id", "text", "audio")}
    for ours in ("speaker", "language"):
        value = row[columns[ours]] if ours in columns else None
        found[ours] = "" if value is None or str(value).lower() in NO_SPEAKER else str(value)
    return found


def read_transcripts(layout: Layout, table: Path, clips: Clips) -> Iterator[Row]:
    """Yield ``id text`` lines (LibriSpeech, MLS), whose ids begin with the speaker."""
    for number, line in read_lines(table, "a transcript file"):
        utt, _, text = line.replace("\t", " ", 1).partition(" ")
        if not utt:
            raise DataError(f"{table}:{number}: 'ID TEXT' expected, not '{line}'")
        where = f"{table}:{number}"
        yield Row(utt, text, clips.path(utt, utt, table), where, re.split("[-_]", utt)[0])


def read_stm(layout: Layout, table: Path, clips: Clips) -> Iterator[Row]:
    """Yield the segments of an STM file; those that are not to be scored are left out."""
    for number, line in read_lines(table, "a transcript file"):
        where = f"{table}:{number}"
        if not line.strip() or line.startswith(";;"):
            continue
        fields = line.split(maxsplit=5)
        if len(fields) < 5:
            raise DataError(f"{where}: 'FILE CHANNEL SPEAKER BEGIN END [LABEL] TEXT' expected: '{line}'")
        name, _, speaker, begin, end = fields[:5]
        text = re.sub(r"^<[^>\s]+>\s*", "", fields[5]) if len(fields) == 6 else ""
        if IGNORED in (speaker, text.strip()) or speaker == "inter_segment_gap":
            continue
        try:
            span = float(begin), float(end)
        except ValueError as error:
            raise DataError(f"{where}: times in seconds expected, not '{begin}' and '{end}'") from error
        audio = clips.path(name, name, table)
        yield Row(f"{name}_{begin}_{end}", text, audio, where, speaker, span=span)


def read_segments(layout: Layout, table: Path, clips: Clips) -> Iterator[Row]:
    """Yield the segments of ``GigaSpeech.json`` that are in the subset called ``split``."""
    try:
        for audio in read_array(table, "audios"):
            path, speaker = clips.path(audio["path"], audio["aid"], table), audio["speaker"]
            speaker = "" if speaker.lower() in NO_SPEAKER else speaker
            for one in audio["segments"]:
                if clips.names["split"] in one["subsets"]:
                    where, span = f"{table}: {one['sid']}", (one["begin_time"], one["end_time"])
                    yield Row(one["sid"], one["text_tn"], path, where, speaker, span=span)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise DataError(f"{table}: not what GigaSpeech publishes ({error!r}); get it again") from error


READERS: dict[str, Callable[[Layout, Path, Clips], Iterator[Row]]] = {
    "table": read_table,
    "transcripts": read_transcripts,
    "stm": read_stm,
    "segments": read_segments,
}
