"""A random recogniser of 0.2 M weights and deterministic clips for every suite that needs a model.

Nothing is downloaded: the hub is switched off before the model library is imported.
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import pytest
from hypothesis import settings

# The same examples in every run, however slow the machine.
settings.register_profile("suite", derandomize=True, database=None, deadline=None)
settings.load_profile("suite")
pytest.register_assert_rewrite("contract")

WORDS = ("turn on the light in the kitchen", "call ann and jan", "seven five nine zero")
# Samples and pitch: a whole second, lengths that are no multiple of 160, two below half a second.
CLIPS = (
    (16000, 200),
    (9000, 500),
    (24037, 900),
    (4000, 1500),
    (12345, 3000),
    (20000, 350),
    (7999, 700),
    (33601, 2500),
)


def make_clip(samples: int, hz: float, seed: int) -> np.ndarray:
    """Return a rising tone in noise (S,) float32."""
    time = np.arange(samples) / 16000
    noise = np.random.default_rng(seed).standard_normal(samples)
    return (0.3 * np.sin(2 * np.pi * hz * time * (1 + 0.3 * time)) + 0.1 * noise).astype(np.float32)


def build_tiny_model():
    """Return (model, processor): random weights, two layers per stack, the real special tokens.

    The decoder's attention is sharpened, so that a text depends on the audio and on its own past,
    and some texts end by themselves; with plain random weights all would repeat one token.
    """
    import torch
    from transformers import Qwen3ASRForConditionalGeneration

    from espnet_latentasr.backbone import mini
    from espnet_latentasr.backbone.mini_training import initialize_by_fan_in

    size = mini.MiniSize(width=64, encoder_layers=2, decoder_layers=2, conv_channels=8, mel_bins=32)
    tokenizer = mini.build_tokenizer(WORDS, 300)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = Qwen3ASRForConditionalGeneration(mini.build_config(tokenizer, size))
        initialize_by_fan_in(model)
    with torch.no_grad():
        for layer in model.model.language_model.layers:
            layer.self_attn.o_proj.weight.mul_(4.0)
            layer.self_attn.q_norm.weight.mul_(3.0)
            layer.mlp.down_proj.weight.mul_(2.0)
    return model, mini.build_processor(tokenizer, size.mel_bins)


@pytest.fixture(scope="session")
def clips() -> list[np.ndarray]:
    """Eight clips of different lengths."""
    return [make_clip(samples, hz, seed) for seed, (samples, hz) in enumerate(CLIPS)]


@pytest.fixture(scope="session")
def tiny_backbone_dir(tmp_path_factory):
    """Folder of the tiny recogniser, as ``load_qwen3_asr`` reads it."""
    folder = tmp_path_factory.mktemp("tiny_backbone")
    model, processor = build_tiny_model()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_backbone():
    """The tiny recogniser in float32, on one thread."""
    import torch

    from espnet_latentasr.backbone.qwen3_asr import Qwen3ASRBackbone

    torch.set_num_threads(1)
    return Qwen3ASRBackbone(*build_tiny_model(), fingerprint="tiny")


@pytest.fixture(scope="session")
def tiny_prompt(tiny_backbone):
    """The official prompt with English forced, as ids of the tiny recogniser."""
    from espnet_latentasr.config import PromptConfig

    return tiny_backbone.text.prompt("English", PromptConfig())


@pytest.fixture(scope="session")
def full_forward(tiny_backbone):
    """One row without any cache: embeddings (T, D), positions (T,) -> hidden states (T, D)."""
    import torch

    def forward(embeds: torch.Tensor, positions) -> torch.Tensor:
        output = tiny_backbone.model.model.language_model(
            inputs_embeds=embeds[None],
            attention_mask=torch.ones(1, len(embeds), dtype=torch.long),
            position_ids=torch.as_tensor(list(positions))[None],
            use_cache=False,
        )
        return output.last_hidden_state[0]

    return forward


@pytest.fixture(scope="session")
def tiny_whisper():
    """A small English-only Whisper in float32, on one thread."""
    import torch
    from tiny_whisper import build_whisper

    torch.set_num_threads(1)
    return build_whisper()


@pytest.fixture(scope="session")
def plain_whisper():
    """The model of ``tiny_whisper`` as the library runs it: its own attention and generation."""
    from tiny_whisper import build_parts

    return build_parts()[0].eval().requires_grad_(False)


@pytest.fixture(scope="session")
def tiny_whisper_dir(tmp_path_factory):
    """Folder of ``tiny_whisper``, as ``load_whisper`` reads it."""
    from tiny_whisper import save_whisper

    folder = tmp_path_factory.mktemp("tiny_whisper")
    save_whisper(folder)
    return folder
