"""A small decoded and scored experiment, in the layout that decoding and scoring write."""

import json

import numpy as np
import pytest
import soundfile

from espnet_latentasr.data.kaldi_dir import KaldiDir, write_kaldi_table
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.score_dir import write_score_dir

STEPS, WORDS = 3, "one two three four five six seven eight nine zero".split()
HOSTILE_ID = "spk00-<svg|onload=alert`1`>&\"'"
HOSTILE = "<script>document.title='broken'</script> & \"quoted\" | `code` *x*"


def spoil(rng, words, rate):
    return " ".join(w if rng.random() > rate else str(rng.choice(WORDS)) for w in words)


def make_data_dir(folder, count, seed, hostile=False):
    """A Kaldi directory of ``count`` utterances with audio; file names with a blank and a hash sign."""
    rng = np.random.default_rng(seed)
    utts = [f"spk{i % 3:02d}-{folder.name}-{i:03d}" for i in range(count)]
    text = {utt: " ".join(rng.choice(WORDS, 3 + i % 5)) for i, utt in enumerate(utts)}
    if hostile:
        text[HOSTILE_ID] = HOSTILE
    wav = {}
    (folder / "wavs").mkdir(parents=True)
    for i, utt in enumerate(text):
        wav[utt] = str(folder / "wavs" / f"clip #{i}.wav")
        soundfile.write(wav[utt], rng.normal(0, 0.1, 1600 + 16 * i), 16000, subtype="PCM_16")
    speakers = {utt: utt[:5] for utt in text}
    return KaldiDir(folder, wav, text, speakers, dict.fromkeys(text, "en")).save(folder)


def write_decoding(folder, data, texts, records, nbest=None):
    """text, latent.jsonl, nbest.jsonl and score_wer of one decoded set."""
    folder.mkdir(parents=True)
    write_kaldi_table(folder / "text", texts)
    hyps = nbest or {utt: [(text, records[utt]["steps"])] for utt, text in texts.items()}
    rows = [
        {"utt_id": utt, "hyps": [
            {"text": text, "depth": depth, "am_logp": -0.1 * len(text), "n_tok": len(text.split())}
            for text, depth in hyps[utt]]}
        for utt in texts
    ]  # fmt: skip
    (folder / "nbest.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    lines = (json.dumps(records[utt]) + "\n" for utt in texts)
    (folder / "latent.jsonl").write_text("".join(lines), encoding="utf-8")
    result = score(data.text, texts, "wer", get_normalizer("none"))
    write_score_dir(folder / "score_wer", result, data.utt2spk, language="en")


def make_records(rng, utts, depths=False):
    records = {}
    for utt in utts:
        values = rng.normal(0, 0.3, STEPS + 1).round(3).tolist()
        below = [k for k in range(1, STEPS + 1) if values[k] < 0]
        steps = 0 if values[0] < 0 else below[0] if below else STEPS
        made = STEPS if depths else steps
        updates = rng.normal(size=(made, 4))
        norms = np.linalg.norm(updates, axis=1)
        dots = (updates[1:] * updates[:-1]).sum(1)
        records[utt] = {
            "utt_id": utt, "values": values if depths else values[: steps + 1], "steps": steps,
            "stopped": "entry" if steps == 0 else "budget" if steps == STEPS else "step",
            "update_norms": norms.tolist(),
            "update_cosines": (dots / (norms[1:] * norms[:-1])).tolist(),
            "update_jumps": np.linalg.norm(updates[1:] - updates[:-1], axis=1).tolist(),
            "capped": False, "audio_seconds": 1.0,
            "seconds": {"encode": 0.01, "prefill": 0.01, "loop": 0.002 * steps, "decode": 0.01},
        }  # fmt: skip
    return records


@pytest.fixture
def hostile_id():
    return HOSTILE_ID


@pytest.fixture(scope="session")
def make_experiment():
    """Write data and an experiment below a folder; return the experiment's path."""

    def make(root, sets, seed=0, name="asr_test", all_depths=True):
        rng = np.random.default_rng(seed)
        exp = root / "exp" / name
        for place, (test_set, count) in enumerate(sets.items()):
            folder = root / "dump" / "raw" / test_set
            if folder.is_dir():
                data = KaldiDir.load(folder)
            else:
                data = make_data_dir(folder, count, seed + place, hostile=place == 0)
            utts = data.utts
            words = {utt: data.text[utt].split() for utt in utts}
            depths = {
                utt: [spoil(rng, words[utt], 0.3 - 0.03 * k) for k in range(STEPS + 1)] for utt in utts
            }
            records = make_records(rng, utts, depths=True)
            chosen = {utt: depths[utt][records[utt]["steps"]] for utt in utts}
            frozen = {
                utt: row | {"values": [], "steps": 0, "stopped": "entry", "update_norms": [],
                            "update_cosines": [], "update_jumps": []}
                for utt, row in records.items()
            }  # fmt: skip
            write_decoding(
                exp / "decode_frozen" / test_set, data, {u: d[0] for u, d in depths.items()}, frozen
            )
            write_decoding(exp / "decode_latent" / test_set, data, chosen, records)
            if all_depths:
                nbest = {utt: [(text, k) for k, text in enumerate(row)] for utt, row in depths.items()}
                write_decoding(exp / "decode_depths" / test_set, data, chosen, records, nbest)
        return exp

    return make


@pytest.fixture(scope="session")
def experiment(make_experiment, tmp_path_factory):
    """Root of data and an experiment with two test sets and a development set; read only."""
    root = tmp_path_factory.mktemp("recipe")
    make_experiment(root, {"test_a": 40, "test_b": 30, "valid": 30})
    make_data_dir(root / "dump" / "raw" / "train", 10, 9)
    return root
