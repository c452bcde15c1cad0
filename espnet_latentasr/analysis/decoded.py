"""One scored decoding of one set as arrays: counts, texts, what the loop did and its seconds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from espnet_latentasr.analysis.jsonl import read_jsonl
from espnet_latentasr.config import PromptConfig, build, load_yaml
from espnet_latentasr.data.kaldi_dir import c_sorted
from espnet_latentasr.errors import DataError
from espnet_latentasr.reading import parse_number, read_csv, read_json
from espnet_latentasr.text.score_dir import read_score_json, score_dir_name

STAGES = ("encode", "prefill", "loop", "decode")
COUNTS = ("ref_len", "S", "D", "I")
MOST = 1 << 40  # a count or a number of steps beyond this is none
UPDATES = {key: f"update_{key}" for key in ("norms", "cosines", "jumps")}
STOPPED = ("entry", "step", "budget")
IDENTITY = "identity.json"  # what stage 12 writes beside the tables it joined


@dataclass(frozen=True)
class Decoded:
    """U utterances in C-locale order.

    references, hypotheses: normalised and cut into the unit's tokens, separated by blanks.  errors,
    lengths, steps: (U,) int64.  stopped: (U,) of `STOPPED`.  values and updates: per utterance, ragged:
    v_0.. and the update norms, cosines and jumps of the steps made.  seconds: (U, 4) by `STAGES`.
    recorded: False for texts from elsewhere (a rescored list, another toolkit), of which only counts
    and texts are known: steps are then 0 and seconds NaN.  prompt: what the recogniser read before the
    transcript, and system: recogniser, weights and decoding rule apart from it; None where stage 12 did
    not write the set.  languages: what the recogniser wrote for the language itself, where it did.
    """

    folder: Path
    summary: dict
    utts: tuple[str, ...]
    references: tuple[str, ...]
    hypotheses: tuple[str, ...]
    errors: np.ndarray
    lengths: np.ndarray
    steps: np.ndarray
    stopped: np.ndarray
    capped: np.ndarray
    audio_seconds: np.ndarray
    seconds: np.ndarray
    values: tuple[list[float], ...]
    updates: tuple[dict[str, list[float]], ...]
    recorded: bool = True
    prompt: PromptConfig | None = None
    system: tuple[str, ...] | None = None
    languages: tuple[str, ...] | None = None

    @property
    def thinks(self) -> bool:
        """Whether a value head looked at any utterance."""
        return any(self.values)

    @property
    def rate(self) -> float:
        """Pooled error rate as a fraction; NaN without reference tokens."""
        return error_rate(self.errors, self.lengths)


def error_rate(errors: np.ndarray, lengths: np.ndarray) -> float:
    """Pooled errors over pooled reference tokens; NaN where there is nothing to divide by."""
    total = int(np.sum(lengths))
    return int(np.sum(errors)) / total if total else float("nan")


def read_decoded(folder: str | Path, unit: str = "wer") -> Decoded:
    """Read ``score_<unit>/{score.json,per_utt.csv}`` and ``latent.jsonl`` of one decoded set.

    Raises:
        DataError: files that do not cover the same utterances, or a record that lacks a field; stage 12
            wrote the set but its ``latent.jsonl`` is gone.
    """
    folder = Path(folder)
    scores = folder / score_dir_name(unit)
    summary = read_score_json(scores / "score.json")
    counts = _counts(scores / "per_utt.csv")
    utts = c_sorted(counts)
    scored = [counts[utt] for utt in utts]
    recorded = (folder / "latent.jsonl").is_file() or (folder / IDENTITY).is_file()
    read = _records(folder, utts) if recorded else [UNRECORDED] * len(utts)

    def column(index: int, dtype: type) -> np.ndarray:
        return np.array([row[index] for row in read], dtype=dtype)

    lines = tuple(row[7] for row in read)
    identity = read_identity(folder)
    return Decoded(
        folder,
        summary,
        tuple(utts),
        tuple(row["ref"] for row in scored),
        tuple(row["hyp"] for row in scored),
        np.array([row["S"] + row["D"] + row["I"] for row in scored], dtype=np.int64),
        np.array([row["ref_len"] for row in scored], dtype=np.int64),
        column(0, np.int64),
        column(1, np.str_),
        column(2, np.bool_),
        column(3, np.float64),
        column(4, np.float64).reshape(-1, len(STAGES)),
        tuple(row[5] for row in read),
        tuple(row[6] for row in read),
        recorded,
        None if identity is None else identity[0],
        None if identity is None else identity[1],
        None if None in lines or not lines else lines,
    )


def _counts(path: Path) -> dict[str, dict]:
    """Rows of ``per_utt.csv`` by utterance, counts as numbers.

    Raises:
        DataError: a column that is not there, a count that is none, an utterance twice.
    """
    found: dict[str, dict] = {}
    columns = ("utt", *COUNTS, "ref", "hyp")
    for where, row in read_csv(path, columns, "a table of bin.score (score again, stage 13)"):
        counts = {key: parse_number(where, row, key, int) for key in COUNTS}
        if not 0 <= min(counts.values()) <= max(counts.values()) <= MOST:
            raise DataError(f"{where}: counts {counts}, 0 to {MOST} expected; score again (stage 13)")
        if row["utt"] in found:
            raise DataError(f"{where}: utterance '{row['utt']}' is there twice; score again (stage 13)")
        found[row["utt"]] = row | counts
    return found


UNRECORDED = (0, "", False, float("nan"), [float("nan")] * len(STAGES), [], {}, None)


def _records(folder: Path, utts: list[str]) -> list[tuple]:
    """Rows of ``latent.jsonl`` in the order of ``utts``, which must be its utterances."""
    records = {row["utt_id"]: (where, row) for where, row in read_jsonl(folder / "latent.jsonl")}
    if odd := c_sorted(set(utts) ^ records.keys()):
        raise DataError(
            f"{folder}: latent.jsonl has {len(records)} utterances, per_utt.csv {len(utts)}; first "
            f"differing id '{odd[0]}'; score this set again (stage 13)"
        )
    return [_record(*records[utt]) for utt in utts]


def _record(where: str, row: dict) -> tuple:
    """Fields of one ``latent.jsonl`` row, in the order `read_decoded` takes them."""
    try:
        if row["stopped"] not in STOPPED:
            raise ValueError(f"stopped: {row['stopped']!r}, one of {', '.join(STOPPED)} expected")
        steps = parse_number(where, row, "steps", int)
        if not 0 <= steps <= MOST or not isinstance(row["capped"], bool):
            raise ValueError(f"steps {steps}, capped {row['capped']!r:.50}: a count and a flag expected")
        lists = {key: row[key] for key in ("values", *UPDATES.values())}
        for key, numbers in lists.items():
            if not isinstance(numbers, list) or any(type(n) not in (int, float) for n in numbers):
                raise ValueError(f"{key}: {numbers!r:.200}, a list of numbers expected")
        updates = {name: lists[key] for name, key in UPDATES.items()}
        seconds = [parse_number(where, row["seconds"], stage, finite=False) for stage in STAGES]
        audio = parse_number(where, row, "audio_seconds", finite=False)
        if not isinstance(language := row.get("language"), str | None):
            raise ValueError(f"language: {language!r:.200}, a text expected")
        return steps, row["stopped"], row["capped"], audio, seconds, lists["values"], updates, language
    except DataError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{where}: {error}; decode this set again (stage 12)") from error


def read_identity(folder: Path) -> tuple[PromptConfig, tuple[str, ...]] | None:
    """Prompt and system of a set that stage 12 wrote, else None.

    The prompt is the decoding's own, else that of the experiment's training, else the official one.
    """
    path = folder / IDENTITY
    if not path.is_file():
        return None
    try:
        found = read_json(path, "an object")
    except DataError as error:
        raise DataError(f"{path}: damaged ({error}); decode this set again (stage 12)") from None
    own = found.get("prompt")
    system = tuple(str(found.get(key)) for key in ("backbone", "model", "decode"))
    if not isinstance(own, dict | None):
        raise DataError(f"{path}: prompt {own!r:.200}, an object expected; decode this set again")
    trained = folder.absolute().parents[1] / "config.yaml"
    if own is None and trained.is_file():
        own = _prompt_of_training(trained, trained.stat().st_mtime_ns)
    return build(PromptConfig, own or {}, f"{folder}: prompt"), system


@cache
def _prompt_of_training(path: Path, changed: int) -> dict | None:
    return load_yaml(path).get("prompt_conf")


def other_prompt(baseline: Decoded, system: Decoded) -> bool:
    """Whether two decodings are known to have read different prompts."""
    return None not in (baseline.prompt, system.prompt) and baseline.prompt != system.prompt


def check_same_utterances(baseline: Decoded, system: Decoded) -> None:
    """Refuse a comparison of two decodings of different utterances or references."""
    if baseline.utts != system.utts or not np.array_equal(baseline.lengths, system.lengths):
        raise DataError(
            f"{baseline.folder} ({len(baseline.utts)} utterances) and {system.folder} "
            f"({len(system.utts)}): different utterances or references; decode and score both again"
        )
    names = [
        f"'{d.summary['normalizer']}' ({d.summary.get('normalizer_version')})" for d in (baseline, system)
    ]
    if names[0] != names[1]:
        raise DataError(
            f"{baseline.folder} was scored with normaliser {names[0]}, {system.folder} with {names[1]}; "
            "score both alike (stage 13)"
        )
