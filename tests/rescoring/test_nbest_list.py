"""The schema of candidate lists, its refusals, and merging of equal texts."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.nbest_list import (
    Candidate,
    Meta,
    NBest,
    check_unknown,
    deduplicate,
    head,
    normalizer_of,
    parse_row,
    read_nbest,
    renormalize,
    to_row,
    unknown_words,
    write_nbest,
)
from espnet_latentasr.text.normalize import get_normalizer

META = {"gen": "latent-depth", "G": 2, "norm": "none", "seed": None, "model": "abc"}


def hyp(text="a b", **over):
    tokens = over.pop("tokens", [ord(c) for c in text])
    sizes = {"n_tok": len(tokens), "n_char": len(text)}
    row = {"text": text, "surface": text, "tokens": tokens, "count": 1, "am_logp": -1.5, **sizes}
    return row | {"scores": {}, "depth": 0} | over


def row(utt="u1", hyps=None, **over):
    hyps = [hyp(), hyp("a c", depth=1)] if hyps is None else hyps
    return {"utt_id": utt, "ref": None, "meta": META, "greedy_idx": 0, "hyps": hyps} | over


def save(tmp_path, *rows):
    path = tmp_path / "nbest.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def test_the_decoders_rows_are_read(tmp_path):
    first, second = read_nbest(save(tmp_path, row("a"), row("b", ref="a b")))
    assert (first.utt_id, first.ref, second.ref) == ("a", None, "a b")
    assert first.meta == Meta("latent-depth", 2, "none", "abc")
    assert first.meta.num_paths is first.meta.nbest_scale is first.meta.output_beam is None
    assert [(c.depth, c.text, c.path_logp, c.n_tok, c.n_char) for c in first.hyps] == [
        (0, "a b", None, 3, 3),
        (1, "a c", None, 3, 3),
    ]


def test_writing_and_reading_give_the_same_lists(tmp_path):
    rows = [
        row("a", [hyp(capped=True, scores={"pll": -3.25})], language="en"),
        row("b", [hyp("", tokens=[]), hyp("x ü", depth=2), hyp("", tokens=[], depth=3)], ref=""),
    ]
    for each in rows:
        each["meta"] = META | {"temperature": 0.7}
    lists = list(read_nbest(save(tmp_path, *rows)))
    lists[1] = deduplicate(lists[1])
    assert write_nbest(tmp_path / "again.jsonl", iter(lists)) == 2
    assert list(read_nbest(tmp_path / "again.jsonl")) == lists
    assert lists[0].meta.extra == {"temperature": 0.7} and lists[0].extra == {"language": "en"}
    assert lists[0].hyps[0].extra == {"capped": True}
    assert to_row(parse_row(rows[0])).items() >= {"utt_id": "a", "language": "en"}.items()


def test_lists_are_read_one_at_a_time(tmp_path):
    lists = read_nbest(save(tmp_path, row("a"), "{broken"))
    assert next(lists).utt_id == "a"
    with pytest.raises(DataError, match="nbest.jsonl:2: not a JSON object"):
        next(lists)


BAD = {
    "no candidate": (row(hyps=[]), "hyps: no candidate"),
    "NaN": (row(hyps=[hyp(am_logp=math.nan)]), "candidate 0 'a b': am_logp nan: a finite number"),
    "infinite": (row(hyps=[hyp(am_logp=-math.inf)]), "am_logp -inf: a finite number"),
    "negated": (row(hyps=[hyp(am_logp=12.0)]), "am_logp 12.0: a log-probability is at most 0"),
    "NaN score": (
        row(hyps=[hyp(), hyp("c", depth=1, scores={"ll": math.nan})]),
        "candidate 1 'c': score 'll' nan: a finite number",
    ),
    "text score": (row(hyps=[hyp(scores={"x": "1"})]), "score 'x' '1'"),
    "score list": (row(hyps=[hyp(scores=[1])]), "an object 'scorer: number'"),
    "n_tok": (row(hyps=[hyp(n_tok=9)]), "n_tok 9, but its tokens has 3"),
    "n_char": (row(hyps=[hyp(n_char=9)]), "n_char 9, but its text has 3"),
    "count": (row(hyps=[hyp(count=-1)]), "count -1: a whole number from 0"),
    "tokens": (row(hyps=[hyp(tokens=["a", "b", "c"])]), "a list of whole numbers"),
    "no text": (row(hyps=[{k: v for k, v in hyp().items() if k != "text"}]), "key 'text' is missing"),
    "line break": (row(hyps=[hyp(surface="a\nb")]), "surface 'a\\\\nb': one line"),
    "generator": (row(meta=META | {"gen": "beam"}), "meta.gen 'beam': expected one of sys, iid"),
    "no model": (
        row(meta={k: v for k, v in META.items() if k != "model"}),
        "meta: key 'model' is missing",
    ),
    "scale": (row(meta=META | {"nbest_scale": 0}), "meta.nbest_scale 0: a number above 0"),
    "greedy": (row(greedy_idx=1), "candidate 0 must be the greedy"),
    "depth": (row(hyps=[hyp(depth=1), hyp("c", depth=0)]), r"depths \[1, 0\], growing depths"),
    "no depth": (row(hyps=[hyp(depth=None)]), r"depths \[None\]"),
    "list": ([1], r"row \[1\]: an object expected"),
    "ref": (row(ref=3), "ref 3: one line of text"),
    "id": (row("two words"), "utt_id: one word"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_refused_with_their_place(tmp_path, case):
    bad, message = BAD[case]
    path = save(tmp_path, row("a0"), bad)
    utt = bad["utt_id"] if isinstance(bad, dict) else "?"
    with pytest.raises(
        DataError, match=re.escape(f"nbest.jsonl:2: utterance '{utt}': ") + f".*{message}"
    ):
        list(read_nbest(path))


def test_mixed_meta_is_refused(tmp_path):
    other = row("b", meta=META | {"nbest_scale": 0.5, "temperature": 1})
    wanted = "utterance 'b': other meta than utterance 'a': nbest_scale 0.5 against None, temperature 1"
    with pytest.raises(DataError, match=wanted):
        list(read_nbest(save(tmp_path, row("a"), other)))
    with pytest.raises(DataError, match="lists generated differently cannot be mixed"):
        write_nbest(tmp_path / "out.jsonl", map(parse_row, (row("a"), other)))
    assert not (tmp_path / "out.jsonl").exists()


def test_order_duplicates_and_empty_files_are_refused(tmp_path):
    with pytest.raises(DataError, match=":2: utterance 'a': comes after 'b'; sort"):
        list(read_nbest(save(tmp_path, row("b"), row("a"))))
    with pytest.raises(DataError, match=":2: utterance 'b': is a duplicate"):
        list(read_nbest(save(tmp_path, row("b"), row("b"))))
    with pytest.raises(DataError, match="no list in it"):
        list(read_nbest(save(tmp_path)))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_nbest(tmp_path / "none.jsonl"))


def test_a_score_of_null_is_a_missing_score():
    assert parse_row(row(hyps=[hyp(scores={"a": None, "b": -1})])).hyps[0].scores == {"b": -1}


def ctc(*hyps):
    return NBest("u", Meta("sys", 9, "none", "m"), hyps)


def test_equal_texts_merge_counts_and_probabilities():
    merged = deduplicate(
        ctc(
            Candidate("a", "A", (1,), math.log(0.2), 3, -4.0, {"s": 1.0}),
            Candidate("b", "b", (3,), math.log(0.1)),
            Candidate("a", "a,", (2, 2), math.log(0.3), 2, -3.0, {"s": 2.0}),
            Candidate("a", "a!", (1,), math.log(0.2), 5),
        )
    )
    first, second = merged.hyps
    assert (first.text, first.surface, first.tokens, first.scores) == ("a", "A", (1,), {"s": 1.0})
    assert first.count == 10 and first.path_logp == -3.0 and first.merged == (0, 2, 3)
    assert math.exp(first.am_logp) == pytest.approx(0.5), "the same tokens twice are one event"
    assert second.merged == (1,) and math.exp(second.am_logp) == pytest.approx(0.1)


def test_outside_the_greedy_class_the_most_probable_surface_stays():
    merged = deduplicate(
        ctc(
            Candidate("g", "g", (9,), -1.0),
            Candidate("a", "a,", (1,), -5.0, scores={"s": 1.0}),
            Candidate("a", "a", (2,), -2.0, scores={"s": 2.0}),
        )
    )
    assert [(c.surface, c.scores) for c in merged.hyps] == [("g", {}), ("a", {"s": 2.0})]


def test_depths_merge_into_a_uniform_mixture_and_stay_known():
    probabilities = [0.5, 0.6, 0.1, 0.4]
    hyps = [
        hyp(text, tokens=[1] if text == "a" else [2], depth=k, am_logp=math.log(p))
        for k, (text, p) in enumerate(zip("aaba", probabilities))
    ]
    merged = deduplicate(parse_row(row(hyps=hyps)))
    assert [(c.text, c.depth, c.depths, c.merged) for c in merged.hyps] == [
        ("a", 0, (0, 1, 3), (0, 1, 3)),
        ("b", 2, (2,), (2,)),
    ]
    masses = [math.exp(c.am_logp) for c in merged.hyps]
    assert masses == pytest.approx([(0.5 + 0.6 + 0.4) / 4, 0.1 / 4])
    assert deduplicate(merged) == merged


def test_one_event_with_two_probabilities_is_refused():
    hyps = Candidate("a", "a", (1,), -1.0), Candidate("a", "a", (1,), -3.0)
    with pytest.raises(DataError, match="utterance 'u': candidate 1 'a': am_logp -3.0, but -1.0"):
        deduplicate(ctc(*hyps))
    hyps = Candidate("a", "a", (1,), -0.1), Candidate("a", "a", (2,), -0.1)
    with pytest.raises(DataError, match="2 token sequences of 'a' sum to 1.81, at most 1"):
        deduplicate(ctc(*hyps))


candidates = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "a b"]), st.integers(1, 4), st.floats(-9, -2)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40)
@given(candidates)
def test_merging_keeps_mass_counts_and_order(drawn):
    hyps = [Candidate(t, t, (index,), lp, n) for index, (t, n, lp) in enumerate(drawn)]
    merged = deduplicate(ctc(*hyps))
    assert [c.text for c in merged.hyps] == list(dict.fromkeys(t for t, _, _ in drawn))
    assert sum(c.count for c in merged.hyps) == sum(n for _, n, _ in drawn)
    total = np.logaddexp.reduce([lp for _, _, lp in drawn])
    assert np.logaddexp.reduce([c.am_logp for c in merged.hyps]) == pytest.approx(total)
    assert sorted(m for c in merged.hyps for m in c.merged) == list(range(len(hyps)))
    assert deduplicate(merged) == merged


def test_normalising_starts_from_the_surface_and_is_recorded():
    nbest = ctc(Candidate("Hello!", "Hello!", (1,), -1.0), Candidate("x", "hello", (2,), -2.0))
    normalizer = get_normalizer("whisper_basic")
    again = renormalize(nbest, normalizer)
    assert again.texts == ["hello", "hello"] and again.hyps[0].n_char == 5
    assert again.meta.norm == f"whisper_basic {normalizer.version}"
    assert normalizer_of(again.meta) == normalizer and normalizer_of(nbest.meta).name == "none"
    assert renormalize(again, normalizer) is again
    old = replace(again.meta, norm="whisper_basic whisper-normalizer 0.0.1")
    with pytest.raises(DataError, match="normalised by 'whisper_basic whisper-normalizer 0.0.1'"):
        normalizer_of(old)


def test_heads_are_nested():
    nbest = ctc(*(Candidate(t, t, (1,), -1.0) for t in "abc"))
    assert [head(nbest, n).texts for n in (1, 2, 3, 9, None)] == [
        ["a"],
        ["a", "b"],
        *[["a", "b", "c"]] * 3,
    ]


def test_unknown_words():
    nbest = ctc(Candidate("a", "a <unk> c⁇ d", (1,), -1.0), Candidate("a", "<unk>", (1,), -1.0))
    assert unknown_words(nbest) == (2, 4)
    check_unknown(2, 5, 0.4, "x")
    check_unknown(0, 0, 0.0, "x")
    with pytest.raises(DataError, match=r"x: 2 of 5 words are unknown \(40.0%; at most 1.0%"):
        check_unknown(2, 5, 0.01, "x")
