"""N-gram models: hand-computed back-off and Witten-Bell values, the ARPA format, its usual reader."""

from __future__ import annotations

import gzip
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.lm_text import TextOptions
from espnet_latentasr.rescoring.ngram import (
    NGramOptions,
    NGramScorer,
    estimate,
    file_fingerprint,
    read_arpa,
    write_arpa,
)

LN10 = math.log(10)
ARPA = r"""
\data\
ngram 1=5
ngram 2=4
ngram 3=2

\1-grams:
-99	<s>	-0.3
-0.9	</s>
-2.0	<unk>
-0.5	a	-0.2
-0.7	b	-0.1

\2-grams:
-0.25	<s> a	-0.15
-0.4	a b	-0.05
-0.6	b a
-0.8	b </s>

\3-grams:
-0.1	<s> a b
-0.35	a b </s>

\end\
"""
# log10 of each term by hand.
BY_HAND = {
    "a b": [-0.25, -0.1, -0.35],
    "b": [-0.3 - 0.7, -0.8],  # <s> b: back off from <s>; <s> b </s>: no context "<s> b", b </s>
    "a a": [-0.25, -0.15 - 0.2 - 0.5, -0.2 - 0.9],
    "a b a": [-0.25, -0.1, -0.05 - 0.6, -0.2 - 0.9],
    "zz": [-0.3 - 2.0, -0.9],
    "a zz b": [-0.25, -0.15 - 0.2 - 2.0, -0.7, -0.8],
    "": [-0.3 - 0.9],
}


@pytest.fixture
def arpa(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA)
    return path


def scorer(path, **options):
    return NGramScorer(read_arpa(path), file_fingerprint(path), NGramOptions(**options))


@pytest.mark.parametrize("text", BY_HAND)
def test_back_off_by_hand(arpa, text):
    (found,) = scorer(arpa).score({text: "utt"}).values()
    assert found == pytest.approx(sum(BY_HAND[text]) * LN10)


def test_begin_end_and_norms(arpa):
    def score(**options):
        return scorer(arpa, **options).score({"a b": "u"})["a b"] / LN10

    assert score(eos=False) == pytest.approx(-0.25 - 0.1)
    assert score(bos=False, eos=False) == pytest.approx(-0.5 - 0.4)
    assert score(norm="mean") == pytest.approx((-0.25 - 0.1 - 0.35) / 3)
    assert score(norm="per_word") == pytest.approx((-0.25 - 0.1 - 0.35) / 2)
    assert scorer(arpa, bos=False, eos=False).score({"": "u"}) == {"": None}


def test_unknown_words(arpa, tmp_path):
    assert scorer(arpa).unknown("a zz A") == (2, 3)
    with pytest.raises(DataError, match="utterance 'utt9': word 'zz'"):
        scorer(arpa, unknown="error").score({"a": "utt1", "a zz": "utt9"})
    found = scorer(arpa, unknown=-5.0).score({"zz": "u"})["zz"]
    assert found == pytest.approx((-5.0 - 0.9) * LN10), "the number stands for the whole probability"
    bare = tmp_path / "bare.arpa"
    bare.write_text(ARPA.replace("-2.0\t<unk>\n", "").replace("ngram 1=5", "ngram 1=4"))
    with pytest.raises(ConfigError, match="has no <unk>"):
        scorer(bare)
    assert scorer(bare, unknown=-5.0).score({"zz": "u"})["zz"] == pytest.approx(found)
    with pytest.raises(ConfigError, match="at most 0"):
        NGramOptions(unknown=2.0)


def test_casing_and_period(arpa):
    upper = scorer(arpa, text=TextOptions(casing="lower")).score({"A B": "u"})["A B"]
    assert upper == pytest.approx(sum(BY_HAND["a b"]) * LN10)
    scored = scorer(arpa, text=TextOptions(final_period="scored")).score({"a": "u"})["a"] / LN10
    assert scored == pytest.approx(-0.25 + (-0.15 - 0.2 - 2.0) - 0.9)
    context = scorer(arpa, text=TextOptions(final_period="context")).score({"a": "u"})["a"] / LN10
    assert context == pytest.approx(-0.25 - 0.9)


