"""sclite's files to the byte, and what is refused in them."""

import csv
import random
import re

import pytest

from espnet_latentasr.errors import DataError
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.sclite import (
    alignment_text,
    read_result_row,
    result_text,
    trn_texts,
)
from espnet_latentasr.text.sclite_table import round_half_up
from espnet_latentasr.text.score_dir import (
    read_score_json,
    score_dir_name,
    write_score_dir,
)
from espnet_latentasr.text.top_errors import confusions, top_errors_csv

NONE = get_normalizer("none")


def read_trn(path):
    rows = re.findall(r"^(.*) \((\w+)-(\w+)\)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {utt: text for text, _, utt in rows}, {utt: spk for _, spk, utt in rows}


def scored(refs, hyps, unit="wer"):
    return score(refs, hyps, unit, NONE)


def body(text):
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(";;"))


@pytest.fixture(scope="module")
def golden_result(golden):
    folder = golden / "sclite_all"
    (refs, utt2spk), (hyps, _) = (read_trn(folder / f"{side}.trn") for side in ("ref", "hyp"))
    return scored(refs, hyps), utt2spk, folder


def test_the_files_of_the_binary_to_the_byte(golden_result):
    result, utt2spk, folder = golden_result
    ref_trn, hyp_trn = trn_texts(result, utt2spk)
    assert ref_trn == (folder / "ref.trn").read_text(encoding="utf-8")
    assert hyp_trn == (folder / "hyp.trn").read_text(encoding="utf-8")
    assert body(result_text(result, utt2spk)) == (folder / "result.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("speakers", [1, 2, 12])
def test_the_binary_prints_the_same_on_random_sets(sclite, tmp_path, speakers):
    rng = random.Random(speakers)
    refs, hyps, utt2spk = {}, {}, {}
    for s in range(speakers):
        for u in range(rng.randint(1, 300)):
            utt = f"s{s:02d}{'p' * (s % 4)}_{u:03d}"
            utt2spk[utt] = utt.split("_")[0]
            pair = sclite.random_pair(rng, sclite.VOCABULARY["english"], rng.randint(1, 9))
            refs[utt], hyps[utt] = map(" ".join, pair)
    result = scored(refs, hyps)
    for name, text in zip(("ref.trn", "hyp.trn"), trn_texts(result, utt2spk), strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert body(result_text(result, utt2spk)) == sclite.run_sclite(tmp_path, "-o", "all")


def test_the_pra_file_of_the_binary(sclite, golden_result):
    result, utt2spk, folder = golden_result
    assert alignment_text(result, utt2spk) == sclite.run_sclite(folder, "-o", "pralign")


def test_the_frequent_errors_of_the_binary(sclite, golden_result):
    result, _, folder = golden_result
    detail = sclite.run_sclite(folder, "-o", "dtl")
    theirs = {}
    for kind, title in (
        ("substitution", "CONFUSION PAIRS"), ("insertion", "INSERTIONS"), ("deletion", "DELETIONS"),
    ):  # fmt: skip
        section = detail.split(f"\n{title} ")[1].split("-------")[0]
        for count, words in re.findall(r"^ *\d+: +(\d+)  ->  (.+)$", section, re.MULTILINE):
            ref, _, hyp = words.partition(" ==> ")
            pair = ("", ref) if kind == "insertion" else (ref, hyp)
            theirs[kind, *pair] = int(count)
    assert {(c.kind, c.reference, c.hypothesis): c.count for c in confusions(result)} == theirs


def test_frequent_errors_in_order():
    refs = {"u": "b a x", "v": "b a y", "w": "c"}
    hyps = {"u": "q a x", "v": "q p y new,word", "w": ""}
    assert top_errors_csv(scored(refs, hyps)) == (
        "kind,count,reference,hypothesis\n"
        "substitution,2,b,q\nsubstitution,1,a,p\n"
        'insertion,1,,"new,word"\ndeletion,1,c,\n'
    )


def test_the_grep_of_show_asr_result_finds_one_row(golden_result):
    result, utt2spk, _ = golden_result
    rows = [line for line in result_text(result, utt2spk).splitlines() if "Avg" in line]
    assert len(rows) == 1
    # sed 's#Sum/Avg##g' | tr '|' ' ' | tr -s ' ' '|'
    row = re.sub(" +", "|", rows[0].replace("Sum/Avg", "").replace("|", " "))
    rates = result.rates
    expected = [str(len(result.utterances)), str(result.counts.reference_length)]
    expected += [f"{round_half_up(rates[key]):.1f}" for key in rates]
    assert row.strip("|").split("|") == expected


def test_header_names_the_measure():
    text = result_text(scored({"u": "a"}, {"u": "a"}, "cer"), {"u": "s"})
    assert text.startswith(
        ";; unit: cer\n;; normaliser: none (identity)\n"
        ";; cost model: sclite 4/3/3 (substitution/insertion/deletion), case sensitive\n"
    )


def test_reading_the_row_back_gives_the_totals(golden_result, tmp_path):
    result, utt2spk, folder = golden_result
    (tmp_path / "result.txt").write_text(result_text(result, utt2spk), encoding="utf-8")
    row = read_result_row(tmp_path / "result.txt")
    assert row == read_result_row(folder / "result.txt")
    assert (row["Snt"], row["Wrd"]) == (len(result.utterances), result.counts.reference_length)
    for name, rate in result.rates.items():
        assert row[name] == pytest.approx(rate, abs=0.051)


def test_reading_a_file_without_the_row(tmp_path):
    (tmp_path / "result.txt").write_text("nothing\n", encoding="utf-8")
    with pytest.raises(DataError, match="0 'Sum/Avg' rows, one with 8 numbers expected"):
        read_result_row(tmp_path / "result.txt")


def test_half_is_rounded_up():
    assert [round_half_up(x) for x in (6.25, 0.05, 6.24, 100.0)] == [6.3, 0.1, 6.2, 100.0]


def test_speaker_without_reference_words():
    refs, hyps = {"a": "", "b": "", "c": "x y", "d": "x"}, {"a": "", "b": "k", "c": "x", "d": "x"}
    text = result_text(scored(refs, hyps), {"a": "s1", "b": "s2", "c": "s3", "d": "s4"})
    assert "| s2     |    1      0 |    0*     0*     0*     1*     1* 100.0 |" in text
    assert "|  Mean  |  1.0    0.8 | 75.0+   0.0+  25.0+   0.0+  25.0+  50.0 |" in text
    assert "+ Speaker(s) with no reference data is ignored" in text


def test_set_without_reference_words(tmp_path):
    result = scored({"u": ""}, {"u": "noise"})
    write_score_dir(tmp_path, result, {"u": "s"})
    row = read_result_row(tmp_path / "result.txt")
    assert row["Err"] != row["Err"]
    assert read_score_json(tmp_path / "score.json")["rates"]["Err"] is None


def test_alignment_columns_follow_the_screen():
    refs, hyps = {"u": "你好 世界 हिन्दी abc"}, {"u": "你好 世 ab"}
    text = result_text(scored(refs, hyps), {"u": "s"})
    lines = text.splitlines()
    start = lines.index("id: (s-u)")
    assert lines[start + 1] == "Scores: (#C #S #D #I) 1 2 1 0"
    assert lines[start + 2] == "REF:  你好 世界 हिन्दी ABC "
    assert lines[start + 3] == "HYP:  你好 **** 世    AB  "
    assert lines[start + 4] == "Eval:      D    S     S   "


def test_a_lone_mark_has_a_column():
    text = alignment_text(scored({"u": "น้อ"}, {"u": "นอ"}, "cer_nospace"), {"u": "s"})
    assert "REF:  น ้  อ \nHYP:  น * อ \nEval:   D   \n" in text


def test_cased_words_are_shown_as_they_are():
    text = result_text(scored({"u": "The cat"}, {"u": "the cat"}), {"u": "s"})
    assert "REF:  The cat \nHYP:  the cat \n" in text


@pytest.mark.parametrize("word", ["(uh)", "{", "}", "a{b", "@"])
def test_markup_in_a_reference_is_refused(word):
    result = scored({"u": f"a {word} b"}, {"u": "a b"})
    with pytest.raises(DataError, match=rf"'u' has the word '{re.escape(word)}'.*markup"):
        trn_texts(result, {"u": "s"})


@pytest.mark.parametrize("word", ["(", ")", "()", "a@b", "/", "*", "<space>"])
def test_lookalikes_and_hypotheses_pass(word):
    ref, hyp = trn_texts(scored({"u": word}, {"u": f"{word} (uh) {{ }} @"}), {"u": "s"})
    assert ref == f"{word} (s-u)\n"
    assert hyp == f"{word} (uh) {{ }} @ (s-u)\n"


def test_speakers_and_ids_are_checked():
    with pytest.raises(DataError, match=r"'v' has no speaker in utt2spk \(1 of 2"):
        trn_texts(scored({"u": "a", "v": "a"}, {"u": "a", "v": "a"}), {"u": "s"})
    with pytest.raises(DataError, match=r"'s-u\(1\)' is no trn id"):
        trn_texts(scored({"u(1)": "a"}, {"u(1)": "a"}), {"u(1)": "s"})


def test_folder(tmp_path, golden_result):
    result, utt2spk, _ = golden_result
    folder = write_score_dir(tmp_path / score_dir_name("wer"), result, utt2spk, language="en")
    assert sorted(path.name for path in folder.iterdir()) == [
        "hyp.trn", "hyp.trn.pra", "per_utt.csv", "ref.trn", "result.txt", "score.json",
        "top_errors.csv",
    ]  # fmt: skip
    summary = read_score_json(folder / "score.json")
    assert summary == result.summary() | {"language": "en"}
    assert (folder / "result.txt").read_text("utf-8") == result_text(result, utt2spk)
    assert (folder / "hyp.trn.pra").read_text("utf-8") == alignment_text(result, utt2spk)
    with open(folder / "per_utt.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["utt"] for row in rows] == list(result.utterances)
    assert (
        sum(int(row["S"]) + int(row["D"]) + int(row["I"]) for row in rows)
        == (summary["counts"]["errors"])
    )


def test_units_share_folders():
    assert score_dir_name("cer") == score_dir_name("cer_nospace") == "score_cer"


def test_an_unfinished_folder_has_no_score_json(tmp_path):
    write_score_dir(tmp_path, scored({"u": "a"}, {"u": "a"}), {"u": "s"})
    with pytest.raises(DataError):
        write_score_dir(tmp_path, scored({"u": "(a)"}, {"u": "a"}), {"u": "s"})
    with pytest.raises(DataError, match="score again"):
        read_score_json(tmp_path / "score.json")
