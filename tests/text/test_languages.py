"""The language table is sound and finds what people type."""

import pytest

from espnet_latentasr.errors import DataError
from espnet_latentasr.text.languages import get_language, load_languages
from espnet_latentasr.text.normalize import NORMALIZERS

QWEN = (
    "Arabic Cantonese Chinese Czech Danish Dutch English Filipino Finnish French German Greek Hindi "
    "Hungarian Indonesian Italian Japanese Korean Macedonian Malay Persian Polish Portuguese "
    "Romanian Russian Spanish Swedish Thai Turkish Vietnamese"
)


def test_the_30_languages_of_qwen3_asr():
    names = sorted(lang.name for lang in load_languages().values() if lang.qwen)
    assert " ".join(names) == QWEN


def test_every_row_is_sound():
    for code, language in load_languages().items():
        assert isinstance(code, str) and code == language.code
        assert language.normalizer in NORMALIZERS
        assert language.units and set(language.units) <= {"wer", "cer", "mer"}
        assert isinstance(language.spaces, bool) and isinstance(language.qwen, bool)
    assert "no" in load_languages()


def test_codes_and_names():
    assert get_language("English").code == "en"
    assert get_language("cantonese").code == "yue"
    assert get_language("YUE").name == "Cantonese"


def test_units():
    assert [get_language(c).unit("cer") for c in ("zh", "yue", "ja", "th")] == ["cer_nospace"] * 4
    assert get_language("en").unit("cer") == "cer"
    assert get_language("th").unit("wer") == "wer"
    assert get_language("ko").units == ("cer", "wer")
    assert get_language("zh-en").units[0] == "mer"


def test_unknown_language_names_the_nearest():
    with pytest.raises(DataError, match=r"'Portugese'; did you mean 'pt' \(Portuguese\)\?"):
        get_language("Portugese")
    with pytest.raises(DataError, match="known codes: ar cs"):
        get_language("qqqqqq")


def test_the_table_is_read_only():
    with pytest.raises(TypeError):
        load_languages()["xx"] = None
