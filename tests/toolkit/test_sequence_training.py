"""Sequence training of a small stock CTC model through ESPnet's trainer: what is written and resumed."""

import csv
import json

import kaldiio
import numpy as np
import pytest
import torch
import yaml

pytest.importorskip("espnet2", reason="ESPnet is not installed")

from espnet_latentasr.bin import asr_train, ctc_greedy, ctc_variance, sequence_train
from espnet_latentasr.data.kaldi_dir import read_kaldi_table, write_kaldi_table
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.sequence.config import MODEL_KEYS
from espnet_latentasr.toolkit.asr import ASRTask
from espnet_latentasr.toolkit.ctc_posteriors import CtcModel

TOKENS = ["<blank>", "<unk>", "a", "b", "c", "<sos/eos>"]
TEXTS = ["a b", "b c", "c a b", "b", "a c", "c"]
SETTINGS = {
    "token_type": "word",
    "encoder": "transformer",
    "encoder_conf": {
        "output_size": 8, "attention_heads": 2, "linear_units": 8, "num_blocks": 1,
        "input_layer": "linear", "dropout_rate": 0.3,
    },
    "model_conf": {"ctc_weight": 1.0, "extract_feats_in_collect_stats": False},
    "input_size": 4,
    "optim": "adam",
    "optim_conf": {"lr": 0.02},
    "max_epoch": 20,
    "batch_type": "unsorted",
    "batch_size": 4,
    "num_workers": 0,
    "best_model_criterion": [["valid", "loss", "min"]],
    "keep_nbest_models": 1,
    "use_matplotlib": False,
    "use_tensorboard": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A noisy task, options that read it, and a CTC model trained on it by stock ESPnet."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("sequence")
    rng, marks = np.random.default_rng(0), np.eye(4)
    speech, text = {}, {}
    for index in range(12):
        utt_id, words = f"utt{index:02d}", TEXTS[index % len(TEXTS)].split()
        clean = np.repeat([marks["abc".index(w)] for w in words] + [marks[3]], 3, axis=0)
        speech[utt_id] = (clean + 0.7 * rng.standard_normal(clean.shape)).astype(np.float32)
        text[utt_id] = " ".join(words)
    kaldiio.save_ark(str(root / "f.ark"), speech, scp=str(root / "f.scp"))
    write_kaldi_table(root / "text", text)
    write_kaldi_table(root / "shape", {utt: f"{len(m)},4" for utt, m in speech.items()})
    (root / "tokens.txt").write_text("".join(f"{t}\n" for t in TOKENS))
    options = ["--ngpu", "0"]
    for part in ("train", "valid"):
        options += [f"--{part}_data_path_and_name_and_type", f"{root / 'f.scp'},speech,kaldi_ark"]
        options += [f"--{part}_data_path_and_name_and_type", f"{root / 'text'},text,text"]
        options += [f"--{part}_shape_file", str(root / "shape")]
    (root / "ctc.yaml").write_text(yaml.safe_dump(SETTINGS))
    (root / "new.yaml").write_text(
        yaml.safe_dump({k: v for k, v in SETTINGS.items() if k not in MODEL_KEYS}
                       | {"optim_conf": {"lr": 0.003}, "max_epoch": 2,
                          "best_model_criterion": [["valid", "word_errors", "min"]]})
    )  # fmt: skip
    asr_train.main(
        ["--config", str(root / "ctc.yaml"), "--token_list", str(root / "tokens.txt"), *options]
        + ["--output_dir", str(root / "ctc"), "--seed", "1"]
    )
    return root, options


def train(prepared, output, *extra, conf="{}"):
    root, options = prepared
    sequence = ["--config", str(root / "new.yaml"), "--init_config", str(root / "ctc/config.yaml")]
    sequence += ["--init_param", str(root / "ctc/valid.loss.best.pth"), "--output_dir", str(output)]
    loose = ["--sequence_conf", "guards.max_nll=5.0"]
    sequence_train.main(
        [*sequence, *options, "--sequence_conf", conf, *loose, "--resume", "true", *extra]
    )
    return torch.load(output / "latest.pth", weights_only=True)


def trajectory(output):
    return list(csv.DictReader((output / "trajectory.csv").open()))


@pytest.fixture(scope="module")
def trained(prepared, tmp_path_factory):
    output = tmp_path_factory.mktemp("mwer")
    return output, train(prepared, output)


def test_stock_espnet_loads_what_was_trained(trained, prepared):
    root, _ = prepared
    output, states = trained
    start = torch.load(root / "ctc/valid.loss.best.pth", weights_only=True)
    assert states.keys() == start.keys(), "parameters keep the stock model's names"
    assert any(not torch.equal(states[key], start[key]) for key in states)
    model, args = ASRTask.build_model_from_file(output / "config.yaml", output / "latest.pth", "cpu")
    assert args.encoder_conf == SETTINGS["encoder_conf"] and list(args.token_list) == TOKENS
    from espnet2.bin.asr_inference import Speech2Text

    speech = dict(kaldiio.load_scp(str(root / "f.scp")))["utt00"]
    found = Speech2Text(
        output / "config.yaml", output / "latest.pth", ctc_weight=1.0, beam_size=2, token_type="word"
    )(torch.tensor(speech))
    assert set(found[0][1]) <= set(TOKENS)


def test_trajectory_starts_at_the_checkpoint_and_both_rates_are_labelled(trained, prepared):
    root, _ = prepared
    output, _ = trained
    rows = trajectory(output)
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert [row["steps"] for row in rows] == ["0", "3", "6"]
    refs, config = read_kaldi_table(root / "text"), root / "ctc/config.yaml"
    decoded = ["--job", config, root / "ctc/valid.loss.best.pth", output / "decode"]
    decoded += ["--input", root / "f.scp", "--token_type", "word"]
    ctc_greedy.main(list(map(str, decoded)))
    found = read_kaldi_table(output / "decode/text", allow_empty=True)
    assert read_kaldi_table(output / "valid_text/0", allow_empty=True) == found
    wrong = sum(found[u] != refs[u] for u in refs)
    assert (float(rows[0]["wer_corpus"]) > 0) == (wrong > 0)
    assert rows[0]["words"] == str(sum(len(t.split()) for t in refs.values()))
    assert float(rows[0]["wer_corpus"]) == pytest.approx(
        100 * int(rows[0]["errors"]) / int(rows[0]["words"])
    )
    assert float(rows[1]["train_usable"]) > 0 and 0 < float(rows[1]["train_list_mass"]) <= 1
    guards = json.loads((output / "guards.json").read_text())
    assert guards["utterances"] == 12 and guards["unk_rate"] == 0 and guards["nbest_scale"] == 1


@pytest.mark.parametrize("conf", ["{}", "{mwer: {kind: grpo, reference_sync: 2}}"])
def test_resumed_equals_uninterrupted(prepared, tmp_path, conf):
    whole = train(prepared, tmp_path / "whole", conf=conf)
    train(prepared, tmp_path / "parts", "--max_epoch", "1", conf=conf)
    resumed = train(prepared, tmp_path / "parts", conf=conf)
    for key, value in whole.items():
        assert torch.equal(value, resumed[key]), key
    assert trajectory(tmp_path / "whole") == trajectory(tmp_path / "parts")


def test_kinds_differ_and_the_seed_decides(prepared, trained, tmp_path):
    same = train(prepared, tmp_path / "same")
    raft = train(prepared, tmp_path / "raft", conf="{objective: raft, list: {size: 8, num_paths: 16}}")
    other = train(prepared, tmp_path / "seed", "--seed", "7")
    key = "ctc.ctc_lo.weight"
    assert torch.equal(same[key], trained[1][key])
    assert not torch.equal(raft[key], same[key]) and not torch.equal(other[key], same[key])


def test_what_cannot_be_trained_is_refused_before_the_first_step(prepared, tmp_path):
    root, options = prepared
    with pytest.raises(DataError, match="<unk>, at most 1 % expected: is the transcript in another case"):
        write_kaldi_table(
            root / "upper", {u: t.upper() for u, t in read_kaldi_table(root / "text").items()}
        )
        upper = [o.replace(f"{root / 'text'},", f"{root / 'upper'},") for o in options]
        train((root, upper), tmp_path / "upper")
    assert json.loads((tmp_path / "upper/guards.json").read_text())["unk_rate"] == 1
    assert not (tmp_path / "upper/checkpoint.pth").exists()
    with pytest.raises(DataError, match="nats per token"):
        train(prepared, tmp_path / "nll", "--sequence_conf", "guards.max_nll=1.0e-6")
    with pytest.raises(ConfigError, match="--init_param: the parameters of a trained CTC model"):
        train(prepared, tmp_path / "init", "--init_param")
    with pytest.raises(ConfigError, match="belong together"):
        sequence_train.main(["--config", str(root / "new.yaml"), "--output_dir", str(tmp_path)])


def test_variances_of_a_model_and_of_its_posteriors(prepared, tmp_path):
    root, _ = prepared
    config, weights = root / "ctc/config.yaml", root / "ctc/valid.loss.best.pth"
    shared = ["--ref", root / "text", "--token_type", "word", "--seed", 3]
    model = ["--asr_train_config", config, "--asr_model_file", weights, "--input", root / "f.scp"]
    ctc_variance.main(list(map(str, [*model, *shared, "--draws", 64, "--out", tmp_path / "weight"])))
    from espnet_latentasr.toolkit.ctc_posteriors import write_posteriors

    write_posteriors(CtcModel(config, weights), root / "f.scp", tmp_path / "logp")
    ctc_variance.main(
        list(map(str, ["--posteriors", tmp_path / "logp", *shared, "--out", tmp_path / "logits"]))
    )
    for name in ("weight", "logits"):
        rows = list(csv.DictReader((tmp_path / name / "variance.csv").open()))
        assert rows and all(float(r["sampled expected"]) >= float(r["marginal"]) for r in rows)
        ratios = {r["ratio"]: r for r in csv.DictReader((tmp_path / name / "ratios.csv").open())}
        expected = ratios["expected sampled / marginal"]
        assert expected["below 1"] == "0" and float(expected["mean low"]) >= 1
    with pytest.raises(ConfigError, match="--posteriors, or --asr_train_config"):
        ctc_variance.main(["--ref", "x", "--out", "y"])
