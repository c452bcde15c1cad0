"""The table of latent against frozen: which rows, and p values corrected for exactly those."""

import json

import numpy as np
import pytest

from espnet_latentasr.errors import DataError
from espnet_latentasr.report.comparison import compare, comparison_section, read_scored
from espnet_latentasr.stats.multiplicity import benjamini_hochberg, holm
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.score_dir import write_score_dir

REFS = {f"u{i:02d}": "a b c d" for i in range(40)}


def decoded(folder, wrong, seed, refs=REFS):
    rng = np.random.default_rng(seed)
    hyps = {
        utt: " ".join("x" if rng.random() < wrong else word for word in text.split())
        for utt, text in refs.items()
    }
    result = score(refs, hyps, "wer", get_normalizer("none"))
    write_score_dir(folder / "score_wer", result, {utt: utt for utt in refs})
    record = {"audio_seconds": 2.0, "seconds": {"encode": 0.5}, "steps": 1}
    record |= {"stopped": "", "capped": False}
    lines = (json.dumps(record | {"utt_id": utt}) + "\n" for utt in refs)
    (folder / "latent.jsonl").write_text("".join(lines), encoding="utf-8")


def cells(section):
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|decode")]
    header = next(line for line in section.splitlines() if line.startswith("|dataset"))
    names = header.strip("|").split("|")
    assert all(len(row) == len(names) for row in rows)
    return [dict(zip(names, row)) for row in rows]


def test_the_family_is_the_rows_printed(tmp_path):
    for test_set, seed in (("one", 0), ("two", 1)):
        decoded(tmp_path / "decode_frozen" / test_set, 0.3, seed)
        decoded(tmp_path / "decode_latent" / test_set, 0.22, seed + 10)
    decoded(tmp_path / "decode_other" / "one", 0.5, 20)
    decoded(tmp_path / "decode_latent" / "without_frozen", 0.5, 21)
    for tag in ("decode_frozen", "decode_latent"):
        decoded(tmp_path / tag / "silent", 0.0, 0, {"u": ""})
    section = comparison_section(tmp_path)
    rows = cells(section)
    names = ["decode_latent/one", "decode_latent/two", "decode_other/one"]
    assert [row["dataset"] for row in rows] == names
    assert "corrected for the 3 rows" in section
    p = []
    for name in names:
        frozen = read_scored(tmp_path / "decode_frozen" / name.split("/")[1])
        p.append(compare(frozen, read_scored(tmp_path / name)).p)
    for column, values in (("p", p), ("p Holm", holm(p)), ("p BH", benjamini_hochberg(p))):
        assert [row[column] for row in rows] == [f"{value:.4f}" for value in values]
    assert len({row["p Holm"] for row in rows}) > 1


def test_nothing_to_compare(tmp_path):
    decoded(tmp_path / "decode_frozen" / "one", 0.3, 0)
    assert comparison_section(tmp_path) == ""


def test_other_utterances_are_refused(tmp_path):
    decoded(tmp_path / "decode_frozen" / "one", 0.3, 0)
    decoded(tmp_path / "decode_latent" / "one", 0.3, 0, {"u00": "a b c d"})
    with pytest.raises(DataError, match="different utterances"):
        comparison_section(tmp_path)
