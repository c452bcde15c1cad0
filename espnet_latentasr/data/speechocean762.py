"""speechocean762 as Kaldi directories: knows its layout, its split and what may not be shared.

    train       the published training speakers without those of dev
    dev         speakers drawn from the published training set: checkpoint and threshold choice
    test        the published test set without the sentences that somebody of train or dev reads
    test_seen   those utterances of the published test set, so that it can still be scored whole

5,000 utterances of 250 speakers (Mandarin as first language, half of them children) who read short
English sentences; published on OpenSLR as ``train/`` and ``test/`` with Kaldi tables, and
``WAVE/SPEAKERxxxx/*.WAV``.  A copy with a ``dev/`` of its own keeps that one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from espnet_latentasr.data import fetch, kaldi_source
from espnet_latentasr.data.audio import AudioProblem
from espnet_latentasr.data.format import MapFunction, file_identity
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table, write_kaldi_table
from espnet_latentasr.data.split import split_corpus, without
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.text.normalize import get_normalizer

NAME = "speechocean762"
PREFIX = "so"  # of speakers and utterances, whose published ids are bare numbers
SETS = ("train", "dev", "test", "test_seen")
NORMALIZER = "whisper_en"  # two sentences that it makes equal count as one
SPEAKER_TABLES = ("spk2age", "spk2gender")
ADULT = 18
CASES = ("sentence", "lower", "published")


def written(text: str, case: str) -> str:
    """Write a transcript, published in capitals, in another case; the scored words stay.

    ``sentence``, as recognisers with capitals and punctuation write: in published capitals or in
    lower case most of what training could gain would be the style.

    >>> written("THEN I'M A CAT", "sentence")
    "Then I'm a cat."
    """
    if case == "published":
        return text
    text = text.lower()
    return text if case == "lower" else re.sub(r"\bi\b", "I", text[:1].upper() + text[1:]) + "."


def find_root(src: Path) -> Path:
    """Return the folder with ``train/`` and ``test/``: ``src`` or the one it was unpacked to."""
    for root in (src, src / NAME):
        if (root / "train" / "wav.scp").is_file():
            return root.resolve()
    raise DataError(
        f"{src}: no train/wav.scp; the folder with train/, test/ (wav.scp, text, utt2spk each) and "
        "their audio expected, as the archive of OpenSLR 101 unpacks, or that archive"
    )


def prepare_speechocean762(
    out: Path,
    src: Path | None = None,
    *,
    downloads: Path = Path("downloads"),
    dev_speakers: int = 25,
    seed: int = 1,
    case: str = "sentence",
    map_fn: MapFunction = map,
) -> dict[str, Any]:
    """Write the sets (`SETS`) below ``out``, ``speechocean762.json`` (what was done) and ``.md``.

    An unusable recording of train or dev is left out and named; a test set never loses one, and a
    missing file is a copy that is not whole.  What is finished is left as it is.

    Args:
        src: a local copy, or its archive; None downloads it to ``downloads``.
        case: of the transcripts, see `written`.

    Returns:
        What the JSON file holds.

    Raises:
        DataError: a copy that is not whole or contradicts itself, or sets of another origin in ``out``.
    """
    if case not in CASES:
        raise DataError(f"case '{case}': one of {', '.join(CASES)} expected")
    about, marker, archive, sha256 = fetch.published(NAME), out / f"{NAME}.json", None, None
    if src is None:
        archive = fetch.download(about.urls, downloads / f"{NAME}.tar.gz", about.sha256)
    elif src.is_file():
        archive = src
    if archive is not None:
        sha256 = fetch.file_sha256(archive)
        src = fetch.unpack(archive, downloads / f"{NAME}-{sha256[:12]}")
    root = find_root(src)
    names = ["train", "test"] + ["dev"] * (root / "dev" / "wav.scp").exists()
    parts = {n: kaldi_source.read_source(root / n, about.language, PREFIX) for n in names}
    normalizer = get_normalizer(NORMALIZER)
    report: dict[str, Any] = {
        "corpus": NAME, "page": about.page, "source": str(root),
        "archive_sha256": sha256,
        "licence": about.licence, "citation": about.citation,
        "dev": "that of the copy" if "dev" in parts else f"{dev_speakers} speakers, seed {seed}",
        "case": case,
        "same_sentence": f"{normalizer.name} ({normalizer.version})",
        "published": {name: len(part.utts) for name, part in parts.items()},
    }  # fmt: skip
    plan = [report, [[p.wav, p.text, p.utt2spk, p.segments] for p in parts.values()]]
    plan.append([file_identity(path) for p in parts.values() for path in p.wav.values()])
    report["plan_sha256"] = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    if marker.exists():
        old = json.loads(marker.read_text(encoding="utf-8"))
        if old["plan_sha256"] == report["plan_sha256"] and all(
            (out / name / "wav.scp").exists() for name in old["sets"]
        ):
            logging.info("%s: complete, left as it is", marker)
            return old
    elif there := [name for name in SETS if (out / name).exists()]:
        raise DataError(
            f"{out / there[0]}: there already, and not made from {NAME}; move it away, or give "
            "another --out"
        )
    about_speakers = _speaker_tables(root)
    split = split_corpus(parts, normalizer, dev_speakers, seed)
    lengths = kaldi_source.read_lengths(split.sets, map_fn)
    sets, unusable = _drop_unusable(split.sets, lengths, root)
    # From here until the last line an interrupted run leaves sets that the next one makes anew.
    atomic_write_text(marker, json.dumps({"plan_sha256": "unfinished", "sets": {}}) + "\n")
    report["sets"] = {}
    for name in SETS:
        (out / name / "wav.scp").unlink(missing_ok=True)
        if data := sets.get(name):
            data = replace(data, text={utt: written(text, case) for utt, text in data.text.items()})
            seconds = round(sum(lengths[utt] for utt in data.utts), 1)
            report["sets"][name] = _save(data, out / name, about_speakers) | {"seconds": seconds}
    report["removed"] = split.removed | {"unusable audio": unusable}
    atomic_write_text(out / f"{NAME}.md", _markdown(report))
    atomic_write_text(marker, json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return report


def _drop_unusable(
    sets: dict[str, KaldiDir], lengths: dict[str, float | AudioProblem], root: Path
) -> tuple[dict[str, KaldiDir], list[str]]:
    problems = {utt: x for utt, x in lengths.items() if isinstance(x, AudioProblem)}
    tested = {utt for name in ("test", "test_seen") if name in sets for utt in sets[name].utts}
    fatal = [p for utt, p in problems.items() if utt in tested or p.reason == "missing"]
    kaldi_source.raise_unusable(root, fatal, len(lengths))
    for problem in problems.values():
        logging.warning("left out: %s", problem)
    kept = {n: without(s, problems.keys() & s.utt2spk, "the audio is unusable") for n, s in sets.items()}
    return kept, [str(problem) for problem in problems.values()]


def _speaker_tables(root: Path) -> dict[str, dict[str, str]]:
    """Read the speakers' ages and genders, where the copy has them, by our speaker names."""
    tables: dict[str, dict[str, str]] = {name: {} for name in SPEAKER_TABLES}
    for name, table in tables.items():
        for path in sorted(root.glob(f"*/{name}")):
            for spk, value in read_kaldi_table(path, require_sorted=False).items():
                table[spk] = table[PREFIX + spk] = value
    return tables


