"""Whisper's decoder cache: keys and values of the audio once per utterance, however many rows read them.

The decoder attends to all 1,500 encoder positions of its utterance, without a mask.  So the queries of
all rows of an utterance can stand side by side in one attention over one copy of its keys and values;
rows of one utterance (depths, samples, beams) share them, and a fork copies text columns only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

ATTENTION = "sdpa_shared_audio"


@dataclass(frozen=True)
class Readers:
    """Which rows of a batch read which utterance.

    ``rows``: (U, R) row numbers by utterance, filled up with row 0; ``place``: (B,) index of each row in
    the flattened ``rows``.
    """

    rows: Tensor
    place: Tensor

    @classmethod
    def of(cls, owner: Tensor, utterances: int) -> Readers | None:
        """From the utterance of each row (B,); None where row b reads utterance b and no other does."""
        count = torch.bincount(owner, minlength=utterances)
        most = int(count.max())
        if most == 1 and torch.equal(owner, torch.arange(utterances, device=owner.device)):
            return None
        order = owner.argsort(stable=True)
        rank = torch.empty_like(owner)
        number, start = torch.arange(len(owner), device=owner.device), count.cumsum(0) - count
        rank[order] = number - start[owner[order]]
        rows = owner.new_zeros(utterances, most)
        rows[owner, rank] = number
        return cls(rows, owner * most + rank)


def frozen_keys_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **options,
) -> tuple[Tensor, None]:
    """Attention of trained queries over frozen keys and values, of which there is no mask.

    The fused kernel's backward pass also computes the gradients of keys and values, 1,500 positions
    per row, that nobody asked for: a fifth of the latents' training step.
    """
    if attention_mask is not None:
        raise RuntimeError("attention over frozen audio takes no mask")
    weights = torch.softmax((query * scaling) @ key.transpose(2, 3), dim=-1)
    return (weights @ value).transpose(1, 2), None


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    readers: Readers | None = None,
    **options,
) -> tuple[Tensor, None]:
    """The library's attention; over audio, query (B, H, L, d) meets key and value (U, H, A, d).

    Returns:
        (B, L, H, d), None.
    """
    attention = sdpa_attention_forward
    if query.requires_grad and not key.requires_grad and not module.is_causal:
        attention = frozen_keys_attention
    if readers is None or module.is_causal:  # nothing is shared, or the attention over text
        return attention(module, query, key, value, attention_mask, **options)
    utterances, most = readers.rows.shape
    length = query.shape[2]
    side_by_side = query[readers.rows.flatten()].unflatten(0, (utterances, most))
    side_by_side = side_by_side.transpose(1, 2).flatten(2, 3)  # (U, H, R * L, d)
    found, _ = attention(module, side_by_side, key, value, None, **options)
    return found.unflatten(1, (most, length)).flatten(0, 1)[readers.place], None


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


class WhisperCache(EncoderDecoderCache):
    """Text columns per row, audio per utterance.

    Args:
        text, audio: keys and values; those of the audio are made by the first forward.
        owner: (B,) the utterance that each row reads.
        encoded: (U, A, D) encoder states until the first forward has read them; None: there is no audio
            (the decoder's attention to it is left out).
    """

    def __init__(
        self, text: DynamicCache, audio: DynamicCache, owner: Tensor, encoded: Tensor | None
    ) -> None:
        super().__init__(text, audio)
        self.made_by: list[int] = []
        self.owner, self.encoded = owner, encoded
        self.readers = None if encoded is None else Readers.of(owner, self._utterances)

    @property
    def _utterances(self) -> int:
        layers = self.cross_attention_cache.layers
        return len(layers[0].keys) if layers else len(self.encoded)

    def forget_encoded(self) -> None:
        """Keep a placeholder of the encoder states, whose keys and values are known now."""
        if self.encoded is not None:
            self.encoded = self.encoded.new_zeros(0)

    def picked(self, pick: Callable[[Tensor], Tensor]) -> WhisperCache:
        """The rows that ``pick`` takes; audio is copied only where half of it or less is still read."""
        text = DynamicCache()
        for index, layer in enumerate(self.self_attention_cache.layers):
            text.update(pick(layer.keys), pick(layer.values), index)
        owner, audio = pick(self.owner), self.cross_attention_cache
        if self.encoded is not None:
            read = owner.unique()
            if 2 * len(read) <= self._utterances:
                audio = DynamicCache()
                for index, layer in enumerate(self.cross_attention_cache.layers):
                    audio.update(layer.keys[read], layer.values[read], index)
                owner = torch.searchsorted(read, owner)
        copied = WhisperCache(text, audio, owner, self.encoded)
        copied.made_by += self.made_by
        return copied
