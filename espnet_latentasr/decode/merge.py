"""Joining the shares of decoding jobs; knows files and ids, no model.

Layout below an experiment is ESPnet's:
``<tag>/<set>/logdir/output.<job>/`` holds a job's tables, ``<tag>/<set>/`` the joined ones.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from espnet_latentasr.data.kaldi_dir import c_sorted, read_kaldi_table, write_kaldi_table
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_path, atomic_write_text

TABLES = ("text", "token", "token_int", "score")
RECORDS = ("latent.jsonl", "nbest.jsonl")
MARKER = "done.json"


def job_dir(output: Path, tag: str, test_set: str, job: int) -> Path:
    """Folder of one job's share."""
    return output / tag / test_set / "logdir" / f"output.{job}"


def is_finished(marker: Path, identity: dict) -> bool:
    """Whether a job's marker is there, whole, and of this very work; a damaged one is none."""
    try:
        return json.loads(marker.read_text(encoding="utf-8")) == identity
    except (FileNotFoundError, ValueError):
        return False


def merge_jobs(output: Path, tag: str, data_dir: Path, num_jobs: int) -> int:
    """Join the shares of one set; every utterance of the set must be there exactly once.

    Raises:
        DataError: a job is missing or the ids are not those of ``data_dir``.
    """
    folder = output / tag / data_dir.name
    shares = [job_dir(output, tag, data_dir.name, job) for job in range(1, num_jobs + 1)]
    for share in shares:
        if not (share / MARKER).is_file():
            raise DataError(f"{share}: not finished; see the logs below {output}/logdir, rerun stage 12")
    expected = read_kaldi_table(data_dir / "text")
    for name in TABLES:
        joined: dict[str, str] = {}
        for share in shares:
            joined |= read_kaldi_table(share / "1best_recog" / name, allow_empty=True)
        if joined.keys() != expected.keys():
            odd = c_sorted(joined.keys() ^ expected.keys())
            raise DataError(
                f"{folder}/{name}: {len(joined)} utterances, {data_dir} has {len(expected)}; first "
                f"differing ids: {odd[:3]}; was it decoded with another --inference_nj? rerun stage 12"
            )
        write_kaldi_table(folder / name, joined)
        write_kaldi_table(folder / "1best_recog" / name, joined)
    for name in RECORDS:
        _merge_records([share / name for share in shares], folder / name, len(expected))
    marker = (shares[0] / MARKER).read_text(encoding="utf-8")
    atomic_write_text(folder / "identity.json", marker)
    return len(expected)


def _merge_records(shares: Sequence[Path], output: Path, expected: int) -> None:
    """Join sorted files of one JSON record a line; one line of each share is in memory."""
    with ExitStack() as stack:
        files = [stack.enter_context(open(path, encoding="utf-8")) for path in shares]
        temporary = stack.enter_context(atomic_path(output))
        out = stack.enter_context(open(temporary, "w", encoding="utf-8", newline="\n"))
        count = 0
        for line in heapq.merge(*files, key=lambda line: json.loads(line)["utt_id"].encode()):
            out.write(line)
            count += 1
        if count != expected:
            raise DataError(
                f"{output}: {count} records in the shares, the set has {expected} utterances; delete "
                f"{output.parent}/logdir/output.* and rerun stage 12"
            )
