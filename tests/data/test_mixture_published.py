"""The paper's mixture: exact quotas, nested prefixes, caps, and a manifest that repeats it elsewhere."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from published_layouts import tone

from espnet_latentasr.bin import prepare, sample_activation
from espnet_latentasr.data.activation import Pool, make_pool, repeat_pool
from espnet_latentasr.data.kaldi_dir import KaldiDir, write_kaldi_table
from espnet_latentasr.data.manifest import first_of, read_manifest
from espnet_latentasr.data.mixture import (
    Candidate,
    MixtureSpec,
    Share,
    apportion,
    draw_mixture,
    load_mixture,
)
from espnet_latentasr.data.published import get_published
from espnet_latentasr.errors import ConfigError, DataError

QUOTAS = {"common_voice": 350, "fleurs": 77, "voxpopuli": 52, "librispeech": 8, "ascend": 5,
          "peoples_speech": 4, "gigaspeech": 4}  # fmt: skip


def candidates(per_corpus: int = 900) -> list[Candidate]:
    return [
        Candidate(f"{name}-{n:04}", name, f"locale{n % 60}") for name in QUOTAS for n in range(per_corpus)
    ]


def spec_of(shares: dict[str, Share], pool: int | None = None, seed: int = 1) -> MixtureSpec:
    size = sum(share.quota for share in shares.values())
    return MixtureSpec(seed, size, pool or size, "train", shares)


# ---- the draw ----------------------------------------------------------------------------------


def test_the_papers_mixture():
    spec = load_mixture("paper")
    assert {name: share.quota for name, share in spec.shares.items()} == QUOTAS
    assert (spec.seed, spec.size, spec.pool, spec.split) == (42, 500, 811, "train")
    drawn = draw_mixture(candidates(), spec)
    assert len({one.utt for one in drawn}) == 811
    assert Counter(one.corpus for one in drawn[:500]) == QUOTAS
    assert Counter(one.corpus for one in drawn) == {  # largest remainders of 811/500
        "common_voice": 568, "fleurs": 125, "voxpopuli": 84, "librispeech": 13, "ascend": 8,
        "peoples_speech": 7, "gigaspeech": 6,
    }  # fmt: skip
    # Golden: a published activation set must not change.
    assert [one.utt for one in drawn[:3]] == GOLDEN
    for name, share in spec.shares.items():
        for part in get_published(name).expand(share.parts or ["all"]):
            assert get_published(name).language(part)
    assert load_mixture("paper_dev").split == "dev"


GOLDEN = ["common_voice-0295", "voxpopuli-0356", "librispeech-0632"]


def test_prefixes_are_mixed():
    """The order is a shuffle: a set of 100 has roughly the proportions of the 500."""
    first = Counter(one.corpus for one in draw_mixture(candidates(), load_mixture("paper"))[:100])
    assert 55 <= first["common_voice"] <= 85 and first["fleurs"] >= 5


def test_locales_are_taken_in_turn_up_to_the_cap():
    shares = {"cv": Share(6, cap=3)}
    many = [Candidate(f"en{n}", "cv", "en") for n in range(50)]
    few = [Candidate(f"{locale}{n}", "cv", locale) for locale in ("de", "eu") for n in range(2)]
    drawn = draw_mixture(many + few, spec_of(shares))
    assert Counter(one.locale for one in drawn) == {"en": 2, "de": 2, "eu": 2}
    drawn = draw_mixture(many + few, spec_of({"cv": Share(7, cap=3)}))
    assert Counter(one.locale for one in drawn)["en"] == 3
    with pytest.raises(DataError, match=r"cv: 8 wanted, 7 of 54 .* \(3 locales, at most 3 of each\)"):
        draw_mixture(many + few, spec_of({"cv": Share(8, cap=3)}))


@settings(max_examples=8)
@given(st.integers(0, 3), st.randoms(use_true_random=False), st.sets(st.integers(0, 899), max_size=20))
def test_the_order_of_candidates_does_not_matter_and_refused_ones_are_passed_over(seed, random, refused):
    pool = [one for one in candidates(60)]
    spec = spec_of({"common_voice": Share(10, 2), "ascend": Share(3)}, pool=20, seed=seed)
    bad = {pool[n % len(pool)].utt for n in refused}
    drawn = draw_mixture(pool, spec, lambda one: one.utt not in bad)
    assert draw_mixture(random.sample(pool, len(pool)), spec, lambda one: one.utt not in bad) == drawn
    assert not bad & {one.utt for one in drawn} and len(drawn) == 20
    assert Counter(one.corpus for one in drawn[:13]) == {"common_voice": 10, "ascend": 3}
    # What was not refused anyway stays the same draw.
    if not bad & {one.utt for one in draw_mixture(pool, spec)}:
        assert drawn == draw_mixture(pool, spec)


def test_seeds_differ():
    shares = {"common_voice": Share(10)}
    draws = {tuple(draw_mixture(candidates(60), spec_of(shares, seed=seed))) for seed in range(3)}
    assert len(draws) == 3


@settings(max_examples=40)
@given(st.dictionaries(st.text("abc", min_size=1), st.integers(1, 400), min_size=1), st.integers(1, 900))
def test_apportionment(quotas, total):
    counts = apportion(quotas, total)
    assert sum(counts.values()) == total
    for name, quota in quotas.items():  # the quota rule: within one of the exact share
        assert abs(counts[name] - quota * total / sum(quotas.values())) < 1


def test_wrong_mixtures(tmp_path):
    with pytest.raises(ConfigError, match="add up to 3; the size, 4, expected"):
        MixtureSpec(1, 4, 4, "train", {"a": Share(3)})
    with pytest.raises(ConfigError, match="a pool of 3 of split 'test'"):
        MixtureSpec(1, 3, 3, "test", {"a": Share(3)})
    with pytest.raises(ConfigError, match="a: cap 0; at least 1"):
        spec_of({"a": Share(3, 0)})
    with pytest.raises(ConfigError, match="no mixture 'papers'; there are: paper, paper_dev"):
        load_mixture("papers")
    with pytest.raises(ConfigError, match="cap of 'b': one of a expected"):
        spec_of({"a": Share(3)}).with_caps({"b": 1})
    (path := tmp_path / "m.yaml").write_text("x: {seed: 1, size: 1, pool: 1, split: train}\n")
    with pytest.raises(ConfigError, match="m.yaml: mixture 'x': 'shares'"):
        load_mixture("x", path)


# ---- on disk -----------------------------------------------------------------------------------


def write_set(root: Path, corpus: str, part: str, split: str, clips: dict[str, dict]) -> Path:
    """Write a prepared set: utterance -> seconds, text, language, speaker."""
    folder, wav, segments = root / f"{corpus}_{part}_{split}", {}, {}
    folder.mkdir(parents=True)
    for utt, one in clips.items():
        wav[utt] = str(folder / f"{utt}.wav")
        soundfile.write(wav[utt], tone(utt, seconds=one.get("seconds", 0.4)), 16000)
        segments[utt] = f"{utt} 0.000 {one.get('cut', 0.3):.3f}"
    texts = {utt: one.get("text", f"words of {utt}") for utt, one in clips.items()}
    spk = {utt: one.get("speaker", utt) for utt, one in clips.items()}
    languages = {utt: one.get("lang", "en") for utt, one in clips.items()}
    cut = any("cut" in one for one in clips.values())
    KaldiDir(folder, wav, texts, spk, languages, segments if cut else None).save(folder)
    (folder / "prepared.json").write_text(json.dumps({"corpus": corpus, "part": part, "split": split}))
    return folder


SPEC = """
paper: {seed: 42, size: 5, pool: 8, split: train, shares: {fleurs: {quota: 3, cap: 4}, ami: {quota: 2}}}
paper_dev: {seed: 42, size: 2, pool: 2, split: dev, shares: {fleurs: {quota: 2}}}
"""


@pytest.fixture
def sets(tmp_path):
    """Return two prepared sets of FLEURS and one, with segments, of AMI; and the mixture's file."""
    (tmp_path / "m.yaml").write_text(SPEC)
    english = write_set(tmp_path, "fleurs", "en_us", "train", {f"fl-e{n}": {} for n in range(4)})
    zulu = write_set(
        tmp_path, "fleurs", "zu_za", "train", {f"fl-z{n}": {"lang": "auto"} for n in range(4)}
    )
    clips = {f"amiS-{n}": {"cut": 0.2 + n / 100, "speaker": "amiS"} for n in range(4)}
    return [english, zulu, write_set(tmp_path, "ami", "ihm", "train", clips)]


