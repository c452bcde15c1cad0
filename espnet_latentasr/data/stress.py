"""The stress suite: knows which utterances of which sets are tried at a hard SNR.

At most ``num`` utterances a set, drawn by (seed, utterance), become ``<set>_snr<dB>`` directories
for stage 3 on.  ``stress_suite.tsv`` lists them with a hash of their transcripts; given back, it
repeats the draw elsewhere, or names what differs there.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from espnet_latentasr.data.journal import MapFunction
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.data.mixture import nested_sample
from espnet_latentasr.data.noise import mixed_snr_copy
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import read_csv

MANIFEST = "stress_suite.tsv"
COLUMNS = ("set", "utt", "text_sha256")
NUM, SEED = 500, 42  # the paper's size; the seed of its activation set


def named_dirs(words: Sequence[str]) -> dict[str, Path]:
    """Read ``NAME=DIR`` or ``DIR``, whose last part is then the name.

    Raises:
        DataError: nothing named, or one name twice.
    """
    dirs: dict[str, Path] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals:
            name, path = Path(word).resolve().name, word
        if name in dirs or "/" in name:
            raise DataError(f"'{word}': a set name of its own expected; write it as NAME=DIR")
        dirs[name] = Path(path)
    if not dirs:
        raise DataError("no set named; give Kaldi directories, as DIR or NAME=DIR")
    return dirs


def choose(sets: Mapping[str, KaldiDir], num: int, seed: int) -> dict[str, list[str]]:
    """Draw at most ``num`` utterances of each set; a smaller set is taken whole."""
    return {
        name: data.utts if len(data.utts) <= num else nested_sample(data.utts, num, seed)
        for name, data in sets.items()
    }


def write_manifest(path: Path, sets: Mapping[str, KaldiDir], chosen: Mapping[str, list[str]]) -> None:
    """Write ``set utt text_sha256`` rows, tab separated below a header."""
    rows = [COLUMNS]
    rows += [(name, utt, _hash(sets[name], utt)) for name, utts in chosen.items() for utt in utts]
    atomic_write_text(path, "".join("\t".join(row) + "\n" for row in rows))


def read_manifest(path: Path, sets: Mapping[str, KaldiDir]) -> dict[str, list[str]]:
    """Return the utterances that a manifest lists of each of ``sets``.

    Raises:
        DataError: not a manifest, a set that it does not list or that is not given, or an utterance
            that is not there or has another transcript.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such manifest; one is written as {MANIFEST}")
    chosen: dict[str, list[str]] = {name: [] for name in sets}
    style = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    for place, row in read_csv(path, COLUMNS, f"a manifest as {MANIFEST}", **style):
        name, utt = row["set"], row["utt"]
        where = f"{place}: utterance '{utt}' of set '{name}'"
        if name not in sets:
            raise DataError(f"{where}: no such set is given ({', '.join(sets)}); name it too")
        if utt not in sets[name].text:
            raise DataError(f"{where}: not in {sets[name].path}; is it the same release?")
        if row["text_sha256"] != _hash(sets[name], utt):
            text = sets[name].text[utt]
            raise DataError(f"{where}: another transcript ('{text}') in {sets[name].path}")
        if utt in chosen[name]:
            raise DataError(f"{where}: is there twice; every utterance once expected")
        chosen[name].append(utt)
    if missing := [name for name, utts in chosen.items() if not utts]:
        raise DataError(f"{path}: lists nothing of set '{missing[0]}'; leave the set out")
    return chosen


def _hash(data: KaldiDir, utt: str) -> str:
    return hashlib.sha256(data.text[utt].encode()).hexdigest()[:16]


def copy_name(name: str, snr_db: float | None) -> str:
    """Name a copy as stage 2 does: ``ami_snr0``; ``ami_clean`` without noise."""
    return f"{name}_clean" if snr_db is None else f"{name}_snr{snr_db:g}"


def stress_suite(
    dirs: Mapping[str, Path],
    output: Path,
    snrs: Sequence[float | None] = (0.0,),
    *,
    num: int = NUM,
    selection_seed: int = SEED,
    seed: int = 0,
    noise_from: Path | None = None,
    manifest: Path | None = None,
    map_fn: MapFunction = map,
) -> dict[str, int]:
    """Write every set's copy at every SNR below ``output``, and the manifest; a rerun continues.

    Args:
        seed: of the noise, as stage 2's.
        manifest: take the utterances that it lists instead of drawing ``num`` by ``selection_seed``.

    Returns:
        Utterances of each written directory, by its name.

    Raises:
        DataError: invalid or unusable sets, or a manifest that does not fit them.
    """
    sets = {name: KaldiDir.load(path) for name, path in dirs.items()}
    chosen = read_manifest(manifest, sets) if manifest else choose(sets, num, selection_seed)
    write_manifest(output / MANIFEST, sets, chosen)
    written = {}
    for name, path in dirs.items():
        for snr_db in snrs:
            target = output / copy_name(name, snr_db)
            copied = mixed_snr_copy(
                path, target, [snr_db], seed, map_fn, noise_from=noise_from, ids=chosen[name]
            )
            written[target.name] = len(copied)
    return written
