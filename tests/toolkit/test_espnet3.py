"""ESPnet3: task, data and call by dotted path, from the recipe's own YAMLs, equal to the ESPnet2 path."""

from pathlib import Path

import pytest

pytest.importorskip(
    "espnet3",
    reason="ESPnet3 is part of espnet 202609 and later (Python 3.12, 3.13), with its 'train' extra",
    exc_type=ImportError,
)
pytest.importorskip("lightning", reason="comes with ESPnet's 'train' extra", exc_type=ImportError)

import soundfile
import torch
from espnet3.systems.launch import launch
from omegaconf import OmegaConf

from espnet_latentasr.bin import freeze_backbone, latentasr_train
from espnet_latentasr.config import PromptConfig
from espnet_latentasr.data.kaldi_dir import read_kaldi_table, write_kaldi_table
from espnet_latentasr.decode.baseline import baseline_pass
from espnet_latentasr.decode.loading import load_recogniser
from espnet_latentasr.decode.speech2text import Speech2Text
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.toolkit.espnet3 import Collate, LatentASRSystem, arguments

CONF = Path(__file__).parents[2] / "egs2/latentasr/asr1/conf"
TEXTS = ["turn on the light", "call ann", "seven five nine zero", "jan in the kitchen"]


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_backbone_dir, clips):
    """What run.sh leaves after stage 10, on eight tones whose ids are digits."""
    root = tmp_path_factory.mktemp("recipe")
    data = root / "dump/raw/tones"
    data.mkdir(parents=True)
    ids = [f"{index:03d}" for index in range(len(clips))]
    for utt_id, clip in zip(ids, clips):
        soundfile.write(data / f"{utt_id}.wav", clip, 16000, "PCM_16")
    same = {i: i for i in ids}
    tables = {
        "wav.scp": {i: str(data / f"{i}.wav") for i in ids},
        "text": {i: TEXTS[n % 4] for n, i in enumerate(ids)},
        "utt2lang": dict.fromkeys(ids, "en"),
    }
    for name, table in (tables | {"utt2spk": same, "spk2utt": same}).items():
        write_kaldi_table(data / name, table)
    exp = root / "exp"
    freeze_backbone.main(["--name", str(tiny_backbone_dir), "--output_dir", str(exp / "backbone")])
    backbone = load_recogniser(exp / "backbone").recogniser.backbone
    baseline_pass(backbone, PromptConfig(), data, exp / "backbone/cache/tones", batch_size=4)
    (root / "train.yaml").write_text(
        f"base: {CONF}/train_latent.yaml\nlatent_conf: {{steps: 2, noise: {{std: 0.5}}}}\n"
        "num_workers: 0\nvalue_conf: {holdout: 0.3}\noptim_conf: {lr: 1.0e-2}\n"
        "max_epoch: 2\nbatch_size: 3\n"
    )
    # Stage 10 and 11 under ESPnet2, in this environment.
    options = ["--backbone_dir", str(exp / "backbone"), "--config", str(root / "train.yaml")]
    options += ["--ngpu", "0", "--seed", "1"]
    for split in ("train", "valid"):
        for path, name, kind in (
            (exp / "backbone/cache/tones/audio_embeds.scp", "speech_states", "kaldi_ark"),
            (data / "text", "text", "text"),
            (exp / "backbone/cache/tones/baseline", "baseline", "text_float"),
            (data / "utt2lang", "lang", "text"),
        ):
            options += [f"--{split}_data_path_and_name_and_type", f"{path},{name},{kind}"]
    shapes = [f"--{split}_shape_file={data / 'wav.scp'}" for split in ("train", "valid")]
    latentasr_train.main(
        [*options, *shapes, "--collect_stats", "true", "--output_dir", str(exp / "stats")]
    )
    shapes = [
        f"--{split}_shape_file={exp / 'stats' / split / 'speech_states_shape'}"
        for split in ("train", "valid")
    ]
    latentasr_train.main([*options, *shapes, "--output_dir", str(exp / "espnet2")])
    return root


def settings(root: Path, name: str, file: str, **keys) -> str:
    """The recipe's YAML with other keys, below ``root``."""
    loaded = OmegaConf.load(CONF / "espnet3" / name)
    (root / file).write_text(OmegaConf.to_yaml(OmegaConf.merge(loaded, keys)))
    return str(root / file)