def _save(data: KaldiDir, folder: Path, about_speakers: dict[str, dict[str, str]]) -> dict[str, int]:
    """Write a set with its speakers' tables; return its counts, of children if all ages are known."""
    counts = {"utterances": len(data.utts), "speakers": len(data.spk2utt)}
    for name, table in about_speakers.items():
        (folder / name).unlink(missing_ok=True)
        if ours := {spk: table[spk] for spk in data.spk2utt if spk in table}:
            write_kaldi_table(folder / name, ours)
    ages = [about_speakers["spk2age"].get(spk, "") for spk in data.spk2utt]
    if all(age.isdecimal() for age in ages):
        counts["children"] = sum(int(age) < ADULT for age in ages)
    data.save(folder)
    return counts


def _markdown(report: dict[str, Any]) -> str:
    rows = [f"| {n} | {s['utterances']} | {s['speakers']} | {s.get('children', 'not known')} | "
            f"{s['seconds'] / 60:.1f} |\n" for n, s in report["sets"].items()]  # fmt: skip
    removed = [f"- {why}: {len(ids)}\n" for why, ids in report["removed"].items()]
    return (
        f"# {NAME}\n\nFrom {report['source']} ({report['page']}). Dev: {report['dev']}. Case of the "
        f"transcripts: {report['case']}. Sentences are the same if {report['same_sentence']} makes them "
        "equal.\n\n"
        "| set | utterances | speakers | of them children | minutes |\n|---|---|---|---|---|\n"
        f"{''.join(rows)}\nNo speaker is in two sets but test and test_seen; no sentence of test is in "
        f"train or dev, none of dev is in train. Removed ({NAME}.json has the names):\n\n"
        f"{''.join(removed)}\n"
        f"Licence: {report['licence']}\n\nCite: {report['citation']}\n"
    )
