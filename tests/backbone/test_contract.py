"""The contract of ``espnet_latentasr.backbone.base``, for every registered kind."""

from __future__ import annotations

import pytest
import torch
from contract import BackboneContract, Subject

from espnet_latentasr.backbone.registry import KINDS
from espnet_latentasr.config import PromptConfig


@pytest.fixture(params=KINDS)
def subject(request, clips) -> Subject:
    """A small recogniser of each kind; a new kind adds its own here."""
    build = {"qwen3_asr": qwen3_asr_subject, "whisper": whisper_subject}.get(request.param)
    if build is None:
        pytest.fail(f"no small '{request.param}' to test: build one in tests/conftest.py")
    return build(request.getfixturevalue, clips)


def qwen3_asr_subject(fixture, clips) -> Subject:
    backbone, prompt = fixture("tiny_backbone"), fixture("tiny_prompt")
    forward = fixture("full_forward")

    def prompt_embeds(audio):
        before, after = (backbone.embed(torch.tensor(ids)) for ids in (prompt.before, prompt.after))
        return torch.cat([before, audio, after])

    return Subject(
        backbone,
        clips,
        prompt,
        prompt_embeds,
        lambda audio, embeds, positions: forward(embeds, positions),
    )


def whisper_subject(fixture, clips) -> Subject:
    backbone, decoder = fixture("tiny_whisper"), fixture("plain_whisper").model.decoder
    prompt = backbone.text.prompt("en", PromptConfig())

    def forward(audio, embeds, positions):
        return decoder(
            inputs_embeds=embeds[None],
            attention_mask=torch.ones(1, len(embeds), dtype=torch.long),
            encoder_hidden_states=audio[None],
            position_ids=torch.tensor([positions]),
            use_cache=False,
        ).last_hidden_state[0]

    return Subject(
        backbone, clips, prompt, lambda audio: backbone.embed(torch.tensor(prompt.after)), forward
    )


class TestContract(BackboneContract):
    pass