def test_a_pool_of_whole_files_and_segments(sets, tmp_path):
    drawn = make_pool(sets, tmp_path / "pool", load_mixture("paper", tmp_path / "m.yaml"))
    data = KaldiDir.load(tmp_path / "pool")
    assert set(data.utts) == {one.utt for one in drawn} and len(drawn) == 8
    assert Counter(one.locale for one in drawn[:5]) == {"ihm": 2, **Counter(
        one.locale for one in drawn[:5] if one.corpus == "fleurs")}  # fmt: skip
    for one in drawn:
        start, end = data.source(one.utt)[1:]
        assert (end is None) == one.utt.startswith("fl") and start == 0
        assert float(one.seconds) == (0.4 if end is None else end)
        assert data.languages()[one.utt] == one.lang
    about = json.loads((tmp_path / "pool/mixture.json").read_text())
    assert about["mixture"]["seed"] == 42 and about["locales"] == 3
    assert read_manifest(tmp_path / "pool/manifest.tsv") == drawn


def test_what_is_passed_over_is_counted(sets, tmp_path):
    spec = load_mixture("paper", tmp_path / "m.yaml")
    first = make_pool(sets, tmp_path / "pool", spec)
    lost = next(one.utt for one in first if one.lang == "en" and one.corpus == "fleurs")
    with pytest.raises(DataError, match=r"fleurs: 5 wanted, 4 of 8 candidates are usable \(2 locales"):
        make_pool(sets, tmp_path / "pool", spec, languages="named")
    again = make_pool(sets, tmp_path / "pool", spec, exclude={lost: "text x y"})
    assert lost not in {one.utt for one in again}
    about = json.loads((tmp_path / "pool/mixture.json").read_text())
    assert about["passed_over"]["excluded"] == 1 and about["excluded"] == 1
    with pytest.raises(DataError, match="ami: 3 wanted, 2 of 4"):
        make_pool(sets, tmp_path / "pool", spec, limits=(0.215, 30))
    for path in sets[1].glob("*.wav"):
        path.write_bytes(b"RIFF")
    with pytest.raises(DataError, match="fleurs: 5 wanted, 4 of 8"):
        make_pool(sets, tmp_path / "pool", spec)


