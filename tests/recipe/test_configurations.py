"""Every YAML of the recipe: builds, changes what its first line says, fits both kinds of recogniser."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
import yaml

from espnet_latentasr.adaptation.registry import build_method
from espnet_latentasr.analysis.family_plan import read_family
from espnet_latentasr.config import (
    ADAPTATIONS,
    BackboneConfig,
    DecodeConfig,
    build,
    load_yaml,
    model_config,
)

CONF = Path(__file__).parents[2] / "egs2/latentasr/asr1/conf"
SECTIONS = ("prompt", "schedule", *(name for names in ADAPTATIONS.values() for name in names))
TRAIN = sorted(  # conf/ctc holds ESPnet's own configurations
    p.relative_to(CONF).as_posix() for p in CONF.rglob("train_*.yaml") if p.parent.name != "ctc"
)
DECODE = sorted(
    p.relative_to(CONF).as_posix() for p in CONF.rglob("decode_*.yaml") if "mbr" not in p.name
)


def model_of(name: str):
    keys = load_yaml(CONF / name)
    return model_config(keys["adaptation"], {s: keys.get(f"{s}_conf") for s in SECTIONS})


def flat(keys: dict, prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in keys.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


@pytest.mark.parametrize("name", TRAIN + DECODE)
def test_differs_from_its_base_where_it_says_so_and_nowhere_else(name):
    text = (CONF / name).read_text()
    assert text.startswith("# "), "the first line says what the file is for"
    own = yaml.safe_load(text)
    base = own.pop("base", None)
    whole = flat(load_yaml(CONF / name))
    if base is None:
        return
    before = flat(load_yaml((CONF / name).parent / base))
    changed = {key for key in whole.keys() | before.keys() if whole.get(key) != before.get(key)}
    # A key that only repeats its base says nothing: an ablation must be what it declares.
    repeated = {k for k in flat(own) if k in before and before[k] == whole[k]}
    assert changed | repeated == set(flat(own))
    assert not repeated, f"{name} repeats {sorted(repeated)} of {base}"


@pytest.mark.parametrize("name", DECODE)
def test_decoding_configurations_build(name):
    build(DecodeConfig, load_yaml(CONF / name), name)


class Shape:
    """Sizes of the published 0.6B recogniser as far as a method looks at them; no weights."""

    width = 1024

    def __init__(self) -> None:
        from transformers import Qwen3Config, Qwen3Model

        config = Qwen3Config(
            vocab_size=151936,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            tie_word_embeddings=True,
        )
        with torch.device("meta"):
            self.decoder = Qwen3Model(config).requires_grad_(False)
        self.embedding_table = self.decoder.embed_tokens.weight
        self.text = self

    def tokenize(self, text: str) -> list[int]:
        return list(range(len(text.split()) + 2))

    def anchor(self, token) -> torch.Tensor:
        return torch.zeros(self.width)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*ids.shape, self.width)

    def trainable_decoder(self, share: bool):
        from espnet_latentasr.backbone.causal_lm import CausalLMBackbone

        return CausalLMBackbone.trainable_decoder(self, share)

    def with_decoder(self, decoder, table=None):
        return self


@pytest.fixture(scope="module")
def shape():
    return Shape()


class WhisperShape(Shape):
    """Sizes of Whisper tiny.en as far as a method looks at them; no weights."""

    width = 384
    tokens = {"<|notimestamps|>": 50362, "<|startoflm|>": 50359}

    def __init__(self) -> None:
        from transformers import WhisperConfig
        from transformers.models.whisper.modeling_whisper import WhisperDecoder

        config = WhisperConfig(
            vocab_size=51864,
            d_model=384,
            decoder_layers=4,
            decoder_attention_heads=6,
            decoder_ffn_dim=1536,
        )
        with torch.device("meta"):
            self.decoder = WhisperDecoder(config).requires_grad_(False)
        self.embedding_table = self.decoder.embed_tokens.weight
        self.text = self

    def anchor(self, token) -> torch.Tensor:
        assert token in self.tokens, f"Whisper has no token or unused row {token}"
        return torch.zeros(self.width)


@pytest.fixture(scope="module")
def whisper_shape():
    return WhisperShape()


@pytest.mark.parametrize("name", TRAIN)
def test_builds_on_the_shapes_of_whisper(whisper_shape, name):
    """With an anchor that Whisper has; its own configurations name one."""
    model = model_of(name)
    if model.adaptation == "latent" and "whisper" not in name:
        latent = dataclasses.replace(model.latent, anchor_token="<|startoflm|>")
        model = dataclasses.replace(model, latent=latent)
    count = sum(p.numel() for p in build_method(model, whisper_shape).parameters())
    expected = {
        "tuning/train_whisper_lora.yaml": 4 * 16 * (8 * 2 * 384 + 2 * (384 + 1536)),
        "tuning/train_whisper_prompt.yaml": 4 * 384,
        "tuning/train_whisper_full.yaml": sum(p.numel() for p in whisper_shape.decoder.parameters()),
    }
    assert count == expected.get(name, count) and count > 0


@pytest.mark.parametrize("name", [name for name in TRAIN if "whisper" in name])
def test_whisper_configurations_name_it(name):
    backbone = build(BackboneConfig, load_yaml(CONF / name)["backbone_conf"])
    assert (backbone.kind, backbone.name) == ("whisper", "openai/whisper-tiny.en")


@pytest.mark.parametrize("name", TRAIN)
def test_builds_on_the_shapes_of_the_published_recogniser(shape, name):
    method = build_method(model_of(name), shape)
    count = sum(p.numel() for p in method.parameters())
    expected = {
        "train_latent_paper.yaml": 4_201_477,
        "train_latent_released.yaml": 5_251_077,
        "tuning/train_lora.yaml": 10_092_544,
        "tuning/train_prompt.yaml": 4 * 1024,
    }
    assert count == expected.get(name, count) and count > 0


@pytest.mark.parametrize("family", yaml.safe_load((CONF / "families.yaml").read_text()))
def test_families_name_files_that_are_there(family):
    for system in read_family(CONF / "families.yaml", family, 500).systems:
        assert (CONF.parent / system.config).is_file(), system
        assert (CONF.parent / system.decode).is_file(), system
        adapted = model_of(Path(system.config).relative_to("conf").as_posix()).adaptation != "latent"
        assert adapted == (Path(system.decode).stem == "decode_adapted"), system
