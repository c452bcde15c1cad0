"""ESPnet's model interface around a ``Method``: padded batches in, (loss, stats, weight) out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from espnet_latentasr.adaptation.base import Method, TrainBatch
from espnet_latentasr.backbone.base import Encoded, Prompt
from espnet_latentasr.decode.training_lists import TrainingLists
from espnet_latentasr.toolkit.compat import AbsESPnetModel, force_gatherable


def is_held_out(utt_id: str, share: float) -> bool:
    """Whether an utterance is among the ``share`` that trains the value head only; by its id alone."""
    digest = hashlib.sha256(f"holdout {utt_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


class ESPnetLatentASRModel(AbsESPnetModel):
    """Checkpoints (``state_dict``) hold the method's parameters only; loading them is strict.

    ``progress`` and ``iteration`` are set by ``LatentTrainer`` before every batch.
    """

    def __init__(self, method: Method, seed: int) -> None:
        super().__init__()
        self.method = method
        self.seed = seed
        self.progress = 0.0
        self.iteration = 0
        mwer = method.config.loss.mwer
        if method.thinks and mwer.kind != "none":
            method.write_lists = TrainingLists(method.backbone, mwer)

    def to(self, *args, **kwargs):
        """Move; the recogniser follows to the device but keeps its own type."""
        super().to(*args, **kwargs)
        self.method.place(next(self.method.parameters()).device)
        return self

    def forward(
        self,
        speech_states: Tensor,
        speech_states_lengths: Tensor,
        targets: Tensor,
        targets_lengths: Tensor,
        prompt_before: Tensor,
        prompt_before_lengths: Tensor,
        prompt_after: Tensor,
        prompt_after_lengths: Tensor,
        baseline: Tensor,
        utt_id: Sequence[str] = (),
        **kwargs,
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """One minibatch.

        Args:
            speech_states: (B, A, D) cached audio embeddings.
            targets: (B, L) transcript ids and end token.
            baseline: (B, 2) the frozen recogniser's cross-entropy per token and accuracy.
            utt_id: names of the utterances; needed where some are held out from the adapter.
        """

        def rows(padded: Tensor, lengths: Tensor) -> list[Tensor]:
            return [row[:length] for row, length in zip(padded, lengths.tolist())]

        before = rows(prompt_before, prompt_before_lengths)
        after = rows(prompt_after, prompt_after_lengths)
        share, held_out = self.method.config.value.holdout, None
        if share > 0:
            if len(utt_id) != len(before):
                raise RuntimeError("value_conf.holdout needs the utterance ids of every batch")
            held_out = torch.tensor([is_held_out(name, share) for name in utt_id], device=targets.device)
        batch = TrainBatch(
            Encoded(tuple(rows(speech_states, speech_states_lengths))),
            [Prompt(tuple(b.tolist()), tuple(a.tolist())) for b, a in zip(before, after)],
            [ids.tolist() for ids in rows(targets, targets_lengths)],
            baseline[:, 0].float(),
            baseline[:, 1].float(),
            held_out,
        )
        generator = None
        if self.training:
            # Keyed by batch number and process: a resumed run draws what an uninterrupted one draws.
            rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
            key = (self.seed * 1_000_003 + self.iteration) * 1_009 + rank
            generator = torch.Generator().manual_seed(key % 2**63)
        loss, stats = self.method.loss(batch, self.progress, generator)
        stats = {key: value.detach() for key, value in stats.items()} | {"loss": loss.detach()}
        return force_gatherable((loss, stats, len(before)), loss.device)

    def collect_feats(self, speech_states: Tensor, speech_states_lengths: Tensor, **kwargs):
        """Shapes for batching; nothing is computed."""
        return {"feats": speech_states, "feats_lengths": speech_states_lengths}