def test_reading_zipped_and_with_a_preface(arpa, tmp_path):
    path = tmp_path / "lm.arpa.gz"
    path.write_bytes(gzip.compress(b"made by hand\n" + arpa.read_bytes()))
    assert read_arpa(path) == read_arpa(arpa)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\end\\", "", "no '.end.' line"),
        ("ngram 2=4", "ngram 2=5", "5.*announced"),
        ("-0.6\tb a", "-0.6\tb a c d", r"lm.arpa:17: '-0.6..b a c d' is no 2-gram"),
        ("-0.6\tb a", "x\tb a", "lm.arpa:17"),
        ("-0.6\tb a", "0.6\tb a", "no log10 probability"),
        ("-0.6\tb a", "nan\tb a", "no log10 probability"),
        ("-0.6\tb a", "-0.6\ta b", "lm.arpa:17: n-gram 'a b' is given twice"),
        ("ngram 1=5", "grams 1=5", "announced"),
    ],
)
def test_a_broken_file_is_refused(arpa, old, new, message):
    arpa.write_text(ARPA.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        read_arpa(arpa)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_arpa(tmp_path / "no.arpa")


# Estimation


def test_witten_bell_by_hand():
    """Sentences "a b" and "a": c(a)=2, c(b)=1, c(</s>)=2, three kinds of five; four words with <unk>."""
    model = estimate(["a b", "a"], 2)
    lower = 1 / 4
    unigram = {w: (c + 3 * lower) / (5 + 3) for w, c in {"a": 2, "b": 1, "</s>": 2, "<unk>": 0}.items()}
    for word, probability in unigram.items():
        assert 10 ** model.log10(word, ()) == pytest.approx(probability)
    assert 10 ** model.log10("a", ("<s>",)) == pytest.approx((2 + 1 * unigram["a"]) / (2 + 1))
    assert 10 ** model.log10("b", ("a",)) == pytest.approx((1 + 2 * unigram["b"]) / (2 + 2))
    assert 10 ** model.log10("a", ("a",)) == pytest.approx(2 / (2 + 2) * unigram["a"])
    assert 10 ** model.log10("</s>", ("b",)) == pytest.approx((1 + 1 * unigram["</s>"]) / (1 + 1))


sentences = st.lists(st.lists(st.sampled_from("abcd"), max_size=5).map(" ".join), min_size=1, max_size=8)


@settings(max_examples=30)
@given(sentences, st.integers(1, 4), st.lists(st.sampled_from(["a", "b", "zz", "<s>"]), max_size=4))
def test_probabilities_sum_to_one_after_any_history(texts, order, history):
    model = estimate(texts, order)
    words = [gram[0] for gram in model.table if len(gram) == 1 and gram[0] != "<s>"]
    assert sum(10 ** model.log10(word, tuple(history)) for word in words) == pytest.approx(1)


def test_a_written_model_is_read_back(tmp_path):
    model = estimate(["a b", "a", "b b c a"], 3)
    write_arpa(tmp_path / "lm.arpa", model)
    assert read_arpa(tmp_path / "lm.arpa") == model


def test_what_cannot_be_estimated_is_refused():
    with pytest.raises(DataError, match="no sentence"):
        estimate([], 2)
    with pytest.raises(DataError, match="reserved word </s>"):
        estimate(["a </s>"], 2)
    with pytest.raises(ConfigError, match="order"):
        estimate(["a"], 0)


def test_scores_are_those_of_kenlm(arpa, tmp_path):
    kenlm = pytest.importorskip("kenlm")
    estimated = tmp_path / "estimated.arpa"
    write_arpa(estimated, estimate(["a b", "a", "b b c a", "a b c"], 3))
    for path in (arpa, estimated):
        peer = kenlm.Model(str(path))
        for text in [*BY_HAND, "b b c a", "c zz c", "a b c a b"]:
            for bos in (True, False):
                for eos in (True, False):
                    if not text and not eos:
                        continue
                    found = scorer(path, bos=bos, eos=eos).score({text: "u"})[text]
                    expected = peer.score(text, bos=bos, eos=eos) * LN10
                    assert found == pytest.approx(expected, abs=1e-4), (text, bos, eos)
