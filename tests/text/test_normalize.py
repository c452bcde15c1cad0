"""Golden strings of each normaliser, and no fallback."""

import subprocess
import sys

import pytest

from espnet_latentasr.errors import DataError
from espnet_latentasr.text import normalize
from espnet_latentasr.text.languages import get_language
from espnet_latentasr.text.normalize import get_normalizer, prepare


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            "Mr. O'Brien's colour was twenty-one dollars, won't he?",
            "mister 0 brien is color was $21 will not he",
        ),
        ("en", "Um, the centre—it's 10,000 km (approx.) away!", "the center it is 10000 km away"),
        ("de", "Überraschung, die Größe!", "überraschung die größe"),
        ("fr", "L'été, c'est l'œuvre.", "l été c est l œuvre"),
        ("hi", "हिन्दी में, क्या।", "हिन्दी में क्या"),
        ("th", "เป็นอย่างไร?", "เป็นอย่างไร"),
        ("th", "น้ำ", "น้ํา"),  # NFKC takes sara am apart, on both sides alike
        ("ar", "إِنَّ اللغةَ؟", "إِنَّ اللغةَ"),
        ("zh", "你好，世界 ＡＢＣ。", "你好 世界 abc"),
        ("ja", "ｶﾞラス、日本語。", "ガラス 日本語"),
        ("ko", "한국어, 띄어쓰기!", "한국어 띄어쓰기"),
    ],
)
def test_golden_strings(language, text, expected):
    assert get_normalizer(get_language(language).normalizer)(text) == expected


def test_marks_are_what_the_basic_one_loses():
    assert get_normalizer("whisper_basic")("हिन्दी") == "ह न द"
    assert get_normalizer("whisper_basic_marks")("हिन्दी") == "हिन्दी"


def test_none_keeps_all_but_the_blanks_around():
    assert get_normalizer("none")(" The CAT,  sat. ") == "The CAT,  sat."


def test_identity_is_name_and_version():
    normalizer = get_normalizer("whisper_basic")
    assert normalizer.name == "whisper_basic"
    assert normalizer.version.startswith("whisper-normalizer 0.")
    assert get_normalizer("none").version == "identity"
    assert get_normalizer("whisper_basic") is normalizer


def test_unknown_name():
    with pytest.raises(DataError, match="'whisper_eng'; did you mean 'whisper_en'"):
        get_normalizer("whisper_eng")


def test_a_missing_package_is_an_error(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(normalize.importlib, "import_module", missing)
    get_normalizer.cache_clear()
    with pytest.raises(DataError, match="needs the package whisper-normalizer .*pip install"):
        get_normalizer("whisper_en")
    get_normalizer.cache_clear()


def test_prepared_texts_are_the_same_and_done_once(monkeypatch):
    monkeypatch.setattr(normalize, "WORTH_JOBS", 3)
    monkeypatch.setattr(normalize, "JOB", 2)
    jobs = []

    def run(function, given):
        jobs.extend(given)
        return map(function, given)

    plain = get_normalizer("whisper_en")
    texts = ["Twenty one!", "the colour", "Twenty one!", "", " won't "]
    prepared = prepare(plain, texts, run)
    assert prepared == plain and [len(job) for _, job in jobs] == [2, 2]
    assert [prepared(text) for text in texts] == [plain(text) for text in texts]
    assert prepared("Not seen: 5 %") == plain("Not seen: 5 %")
    monkeypatch.setattr(normalize, "get_normalizer", None)
    assert prepared("the colour") == "the color"


def test_import_is_light():
    code = (
        "import sys, espnet_latentasr.text.score_dir, espnet_latentasr.text.languages, "
        "espnet_latentasr.report.results_md, espnet_latentasr.bin.score\n"
        "heavy = {'torch', 'transformers', 'espnet', 'espnet2', 'whisper_normalizer', 'scipy.stats'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