def test_a_manifest_repeats_the_pool_elsewhere(sets, tmp_path, files_of):
    make_pool(sets, tmp_path / "pool", load_mixture("paper", tmp_path / "m.yaml"))
    manifest = tmp_path / "pool/manifest.tsv"
    drawn = repeat_pool(manifest, reversed(sets), tmp_path / "again", "train")
    one, two = files_of(tmp_path / "pool"), files_of(tmp_path / "again")
    assert {name: one[name] for name in one if name != "mixture.json"} == {
        name: two[name] for name in two if name != "mixture.json"
    }
    utt = drawn[0].utt
    table = next(folder for folder in sets if utt in KaldiDir.load(folder).utts) / "text"
    table.write_text(table.read_text().replace(f"{utt} words", f"{utt} other words"))
    with pytest.raises(DataError, match=f"1 differences .*line 2: utterance '{utt}': text_sha256 '"):
        repeat_pool(manifest, sets, tmp_path / "again", "train")
    with pytest.raises(DataError, match="line [0-9]+: utterance 'ami.*' of ami ihm is not there"):
        repeat_pool(manifest, sets[:2], tmp_path / "again", "train")


def test_only_prepared_sets_of_the_split(sets, tmp_path, make_dir):
    dev = write_set(tmp_path, "fleurs", "en_us", "dev", {"fl-d": {}})
    with pytest.raises(DataError, match="en_us_dev: is of the published split 'dev', 'train' expected"):
        Pool([*sets, dev], "train")
    other = make_dir(tmp_path / "other", {"a": (tone("a"), 16000)})
    with pytest.raises(DataError, match="prepared.json: not there"):
        Pool([other], "train")
    with pytest.raises(DataError, match="utterance 'fl-e0' is also in"):
        Pool([sets[0], sets[0]], "train")


