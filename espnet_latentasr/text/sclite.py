"""sclite's files: knows trn lines and the layout of ``result.txt``; counts and aligns nothing.

The files are what ``sclite -r ref.trn trn -h hyp.trn trn -i rm -o all stdout`` reads and writes, so
that ESPnet's ``show_asr_result.sh`` and people's eyes find what they are used to.  Differences:
speakers come from ``utt2spk`` (sclite cuts the id at its first ``-``), ids and words keep their
case, and the columns of an alignment are padded by their width on the screen, not by bytes.

sclite reads some words as its own markup.  References with markup are refused, because sclite would
count something else than we do.  It also drops a backslash, and all of a word from ``;`` on; here
both are characters like any other.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from espnet_latentasr.errors import DataError
from espnet_latentasr.reading import parse_number, read_text
from espnet_latentasr.text.edit_distance import COST_MODEL, Alignment, Counts
from espnet_latentasr.text.error_rate import ErrorRate
from espnet_latentasr.text.sclite_table import HEADER, SpeakerScore, count_table, percent_table

COLUMNS = tuple(name.strip(" #") for name in HEADER[1:])  # Snt Wrd Corr Sub Del Ins Err S.Err

# An optionally deletable (word), alternatives in { a / b }, and the empty word @.
_MARKUP = re.compile(r"\(.+\)|.*[{}].*|@", re.DOTALL)
_IN_MARKUP = re.compile(r"[({@}]")
_SUM_ROW = re.compile(r"^\s*\|\s*Sum/Avg\s*\|(.*)\|\s*$", re.MULTILINE)
_ASCII_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def trn_texts(result: ErrorRate, utt2spk: Mapping[str, str]) -> tuple[str, str]:
    """Return ``ref.trn`` and ``hyp.trn``: lines ``tokens (spk-utt)`` in C-locale order of utt.

    A recogniser may say anything, so hypotheses are written as they are.

    Raises:
        DataError: a reference token is sclite markup, an utterance has no speaker, or an id has a
            parenthesis or a blank in it, which would end the trn line too early.
    """
    names = _trn_ids(result, utt2spk)
    for utt, alignment in result.utterances.items():
        if not _IN_MARKUP.search(" ".join(alignment.reference)):
            continue
        for token in alignment.reference:
            if _MARKUP.fullmatch(token):
                raise DataError(
                    f"reference of utterance '{utt}' has the word '{token}', which is markup to "
                    "sclite ('(x)' optional word, '{ a / b }' alternatives, '@' no word); plain "
                    "words expected: correct the reference or use a normaliser that removes it"
                )
    pairs = [(names[utt], alignment) for utt, alignment in result.utterances.items()]
    return (
        "".join(f"{' '.join(alignment.reference)} ({name})\n" for name, alignment in pairs),
        "".join(f"{' '.join(alignment.hypothesis)} ({name})\n" for name, alignment in pairs),
    )


def result_text(result: ErrorRate, utt2spk: Mapping[str, str], title: str = "hyp.trn") -> str:
    """Return ``result.txt``: `summary_text`, then `alignment_text`."""
    return summary_text(result, utt2spk, title) + alignment_text(result, utt2spk, title)


def summary_text(result: ErrorRate, utt2spk: Mapping[str, str], title: str = "hyp.trn") -> str:
    """Return what was measured and how, and sclite's two tables by speaker."""
    _trn_ids(result, utt2spk)
    speakers: dict[str, SpeakerScore] = {}
    for speaker, utts in _by_speaker(result, utt2spk).items():
        counts = [result.utterances[utt].counts for utt in utts]
        wrong = sum(1 for c in counts if c.errors)
        speakers[speaker] = SpeakerScore(sum(counts, start=Counts()), len(utts), wrong)
    header = (
        f";; unit: {result.unit}\n"
        f";; normaliser: {result.normalizer} ({result.normalizer_version})\n"
        f";; cost model: {COST_MODEL} (substitution/insertion/deletion), case sensitive\n"
    )
    return header + percent_table(title, speakers) + count_table(title, speakers)


