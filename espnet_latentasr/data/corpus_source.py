"""Where a set's rows come from: knows layouts of a copy, Parquet files and the hub; writes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from espnet_latentasr.data import fetch, hub, layouts
from espnet_latentasr.data.format import file_identity
from espnet_latentasr.data.layouts import Layout, Row
from espnet_latentasr.data.published import SPLITS, SetName, get_published, published_names
from espnet_latentasr.errors import DataError


class Source:
    """Where a set's rows come from; without ``src`` the hub, at a commit.

    ``missing`` names files that others announce, and published splits of which nothing is there.

    Raises:
        DataError: nothing of the set is in ``src``.  ConfigError: no commit of the hub is known.
    """

    def __init__(
        self, where: SetName, src: Path | None, revision: str | None, streaming: bool, downloads: Path
    ) -> None:
        self.where, self.streaming, self.downloads = where, streaming, downloads
        self.missing: list[str] = []
        self.revision = revision  # what is said of a local copy
        if src is None:
            self.revision = hub.check_revision(where.corpus.name, revision or where.corpus.hub.revision)
            self.name = f"hub: {where.corpus.hub.id}"
            self.files: list[tuple[Layout | None, str, list[Path]]] = []
            return
        self.src = src.resolve()
        self.name = str(self.src)
        self.files = self._find()

    def _find(self) -> list[tuple[Layout | None, str, list[Path]]]:
        """Return (layout or None for Parquet, published split, its files) of each that is there."""
        part, split, corpus = self.where.part, self.where.split, self.where.corpus
        kinds = [(one, one.splits, one.files) for one in corpus.local]
        tried = []
        for layout, splits, patterns in [*kinds, (None, corpus.hub.splits, hub.PARQUET)]:
            config = corpus.hub.config_of(part, split) if layout is None else part
            found = []
            for name in published_names(splits, part, split):
                names = {"part": config, "split": name}
                tried += [pattern.format_map(names) for pattern in patterns]
                if paths := layouts.find_files(self.src, patterns, names):
                    found.append((layout, name, paths))
                    self.missing += hub.missing_shards(paths)
                else:
                    self.missing.append(f"any of {split} called {name}")
            if found:
                return found
            self.missing = []
        raise DataError(
            f"{self.src}: no {self.where} there: none of {', '.join(dict.fromkeys(tried)) or 'its files'}"
            f"; give the folder that holds these with --src ({corpus.page} says how to get it)"
        )

    def identity(self) -> list[Any]:
        """Return what changes when the rows do: files with size and time, or the commit."""
        if not self.files:
            return [self.name, self.revision, asdict(self.where.corpus.hub)]
        return [
            [asdict(layout) if layout else self.where.corpus.hub.columns, name,
             [[str(path.relative_to(self.src)), file_identity(str(path))] for path in paths]]
            for layout, name, paths in self.files
        ]  # fmt: skip

    def rows(self) -> Iterator[Row]:
        """Yield the utterances in published order."""
        if not self.files:
            yield from hub.stream(self.where, self.revision, self.streaming)
        for layout, name, paths in self.files:
            if layout is None:
                yield from hub.read_parquet(paths, self.where.corpus.hub.columns)
                continue
            names = {"part": self.where.part, "split": name}
            clips = layouts.Clips(layout, self.src, names, self._unpack)
            yield from layouts.read_layout(layout, paths, clips)

    def _unpack(self, archives: list[Path]) -> Path:
        # Archives that were replaced are other ones: what was unpacked of the former is left alone.
        these = json.dumps([(archive.name, archive.stat().st_size) for archive in archives])
        digest = hashlib.sha256(these.encode()).hexdigest()[:8]
        folder = self.downloads / str(self.where) / digest
        for archive in archives:
            fetch.unpack(archive, folder / archive.name.split(".tar")[0])
        return folder


def parts_there(name: str, src: Path) -> list[str]:
    """Return the parts of a corpus of which a local copy has something; of open corpora all folders."""
    corpus = get_published(name)
    found = list(corpus.parts)
    if corpus.open:
        patterns = [one for layout in corpus.local for one in layout.files] + list(hub.PARQUET)
        for pattern in (one for one in patterns if "{part}" in one.split("/")):
            level, names = pattern.split("/").index("{part}"), {"part": "*", "split": "*"}
            folders = {path.relative_to(src).parts[level] for path in src.glob(pattern.format_map(names))}
            found += sorted(folders - set(found))
    return [part for part in found if any(_is_there(SetName(corpus, part, s), src) for s in SPLITS)]


def _is_there(where: SetName, src: Path) -> bool:
    try:
        return bool(Source(where, src, None, True, Path()).files)
    except DataError:
        return False
