"""Training through ESPnet's own trainer, in this process: what is saved, resumed and reported."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml

pytest.importorskip("espnet2", reason="ESPnet is not installed")

from espnet_latentasr.bin import freeze_backbone, latentasr_train
from espnet_latentasr.config import PromptConfig
from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.decode.baseline import baseline_pass
from espnet_latentasr.decode.loading import load_recogniser
from espnet_latentasr.errors import ConfigError

CONF = Path(__file__).parents[2] / "egs2/latentasr/asr1/conf"
TEXTS = ["turn on the light", "call ann", "seven five nine zero", "jan in the kitchen"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, tiny_backbone_dir, clips):
    """Stages 1 to 10 on eight tones: returns (folder, training options)."""
    root = tmp_path_factory.mktemp("recipe")
    freeze_backbone.main(["--name", str(tiny_backbone_dir), "--output_dir", str(root / "backbone")])
    data = root / "dump/train"
    ids = [f"utt{index}" for index in range(len(clips))]
    wav = {utt_id: str(data / f"{utt_id}.wav") for utt_id in ids}
    data.mkdir(parents=True)
    for utt_id, clip in zip(ids, clips):
        soundfile.write(wav[utt_id], clip, 16000, "PCM_16")
    text = {utt_id: TEXTS[index % 4] for index, utt_id in enumerate(ids)}
    lang = dict.fromkeys(ids, "en")
    tables = {"wav.scp": wav, "text": text, "utt2spk": {i: i for i in ids}, "utt2lang": lang}
    for name, table in (tables | {"spk2utt": {i: i for i in ids}}).items():
        write_kaldi_table(data / name, table)
    backbone = load_recogniser(root / "backbone").recogniser.backbone
    baseline_pass(backbone, PromptConfig(), data, root / "cache", batch_size=4)
    options = ["--backbone_dir", str(root / "backbone"), "--ngpu", "0", "--seed", "3"]
    for split in ("train", "valid"):
        for place, name, kind in (
            (root / "cache/audio_embeds.scp", "speech_states", "kaldi_ark"),
            (data / "text", "text", "text"),
            (root / "cache/baseline", "baseline", "text_float"),
            (data / "utt2lang", "lang", "text"),
        ):
            options += [f"--{split}_data_path_and_name_and_type", f"{place},{name},{kind}"]
    stats = root / "stats"
    shapes = [f"--{split}_shape_file={data / 'wav.scp'}" for split in ("train", "valid")]
    latentasr_train.main(
        [*options, *shapes, "--collect_stats", "true", "--output_dir", str(stats)]
        + ["--config", str(CONF / "train_latent.yaml")]
    )
    for split in ("train", "valid"):
        options.append(f"--{split}_shape_file={stats / split / 'speech_states_shape'}")
    return root, options


def train(prepared, output, config="train_latent.yaml", **over):
    _, options = prepared
    flags = {"max_epoch": 2, "batch_size": 4, "num_workers": 0, "resume": "true"} | over
    extra = [part for key, value in flags.items() for part in (f"--{key}", str(value))]
    latentasr_train.main(
        [*options, "--config", str(CONF / config), "--output_dir", str(output), *extra]
    )
    return torch.load(output / "latest.pth", weights_only=True)


@pytest.fixture(scope="module")
def trained(prepared, tmp_path_factory):
    output = tmp_path_factory.mktemp("asr")
    return output, train(prepared, output, "train_latent_paper.yaml")


def test_checkpoints_hold_the_method_only(trained):
    output, states = trained
    prefixes = {".".join(key.split(".")[:2]) for key in states}
    assert prefixes == {"method.adapter", "method.value_head"}
    saved = torch.load(output / "checkpoint.pth", weights_only=False)
    assert saved["model"].keys() == states.keys()
    assert (output / "valid.ce.best.pth").resolve().is_file()


def test_config_yaml_is_complete_and_names_the_recogniser(trained, prepared):
    saved = yaml.safe_load((trained[0] / "config.yaml").read_text())
    assert saved["latent_conf"]["steps"] == 4 and saved["latent_conf"]["scale"]["cap"] == 3.0
    assert saved["value_conf"]["alpha"] == 0.9 and saved["prompt_conf"]["user_text"] == ""
    loaded = load_recogniser(
        prepared[0] / "backbone", trained[0] / "config.yaml", trained[0] / "latest.pth"
    )
    assert saved["backbone_fingerprint"] == loaded.backbone_fingerprint
    for key, value in loaded.recogniser.method.state_dict().items():
        assert torch.equal(value, trained[1][f"method.{key}"])


def test_groups_have_their_own_learning_rates(trained):
    groups = torch.load(trained[0] / "checkpoint.pth", weights_only=False)["optimizers"][0]
    rates = [(group["lr"], group["weight_decay"]) for group in groups["param_groups"]]
    assert rates == [(1.0e-4, 0.01), (5.0e-5, 0.0)]


def test_resumed_equals_uninterrupted(prepared, tmp_path, monkeypatch):
    from espnet_latentasr.toolkit.trainer import LatentTrainer

    whole = train(prepared, tmp_path / "whole", num_workers=0)
    original = LatentTrainer.train_one_epoch.__func__
    calls = []

    def killed(cls, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(cls, **kwargs)

    monkeypatch.setattr(LatentTrainer, "train_one_epoch", classmethod(killed))
    with pytest.raises(KeyboardInterrupt):
        train(prepared, tmp_path / "killed")
    monkeypatch.undo()
    resumed = train(prepared, tmp_path / "killed")
    assert whole.keys() == resumed.keys()
    for key, value in whole.items():
        assert torch.equal(value, resumed[key]), key


def test_training_moves_every_trained_tensor(prepared, tmp_path):
    one = train(prepared, tmp_path / "one", max_epoch=1)
    two = train(prepared, tmp_path / "two", max_epoch=3)
    fixed = {"method.adapter.anchor"}
    for key in one:
        assert torch.equal(one[key], two[key]) == (key in fixed), key


def test_an_unknown_key_stops_before_any_work(prepared, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(f"base: {CONF}/train_latent.yaml\nlatent_conf: {{stepz: 3}}\n")
    with pytest.raises(ConfigError, match=r"model.latent.stepz.*did you mean 'model.latent.steps'"):
        train(prepared, tmp_path / "out", config=bad)


def test_another_recogniser_is_refused_at_load(trained, prepared, tmp_path):
    record = prepared[0] / "backbone/backbone.json"
    shutil.copytree(record.parent, tmp_path / "backbone")
    changed = record.read_text().replace('"fingerprint": "sha256:', '"fingerprint": "sha256:0')
    (tmp_path / "backbone/backbone.json").write_text(changed)
    with pytest.raises(ConfigError, match="run again from stage 5"):
        load_recogniser(tmp_path / "backbone")
    saved = yaml.safe_load((trained[0] / "config.yaml").read_text())
    saved["backbone_fingerprint"] = "sha256:other"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(saved))
    with pytest.raises(ConfigError, match="fits the recogniser it was trained on only"):
        load_recogniser(
            prepared[0] / "backbone", tmp_path / "config.yaml", trained[0] / "latest.pth"
        )


def test_parameters_of_another_shape_are_refused(trained, prepared, tmp_path):
    states = dict(trained[1])
    states["method.adapter.step_embedding"] = torch.zeros(2, 64)
    torch.save(states, tmp_path / "odd.pth")
    with pytest.raises(ConfigError, match=r"step_embedding has shape \(2, 64\)"):
        load_recogniser(prepared[0] / "backbone", trained[0] / "config.yaml", tmp_path / "odd.pth")
    del states["method.value_head.linear.bias"]
    torch.save(states, tmp_path / "odd.pth")
    with pytest.raises(ConfigError, match="value_head.linear.bias"):
        load_recogniser(prepared[0] / "backbone", trained[0] / "config.yaml", tmp_path / "odd.pth")


def test_speech2text_is_espnets_call(trained, prepared, clips):
    from espnet_latentasr.decode.speech2text import Speech2Text

    speech2text = Speech2Text(
        prepared[0] / "backbone",
        trained[0] / "config.yaml",
        trained[0] / "latest.pth",
        CONF / "decode_frozen.yaml",
    )
    frozen = Speech2Text(prepared[0] / "backbone")
    (text, tokens, ids, hypothesis), (expected, *_) = speech2text(clips[0])[0], frozen(clips[0])[0]
    assert text == expected and len(tokens) == len(ids) == len(hypothesis.tokens)
    with pytest.raises(ValueError, match="one mono clip"):
        speech2text(np.zeros((2, 100)))


def test_a_cache_of_another_prompt_is_refused(prepared, tmp_path):
    """Its baseline would be another one, and every value target wrong."""
    other = tmp_path / "hot_words.yaml"
    other.write_text(f"base: {CONF}/train_latent.yaml\nprompt_conf: {{context: ann jan}}\n")
    with pytest.raises(ConfigError, match="holds the frozen pass of.*run stage 6 again"):
        train(prepared, tmp_path / "out", config=other)


def test_an_unfinished_cache_is_refused(prepared, tmp_path):
    marker = prepared[0] / "cache/cache_key"
    key = marker.read_text()
    marker.unlink()
    try:
        with pytest.raises(ConfigError, match="nothing complete"):
            train(prepared, tmp_path / "out")
    finally:
        marker.write_text(key)


@pytest.mark.slow
@pytest.mark.parametrize("refresh", ["batch", "epoch"])
def test_sequence_training_starts_from_an_adapter_and_resumes(
    prepared, trained, tmp_path, monkeypatch, refresh
):
    """The lists that a resumed run draws are those of an uninterrupted one."""
    from espnet_latentasr.toolkit.trainer import LatentTrainer

    config = tmp_path / "mwer.yaml"
    config.write_text(
        f"base: {CONF}/train_latent_paper.yaml\n"
        f"loss_conf: {{mwer: {{kind: nbest, samples: 2, temperature: 50, refresh: {refresh}}}}}\n"
        "best_model_criterion: [[valid, wer, min]]\n"
    )
    start = {"init_param": trained[0] / "latest.pth"}
    whole = train(prepared, tmp_path / "whole", config, **start)
    assert (tmp_path / "whole/valid.wer.best.pth").resolve().is_file()
    log = yaml.safe_load((tmp_path / "whole/config.yaml").read_text())
    assert log["loss_conf"]["mwer"]["refresh"] == refresh
    assert any(not torch.equal(value, trained[1][key]) for key, value in whole.items())
    load_recogniser(
        prepared[0] / "backbone", tmp_path / "whole/config.yaml", tmp_path / "whole/latest.pth"
    )
    original, calls = LatentTrainer.train_one_epoch.__func__, []

    def killed(cls, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(cls, **kwargs)

    monkeypatch.setattr(LatentTrainer, "train_one_epoch", classmethod(killed))
    with pytest.raises(KeyboardInterrupt):
        train(prepared, tmp_path / "killed", config, **start)
    monkeypatch.undo()
    resumed = train(prepared, tmp_path / "killed", config, **start)
    for key, value in whole.items():
        assert torch.equal(value, resumed[key]), key
