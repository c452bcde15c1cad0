"""How texts fall into tokens."""

import unicodedata

import pytest

from espnet_latentasr.errors import DataError
from espnet_latentasr.text.languages import get_language
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.units import tokenize


@pytest.mark.parametrize(
    ("unit", "text", "tokens"),
    [
        ("wer", " a  b\tc ", ["a", "b", "c"]),
        ("wer", "", []),
        ("cer", " ab  c ", ["a", "b", "<space>", "c"]),
        ("cer", "", []),
        ("cer_nospace", "你好 世 界", ["你", "好", "世", "界"]),
        ("cer_nospace", "น้ำ", ["น", "้", "ำ"]),
        ("mer", "我要book房间ok 吧", ["我", "要", "book", "房", "间", "ok", "吧"]),
        ("mer", "カタカナーと english 々", [*"カタカナーと", "english", "々"]),
        ("mer", "한국어 말", ["한국어", "말"]),
        ("mer", "", []),
    ],
)
def test_tokens(unit, text, tokens):
    assert tokenize(text, unit) == tokens


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("zh", "你好，世 界。"),
        ("yue", "你好， 世界！"),
        ("ja", "「日本 語」、です。"),
        ("th", "ภาษา ไทย!"),
    ],
)
def test_neither_blanks_nor_punctuation_are_counted(language, text):
    language = get_language(language)
    tokens = tokenize(get_normalizer(language.normalizer)(text), language.unit(language.units[0]))
    kept = [c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c)[0] in "LM"]
    assert tokens == kept


def test_unknown_unit():
    with pytest.raises(DataError, match="unknown unit 'ter'; known: wer, cer, cer_nospace, mer"):
        tokenize("a", "ter")
