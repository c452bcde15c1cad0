"""Rescoring a file of lists into a decode directory in ESPnet's layout; runs no model."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.rescoring.config import RescoreConfig
from espnet_latentasr.rescoring.nbest_list import check_unknown, read_nbest, unknown_words
from espnet_latentasr.rescoring.select import prepare, select, set_unit

RECORD, SELECTIONS = "rescore.json", "selection.jsonl"


@dataclass(frozen=True)
class RescoreCounts:
    """What happened to the utterances of a set.

    ``changed``: another text than the greedy one; ``single``: nothing to choose from; ``fallback``:
    greedy, because no candidate had a text; ``empty``: chosen text is empty.
    """

    utterances: int = 0
    candidates: int = 0
    changed: int = 0
    single: int = 0
    fallback: int = 0
    empty: int = 0

    def __str__(self) -> str:
        mean = self.candidates / max(self.utterances, 1)
        return (
            f"{self.utterances} utterances, {mean:.1f} candidates each, {self.changed} changed, "
            f"{self.single} with one candidate, {self.fallback} fallbacks to greedy, {self.empty} empty"
        )


def rescore_file(nbest: Path, config: RescoreConfig, output: Path) -> RescoreCounts:
    """Choose a candidate of every list and write ``text``, ``score``, ``token_int`` and the records.

    ``text`` has the chosen surface, so that scoring normalises as ever; ``score`` its ``am_logp``.
    The tables come twice, as ESPnet has them: in ``output`` and in ``output/1best_recog``.
    ``selection.jsonl`` says per utterance what was chosen, ``rescore.json`` with which configuration.
    Nothing is written unless every list could be used.
    """
    lists = (prepare(n, config) for n in read_nbest(nbest))
    unit = set_unit(lists, config)
    tables: dict[str, dict[str, str]] = {"text": {}, "score": {}, "token_int": {}}
    selections, meta, totals, unknown, words = [], None, dataclasses.asdict(RescoreCounts()), 0, 0
    for read in tqdm(read_nbest(nbest), desc=nbest.name, disable=None):
        unknown, words = (a + b for a, b in zip((unknown, words), unknown_words(read)))
        prepared = prepare(read, config)
        meta = prepared.meta
        found = select(prepared, config, unit=unit)
        chosen, greedy, utt = prepared.hyps[found.index], prepared.hyps[0], read.utt_id
        tables["text"][utt] = chosen.surface
        tables["score"][utt] = repr(chosen.am_logp)
        tables["token_int"][utt] = " ".join(map(str, chosen.tokens))
        size = len(found.criterion)
        row = {"utt_id": utt, "index": found.index, "candidates": size, "fallback": found.fallback}
        row |= {"depth": chosen.depth, "rows": chosen.merged or (found.index,)}
        criterion = None if found.fallback else float(found.criterion[found.index])
        selections.append(row | {"criterion": criterion, "text": chosen.text})
        for name, value in {
            "utterances": 1,
            "candidates": size,
            "changed": chosen.text != greedy.text,
            "single": size == 1,
            "fallback": found.fallback,
            "empty": not chosen.text,
        }.items():
            totals[name] += int(value)
    check_unknown(unknown, words, config.max_unk_rate, nbest)
    for name, table in tables.items():
        write_kaldi_table(output / name, table)
        write_kaldi_table(output / "1best_recog" / name, table)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in selections)
    atomic_write_text(output / SELECTIONS, "".join(lines))
    record = {"config": dataclasses.asdict(config), "meta": dataclasses.asdict(meta)}
    record |= {"tau_unit_nats": unit, "counts": totals}
    atomic_write_text(output / RECORD, json.dumps(record, ensure_ascii=False, indent=2) + "\n")
    return RescoreCounts(**totals)
