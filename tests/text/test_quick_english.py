"""The quicker English normaliser returns what the package's does."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whisper_normalizer.english import EnglishTextNormalizer

from espnet_latentasr.text import normalize, quick_english
from espnet_latentasr.text.normalize import get_normalizer

PLAIN = EnglishTextNormalizer()
quick = get_normalizer("whisper_en").function
SPECIAL = sorted(
    PLAIN.standardize_numbers.words
    | {re.sub(r"\\b", "", pattern) for pattern in PLAIN.replacers}
    | set("hmm mm mhm mmm uh um a half halves he it's they'd been gone done got".split())
)
OTHER = """Colour centre O'Brien 3 10,000 5.5 -2 +7 $20 £3.50 ¢5 7% 21st 1s 1 0 007 a1 2b x-ray
st-mr mr-mm mr. 'cause 'tis o'clock <i> [noise] (uh) ( ) _mr_ mr_ émr ②  ١٢ ½ ß œuvre naïve — …
. , ? ! ' '' - " % $ € and-a-half don’t""".split()


def random_text(rng):
    words = [
        rng.choice(rng.choice((SPECIAL, OTHER, ["the", "and", "a", "cat", "half", "one"])))
        for _ in range(rng.randint(0, 12))
    ]
    cased = (word.capitalize() if rng.random() < 0.2 else word for word in words)
    return "".join(word + rng.choice([" ", " ", " ", "  ", ", ", ".", "'", ""]) for word in cased)


def test_the_installed_version_is_the_one_that_was_read():
    assert normalize.version(normalize.PACKAGE) in quick_english.READ
    assert quick.standardize_numbers is not PLAIN.standardize_numbers
    assert set(quick.replacers) != set(PLAIN.replacers)
    assert list(quick.replacers.values()) == list(PLAIN.replacers.values())


def outcome(function, text):
    try:
        return function(text)
    except Exception as error:  # the package fails on some texts: then so do we
        return repr(error)


def test_same_on_random_texts_of_special_words():
    rng = random.Random(0)
    for _ in range(4000):
        text = random_text(rng)
        assert outcome(quick, text) == outcome(PLAIN, text), text


@settings(max_examples=150)
@given(st.text(max_size=40))
def test_same_on_any_text(text):
    assert outcome(quick, text) == outcome(PLAIN, text)


@settings(max_examples=150)
@given(st.text(alphabet="mrst'. -_1é", max_size=12))
def test_same_at_the_edges_of_words(text):
    assert quick(text) == PLAIN(text)


@pytest.mark.parametrize("text", ["and", "and and", "an hour and a half", "and a half", "half", ""])
def test_and_without_numbers(text):
    assert quick(text) == PLAIN(text)


def test_another_version_is_left_alone():
    other = EnglishTextNormalizer()
    assert quick_english.quicken(other, "0.2.0") is other
    assert other.replacers == PLAIN.replacers
    assert type(other.standardize_numbers) is type(PLAIN.standardize_numbers)