def alignment_text(result: ErrorRate, utt2spk: Mapping[str, str], title: str = "hyp.trn") -> str:
    """Return what sclite writes to a ``.pra`` file: the alignment of every utterance by speaker."""
    names = _trn_ids(result, utt2spk)
    show = _shouted if _is_lower(result) else _verbatim
    speakers = _by_speaker(result, utt2spk)
    lines = ["", "", "\t\tDUMP OF SYSTEM ALIGNMENT STRUCTURE", "", f"System name:   {title}", ""]
    lines += ["Speakers: ", *(f"   {i:2d}:  {name}" for i, name in enumerate(speakers)), ""]
    for i, (name, utts) in enumerate(speakers.items()):
        lines.append(f"Speaker sentences{i:4d}:  {name}   #utts: {len(utts)}")
        lines += [_one_alignment(names[utt], result.utterances[utt], show) for utt in utts]
    return "\n".join(lines) + "\n\n"


def read_result_row(path: str | Path) -> dict[str, float]:
    """Read the ``Sum/Avg`` row of a ``result.txt`` (ours or sclite's): column name -> value.

    ``Snt`` and ``Wrd`` are counts, the others percentages.

    Raises:
        DataError: no such row, or several.
    """
    rows = _SUM_ROW.findall(read_text(path, "sclite's result.txt"))
    cells = rows[0].replace("|", " ").split() if len(rows) == 1 else []
    if len(cells) != len(COLUMNS):
        raise DataError(
            f"{path}: {len(rows)} 'Sum/Avg' rows, one with {len(COLUMNS)} numbers expected; "
            "score the set again"
        )
    row = dict(zip(COLUMNS, cells, strict=True))
    where = f"{path}: row 'Sum/Avg'"
    return {
        name: parse_number(where, row, name, int if index < 2 else float, finite=False)
        for index, name in enumerate(COLUMNS)
    }


def _trn_ids(result: ErrorRate, utt2spk: Mapping[str, str]) -> dict[str, str]:
    if missing := [utt for utt in result.utterances if utt not in utt2spk]:
        raise DataError(
            f"utterance '{missing[0]}' has no speaker in utt2spk ({len(missing)} of "
            f"{len(result.utterances)} lack one); a line 'UTT SPK' for each expected, add them"
        )
    names = {utt: f"{utt2spk[utt]}-{utt}" for utt in result.utterances}
    if bad := [name for name in names.values() if re.search(r"[()\s]", name)]:
        raise DataError(
            f"'{bad[0]}' is no trn id: neither parentheses nor blanks expected in it; rename the "
            "utterance or its speaker in every table"
        )
    return names


def _by_speaker(result: ErrorRate, utt2spk: Mapping[str, str]) -> dict[str, list[str]]:
    """Return each speaker's utterances, both in the order in which they come."""
    speakers: dict[str, list[str]] = {}
    for utt in result.utterances:
        speakers.setdefault(utt2spk[utt], []).append(utt)
    return speakers


def _one_alignment(name: str, alignment: Alignment, show: Callable[[str], str]) -> str:
    ref_row, hyp_row, eval_row = [], [], []
    for operation, ref, hyp in alignment.columns():
        if operation != "C":
            ref, hyp = ref and show(ref), hyp and show(hyp)
        ref_width, hyp_width = ref and _screen_width(ref), hyp and _screen_width(hyp)
        width = max(ref_width or 0, hyp_width or 0, 1)  # a lone combining mark has no width
        ref_row.append(ref + " " * (width - ref_width) if ref else "*" * width)
        hyp_row.append(hyp + " " * (width - hyp_width) if hyp else "*" * width)
        eval_row.append((" " if operation == "C" else operation) + " " * (width - 1))
    c = alignment.counts
    lines = [
        f"id: ({name})",
        f"Scores: (#C #S #D #I) {c.correct} {c.substitutions} {c.deletions} {c.insertions}",
    ]
    if alignment.operations:
        rows = (("REF:  ", ref_row), ("HYP:  ", hyp_row), ("Eval: ", eval_row))
        lines += [f"{label}{' '.join(row)} " for label, row in rows]
    return "\n".join(lines) + "\n"


def _is_lower(result: ErrorRate) -> bool:
    return not any(
        re.search("[A-Z]", " ".join(side))
        for alignment in result.utterances.values()
        for side in (alignment.reference, alignment.hypothesis)
    )


def _shouted(token: str) -> str:
    return token.translate(_ASCII_UPPER)


def _verbatim(token: str) -> str:
    return token


@lru_cache(maxsize=100_000)
def _screen_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else
        2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )  # fmt: skip