def run(*argv: str) -> None:
    launch(LatentASRSystem, conf_package="egs3.TEMPLATE.esp2_asr", argv=list(argv))


@pytest.fixture(scope="module")
def training(root):
    """The recipe's training.yaml, run; returns its copy's name."""
    made = settings(
        root, "training.yaml", "mine.yaml", train_config=str(root / "train.yaml"),
        train_set="tones", valid_set="tones", dumpdir=str(root / "dump"), expdir=str(root / "exp"),
        recipe_dir=str(root),
    )  # fmt: skip
    run("--stages", "train", "--training_config", made)
    return made


def test_training_is_that_of_espnet2_to_the_last_bit(root, training):
    wanted = torch.load(root / "exp/espnet2/valid.ce.best.pth", weights_only=True)
    found = torch.load(root / "exp/espnet3_mine/valid.ce.best.pth", weights_only=True)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert torch.equal(found[key], value), key
    # The value head starts at zero, so this is trained.
    assert any(value.abs().sum() > 0 for key, value in found.items() if "value_head" in key)


def test_optimiser_groups_and_rates_are_those_of_espnet2(root, training):
    saved = next((root / "exp/espnet3_mine").glob("last*.ckpt"))
    here = torch.load(saved, weights_only=False)["optimizer_states"][0]["param_groups"]
    there = torch.load(root / "exp/espnet2/checkpoint.pth", weights_only=False)["optimizers"][0]
    for mine, theirs in zip(here, there["param_groups"], strict=True):
        assert mine["full_lr"] == theirs["full_lr"] and mine["lr"] == theirs["lr"]
        assert mine["weight_decay"] == theirs["weight_decay"]


def test_inference_by_target_writes_what_speech2text_says(root, training):
    made = settings(
        root, "inference.yaml", "decode.yaml", decode_config=str(CONF / "decode_latent.yaml"),
        expdir=str(root / "exp"), dumpdir=str(root / "dump"), recipe_dir=str(root),
        dataset={"test": [{
            "name": "tones", "data_src": "espnet_latentasr.toolkit.espnet3_audio",
            "data_src_args": {"data_dir": str(root / "dump/raw/tones")},
        }]},
    )  # fmt: skip
    run("--stages", "infer", "--training_config", training, "--inference_config", made)
    exp = root / "exp/espnet3_mine"
    found = read_kaldi_table(exp / "decode/tones/text.scp")
    direct = Speech2Text(
        backbone_dir=root / "exp/backbone",
        asr_train_config=exp / "latentasr.yaml",
        asr_model_file=exp / "valid.ce.best.pth",
        inference_config=CONF / "decode_latent.yaml",
    )
    wav = read_kaldi_table(root / "dump/raw/tones/wav.scp")
    for utt_id, result in zip(wav, direct(list(wav.values())), strict=True):
        assert found[utt_id] == result[0][0].strip(), utt_id
    assert any(found.values())


def test_an_optimiser_in_espnet3s_yaml_is_refused(root, training):
    made = OmegaConf.merge(OmegaConf.load(training), {"optimizer": {"lr": 0.1}, "exp_tag": "refused"})
    path = root / "refused.yaml"
    path.write_text(OmegaConf.to_yaml(made))
    with pytest.raises(ConfigError, match="optimizer: must be null"):
        run("--stages", "train", "--training_config", str(path))


def test_the_block_goes_over_its_config(root):
    block = {"config": str(root / "train.yaml"), "backbone_dir": "b", "latent_conf": {"steps": 3}}
    made = arguments(block)
    assert made.latent_conf["steps"] == 3 and made.latent_conf["noise"]["std"] == 0.5
    assert made.optim == "adamw" and made.backbone_dir == "b"
    with pytest.raises(ConfigError, match=r"no option of LatentASRTask: \['stepz'\]"):
        arguments(block | {"stepz": 3})


def test_batches_name_their_utterances():
    ids, batch = Collate()([("b", {"x": torch.ones(2).numpy()}), ("a", {"x": torch.ones(1).numpy()})])
    assert ids == batch["utt_id"] == ["b", "a"]
    assert batch["x_lengths"].tolist() == [2, 1]
