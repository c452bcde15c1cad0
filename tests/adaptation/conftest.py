"""A batch of four spoken clips with the frozen recogniser's scores."""

from __future__ import annotations

import pytest
import torch

from espnet_latentasr.adaptation.base import TrainBatch
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.latent.losses import token_scores

TEXTS = ["turn on the light", "call ann", "seven five nine zero", "jan"]


@pytest.fixture(scope="module")
def batch(tiny_backbone, tiny_prompt, clips):
    encoded = tiny_backbone.encode(clips[:4])
    prompts = [tiny_prompt] * 4
    targets = [[*tiny_backbone.text.tokenize(t), tiny_backbone.text.end_id] for t in TEXTS]
    with torch.no_grad():
        state = tiny_backbone.prefill(encoded, prompts, None, True)
        logits, ids, rows = teacher_force(tiny_backbone, state, targets)
    base_ce, base_acc = token_scores(logits, ids, rows, 4)
    return TrainBatch(encoded, prompts, targets, base_ce, base_acc)
