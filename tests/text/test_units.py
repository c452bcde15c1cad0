"""How texts fall into tokens."""

import pytest

from espnet_latentasr.errors import DataError
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


def test_unknown_unit():
    with pytest.raises(DataError, match="unknown unit 'ter'; known: wer, cer, cer_nospace, mer"):
        tokenize("a", "ter")
