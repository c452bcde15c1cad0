"""The folder of one scored test set: knows which files it holds; computes nothing.

``score.json`` is written last, so a folder without it is an unfinished one.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import read_json
from espnet_latentasr.text.error_rate import ErrorRate
from espnet_latentasr.text.sclite import alignment_text, summary_text, trn_texts
from espnet_latentasr.text.top_errors import top_errors_csv

CSV_HEADER = ("utt", "spk", "ref_len", "C", "S", "D", "I", "ref", "hyp")


def score_dir_name(unit: str) -> str:
    """Return ESPnet's folder name of a unit: ``score_wer``, ``score_cer``, ``score_mer``."""
    return f"score_{unit.removesuffix('_nospace')}"


def write_score_dir(
    directory: str | Path, result: ErrorRate, utt2spk: Mapping[str, str], **extra: str
) -> Path:
    """Write ``{ref,hyp}.trn``, ``hyp.trn.pra``, ``{top_errors,per_utt}.csv``, ``result.txt`` and
    ``score.json``; return the folder.

    ``extra`` entries (the language, the files scored) are added to ``score.json``.
    """
    directory = Path(directory)
    (directory / "score.json").unlink(missing_ok=True)
    ref_trn, hyp_trn = trn_texts(result, utt2spk)
    atomic_write_text(directory / "ref.trn", ref_trn)
    atomic_write_text(directory / "hyp.trn", hyp_trn)
    alignments = alignment_text(result, utt2spk)
    atomic_write_text(directory / "hyp.trn.pra", alignments)
    atomic_write_text(directory / "result.txt", summary_text(result, utt2spk) + alignments)
    atomic_write_text(directory / "top_errors.csv", top_errors_csv(result))
    atomic_write_text(directory / "per_utt.csv", _per_utt_csv(result, utt2spk))
    text = json.dumps(result.summary() | extra, ensure_ascii=False, indent=2)
    atomic_write_text(directory / "score.json", text + "\n")
    return directory


def read_score_json(path: str | Path) -> dict:
    """Read a ``score.json`` back, as `ErrorRate.summary` made it.

    Raises:
        DataError: not such a file.
    """
    summary = read_json(path, "a score.json of espnet_latentasr.bin.score (score again)")
    try:
        summary["unit"], summary["counts"]["sentences"], summary["rates"]["Err"]
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{path}: not the score.json of espnet_latentasr.bin.score ({error!r}); score again"
        ) from error
    return summary


def _per_utt_csv(result: ErrorRate, utt2spk: Mapping[str, str]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for utt, alignment in result.utterances.items():
        c = alignment.counts
        counts = (c.reference_length, c.correct, c.substitutions, c.deletions, c.insertions)
        texts = (" ".join(alignment.reference), " ".join(alignment.hypothesis))
        writer.writerow((utt, utt2spk[utt], *counts, *texts))
    return buffer.getvalue()
