"""docs/DATA_FORMATS.md: every example is read by the reader that the toolkit itself uses."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from espnet_latentasr.analysis.decoded import read_decoded
from espnet_latentasr.data import manifest
from espnet_latentasr.data.audio import REMEDIES
from espnet_latentasr.data.format import FormatResult
from espnet_latentasr.data.formats.base import ReadOptions
from espnet_latentasr.data.formats.hf_write import FEATURES
from espnet_latentasr.data.formats.lhotse import read_lhotse
from espnet_latentasr.data.formats.nemo import read_nemo
from espnet_latentasr.data.journal import finished
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table
from espnet_latentasr.data.length_filter import REASONS, filter_data_dir
from espnet_latentasr.data.noise import COLUMNS
from espnet_latentasr.data.recorded_noise import list_noise
from espnet_latentasr.data.skipped import read_skipped
from espnet_latentasr.data.stress import read_manifest
from espnet_latentasr.rescoring.nbest_list import read_nbest
from espnet_latentasr.rescoring.ngram import read_arpa
from espnet_latentasr.text.sclite import read_result_row
from espnet_latentasr.text.score_dir import read_score_json

DOC = Path(__file__).parents[1] / "docs" / "DATA_FORMATS.md"
SECTION = re.compile(r"^### (.+)\n(?:(?!#|```).*\n)*```text\n((?:.*\n)*?)```$", re.MULTILINE)
EXAMPLES = {name.replace("`", ""): block for name, block in SECTION.findall(DOC.read_text("utf-8"))}


def example(name: str) -> str:
    return EXAMPLES[name]


@pytest.fixture
def put(tmp_path):
    """Write an example as a file of its name and return the path."""

    def write(name: str, to: str | None = None) -> Path:
        path = tmp_path / (to or name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(example(name), encoding="utf-8")
        return path

    return write


@pytest.fixture
def data(put):
    """The Kaldi directory that the examples make together."""
    for name in ("wav.scp", "text", "utt2spk", "spk2utt", "utt2lang"):
        folder = put(name, f"data/{name}").parent
    return KaldiDir.load(folder)


def tsv(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_kaldi_directory(data, put, tmp_path):
    assert len(data.utts) == 2
    assert set(data.languages().values()) == {"en"}
    segments = read_kaldi_table(put("segments"))
    spk = dict.fromkeys(segments, "en-gb-scotland_Alex")
    cut = KaldiDir(tmp_path, {"radio1": "/x.flac"}, spk, spk, segments=segments)
    assert [cut.source(utt)[1:] for utt in cut.utts] == [(0.0, 1.952), (2.4, None)]
    put("utt2num_samples", "data/utt2num_samples")
    assert put("feats_type").read_text() == "raw\n"
    report = filter_data_dir(data.path, tmp_path / "filtered", "train", (0.1, 2.0))
    assert [drop.detail[:7] for drop in report.dropped] == ["2.653 s"]
    assert (tmp_path / "filtered" / "feats_type").read_text() == example("feats_type")
    assert read_kaldi_table(put("utt2original")) == {"talk_1_a": "talk 1/a"}


def test_left_out(put):
    assert [reason in REMEDIES for _, reason, _ in read_skipped(put("skipped.tsv"))] == [True]
    assert [reason in REASONS for _, reason, _ in read_skipped(put("filtered.tsv"))] == [True]
    (result,) = finished(put(".format_journal.jsonl"), FormatResult)
    assert (result.utt_id, result.num_samples) == ("clip1", 31232)


def test_noise(put, tmp_path, data):
    for value in read_kaldi_table(put("utt2noise")).values():
        seed, asked, achieved, gain = value.split()
        assert (int(seed), float(asked), float(gain)) == (0, 0.0, 1.0)
        assert abs(float(achieved)) < 0.01
    rows = tsv(put("noise.tsv"))
    assert tuple(rows[0]) == COLUMNS
    assert [(row["utt"], row["fit"]) for row in rows] == [(utt, "cropped") for utt in data.utts]
    assert json.loads(example("noise.json"))["snrs"] == [0.0]
    scp = put("noise.scp", "noise/noise.scp")
    for path in read_kaldi_table(scp).values():
        (scp.parent / path).touch()
    assert [file.noise_id for file in list_noise(scp.parent)] == ["kitchen", "rain-1"]
    assert read_manifest(put("stress_suite.tsv"), {"test_text": data}) == {"test_text": data.utts}
    assert [one.corpus for one in manifest.read_manifest(put("manifest.tsv"))] == ["common_voice"]


def test_manifests_of_others(put):
    files = [put("recordings.jsonl"), put("supervisions.jsonl")]
    (u,) = read_lhotse(files, ReadOptions()).utterances
    assert (u.utt_id, u.source[1:], u.language) == ("en-gb-scotland_Alex-part1", (0.0, 1.952), "en")
    (other,) = read_nemo([put("manifest.jsonl")], ReadOptions()).utterances
    assert (other.utt_id, other.text, other.speaker) == (u.utt_id, u.text, u.speaker)
    assert json.loads(example("dataset_info.json")) == {"features": FEATURES}


def test_decoding(put):
    """The decoded folder as the report reads it."""
    names = {
        "latent.jsonl": None,
        "identity.json": None,
        "nbest.jsonl": None,
        "text (of hypotheses)": "text",
    }
    for name, to in names.items():
        folder = put(name, f"exp/decode/set/{to or name}").parent
    for name in ("per_utt.csv", "score.json"):
        put(name, f"exp/decode/set/score_wer/{name}")
    decoded = read_decoded(folder)
    assert (decoded.errors.tolist(), decoded.steps.tolist()) == ([1, 2], [1, 1])
    assert read_score_json(folder / "score_wer" / "score.json")["unit"] == "wer"
    lists = list(read_nbest(folder / "nbest.jsonl"))
    assert [len(one) for one in lists] == [2, 2]
    tokens, ids, scores, texts = (
        read_kaldi_table(put(name), allow_empty=True)
        for name in ("token", "token_int", "score", "text (of hypotheses)")
    )
    for one in lists:
        assert ids[one.utt_id] == " ".join(map(str, one.hyps[1].tokens))
        assert len(tokens[one.utt_id].split()) == len(one.hyps[1].tokens)
        assert float(scores[one.utt_id]) == pytest.approx(one.hyps[1].am_logp, abs=1e-4)
        assert texts[one.utt_id] == one.hyps[1].text


def test_scores(put):
    row = read_result_row(put("result.txt"))
    score = json.loads(example("score.json"))
    assert row["Err"] == pytest.approx(score["rates"]["Err"], abs=0.05)
    assert row["Snt"] == score["counts"]["sentences"]
    for name in ("ref.trn", "hyp.trn"):
        assert all(re.fullmatch(r".+ \(\S+-\S+\)", line) for line in example(name).splitlines())
    with open(put("top_errors.csv"), newline="") as file:
        assert [row["kind"] for row in csv.DictReader(file)] == ["substitution"] * 2


def test_language_models(put, tmp_path):
    from espnet_latentasr.rescoring.score_cache import ScoreCache

    assert read_arpa(put("ngram.arpa")) is not None
    identity = json.loads(example("scores/identity.json"))
    cache = ScoreCache(tmp_path / "cache", identity)
    put("shard.9f0a.jsonl", f"cache/{cache.key}/shard.9f0a.jsonl")
    assert ScoreCache(tmp_path / "cache", identity).scores == {"send nine to david and john": -21.4427}


def test_recogniser_and_cache(put, tmp_path, caplog):
    from types import SimpleNamespace

    import torch

    from espnet_latentasr.backbone.frozen import read_frozen
    from espnet_latentasr.decode.baseline import check_cache
    from espnet_latentasr.decode.encoder_cache import EncoderCache
    from espnet_latentasr.rescoring.ctc_nbest import recorded_model

    record = read_frozen(put("backbone.json").parent)
    assert example("tokens.txt").splitlines() == ["!", '"', "#"]
    check_cache(put("cache_key", "cache/cache_key").parent, example("cache_key").strip())
    index = put("shard.0000.json", "cache/shard.0000.json")
    (tmp_path / "cache" / "shard.0000.ark").write_bytes(bytes(json.loads(index.read_text())["bytes"]))
    backbone = SimpleNamespace(fingerprint=record.fingerprint, embedding_table=torch.zeros(1))
    assert len(EncoderCache(tmp_path / "cache", backbone).entries) == 1
    for name, fields in (("audio_embeds.scp", 1), ("baseline", 2), ("hyp", 6)):
        assert all(len(v.split()) == fields for v in read_kaldi_table(put(name)).values())
    posteriors = put("ctc_logp.scp", "post/ctc_logp.scp")
    assert len(read_kaldi_table(posteriors)) == 1
    put("posteriors.json", "post/posteriors.json")
    assert recorded_model(posteriors).startswith("sha256:58c8b316ec059267")


def test_no_example_is_unread():
    source = Path(__file__).read_text(encoding="utf-8")
    assert len(EXAMPLES) > 40
    assert [name for name in EXAMPLES if f'"{name}"' not in source] == []
    headings = re.findall(r"^### (.+)$", DOC.read_text("utf-8"), re.MULTILINE)
    assert [h.replace("`", "") for h in headings] == list(EXAMPLES)