@pytest.mark.parametrize(
    "text, message",
    [
        ("utt\tcorpus\n", r"manifest.tsv:1: columns \['utt', 'corpus'\]"),
        ("", "manifest.tsv:1: columns"),
        (None, "no such file; a manifest"),
    ],
)
def test_wrong_manifests(tmp_path, text, message):
    if text is not None:
        (tmp_path / "manifest.tsv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_manifest(tmp_path / "manifest.tsv")


# ---- the commands ------------------------------------------------------------------------------


def test_commands(sets, tmp_path, capsys):
    """Draw, repeat, then the activation set as stage 4 takes it: the manifest's first utterances."""
    words = (
        f"mixture --out {tmp_path}/pool --mixtures {tmp_path}/m.yaml --sets {' '.join(map(str, sets))}"
    )
    prepare.main(f"{words} --languages all".split())
    manifest = tmp_path / "pool/manifest.tsv"
    prepare.main(f"{words.replace('/pool', '/again')} --manifest {manifest}".split())
    assert capsys.readouterr().out == f"{tmp_path}/pool: 8 utterances\n{tmp_path}/again: 8 utterances\n"
    data, order = KaldiDir.load(tmp_path / "pool"), [one.utt for one in read_manifest(manifest)]
    write_kaldi_table(tmp_path / "pool/utt2num_samples", dict.fromkeys(data.utts, "6400"))
    command = ["--data_dir", f"{tmp_path}/pool", "--manifest", str(manifest), "--num"]
    smaller: set[str] = set()
    for num in (2, 5, 8):
        sample_activation.main([*command, str(num), "--output_dir", f"{tmp_path}/act{num}"])
        chosen = KaldiDir.load(tmp_path / f"act{num}").utts
        assert sorted(order[:num]) == chosen and smaller <= set(chosen)
        smaller = set(chosen)
    assert "act5: 5 of 8 utterances, first of " in capsys.readouterr().out
    with pytest.raises(DataError, match="9 utterances asked for, but .* has 8"):
        sample_activation.main([*command, "9", "--output_dir", f"{tmp_path}/act9"])
    with pytest.raises(ConfigError, match="'fleurs': CORPUS=VALUE expected"):
        prepare.main(f"{words} --cap fleurs".split())


def test_a_filtered_utterance_is_not_replaced_silently(sets, tmp_path):
    make_pool(sets, tmp_path / "pool", load_mixture("paper", tmp_path / "m.yaml"))
    manifest = tmp_path / "pool/manifest.tsv"
    order = [one.utt for one in read_manifest(manifest)]
    assert first_of(manifest, 3, order[:3]) == sorted(order[:3])
    with pytest.raises(DataError, match=f"1 of the first 3 utterances .* not in the pool, '{order[1]}'"):
        first_of(manifest, 3, [order[0], order[2]])
