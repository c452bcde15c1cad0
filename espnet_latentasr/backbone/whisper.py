"""Whisper through ``transformers``: an encoder over 30 s, a decoder that attends to it from the side.

Latents follow the decoder prompt.  The encoder always sees the whole padded window, so the embeddings
of a clip of any length are (1500, D), and the decoder attends to all of them.  Clips longer than the
window are refused: the model's own way through long audio moves by timestamps, which these prompts
switch off.  Positions are a learned table (448), given explicitly; a hole takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, WhisperFeatureExtractor, WhisperForConditionalGeneration

from espnet_latentasr.backbone import hub
from espnet_latentasr.backbone.base import Encoded, Prompt, State, check_heard
from espnet_latentasr.backbone.causal_lm import CausalLMBackbone, next_operation
from espnet_latentasr.backbone.whisper_cache import ATTENTION, WhisperCache
from espnet_latentasr.backbone.whisper_text import KIND, WhisperText, load_whisper_text
from espnet_latentasr.errors import ConfigError, DataError


class WhisperBackbone(CausalLMBackbone):
    """A frozen Whisper of any size; parameters never require gradients, dropout is always off."""

    kind = KIND

    def __init__(
        self,
        model: WhisperForConditionalGeneration,
        extractor: WhisperFeatureExtractor,
        text: WhisperText,
        fingerprint: str,
    ) -> None:
        """Wrap a loaded model, whose attention is switched to one that can share audio between rows.

        Raises:
            ConfigError: parts that do not belong together.
        """
        config = model.config
        window = config.max_source_positions * 2 * extractor.hop_length
        if extractor.n_samples != window:
            raise ConfigError(
                f"preprocessor_config.json: {extractor.n_samples} samples, but the encoder of "
                f"config.json takes {window}: these files are of different models"
            )
        self.model = model.eval().requires_grad_(False)
        model.set_attn_implementation(ATTENTION)
        self.extractor, self.text, self.fingerprint = extractor, text, fingerprint
        self.decoder = model.model.decoder
        self.embedding_table = model.proj_out.weight
        if self.embedding_table.data_ptr() != self.decoder.embed_tokens.weight.data_ptr():
            raise ConfigError("proj_out and embeddings are not tied: unknown Whisper variant")
        self.end_ids = text.end_ids
        self.max_samples, self.max_positions = window, config.max_target_positions
        never = torch.zeros(2, len(self.embedding_table), dtype=torch.bool)
        never[:, list(text.never)] = True
        never[1, list(text.never_first)] = True
        self._never = never  # [0]: anywhere, [1]: at the beginning of a text

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> WhisperBackbone:
        """Move (and cast) in place."""
        self.model.to(device=device, dtype=dtype)
        self.embedding_table = self.model.proj_out.weight
        self._never = self._never.to(device)
        return self

    def suppress(self, logits: Tensor, first: bool | Tensor) -> Tensor:
        """``suppress_tokens`` and, at the beginning of a text, ``begin_suppress_tokens`` to -inf."""
        which = torch.as_tensor(first, device=logits.device).long()
        return logits.masked_fill(self._never[which], -torch.inf)

    @torch.no_grad()
    def encode(self, audio: Sequence[np.ndarray]) -> Encoded:
        """Waveforms (S_b,) float32 at 16 kHz -> encoder states (1500, D) each.

        Raises:
            DataError: a clip longer than the window.
        """
        rate, table = self.extractor.sampling_rate, self.embedding_table
        check_heard(audio, self.max_samples)
        features = []
        for clip in audio:
            clip = np.asarray(clip, dtype=np.float32)
            features.append(self.extractor(clip, sampling_rate=rate, return_tensors="pt").input_features)
        batch = torch.cat(features).to(device=table.device, dtype=table.dtype)
        return Encoded(tuple(self.model.model.encoder(batch).last_hidden_state))

    def prefill(
        self,
        encoded: Encoded,
        prompts: Sequence[Prompt],
        probes: Tensor | None = None,
        advance: bool = True,
    ) -> State:
        """Read each utterance's prompt once; see ``CausalLMBackbone.prefill_embeds``.

        Utterances of no audio position are read by the decoder alone, its attention to audio left out.
        """
        device, dtype = self.embedding_table.device, self.embedding_table.dtype
        lengths, whole = {len(audio) for audio in encoded.audio}, self.model.config.max_source_positions
        if lengths not in ({0}, {whole}):
            raise ValueError(
                f"encoder states of {sorted(lengths)} positions, {whole} (or 0 for all) expected"
            )
        rows = [
            self.embed(torch.tensor([*prompt.before, *prompt.after], device=device))
            for _, prompt in zip(encoded.audio, prompts, strict=True)
        ]
        heard = None if lengths == {0} else torch.stack(encoded.audio).to(device=device, dtype=dtype)
        owner = torch.arange(len(rows), device=device)
        cache = WhisperCache(DynamicCache(), DynamicCache(), owner, heard)
        state = self.prefill_embeds(rows, probes, advance, cache)
        cache.forget_encoded()
        return state

    def _forward(self, embeds: Tensor, mask: Tensor, positions: Tensor, cache: WhisperCache) -> Tensor:
        # Single tokens are capped by the search; asking a GPU for each would wait for each.
        asked = embeds.shape[1] > 1 or not positions.is_cuda
        if asked and (last := int(positions.max())) >= self.max_positions:
            raise DataError(
                f"position {last + 1} of a row: this recogniser has {self.max_positions} for prompt, "
                "latents and transcript together; shorten what is longest"
            )
        output = self.decoder(
            inputs_embeds=embeds,
            attention_mask=mask.long(),
            position_ids=positions,
            encoder_hidden_states=cache.encoded,
            readers=cache.readers,
            use_cache=True,
            **{self._cache_keyword: cache},
        )
        cache.made_by += [next_operation()] * embeds.shape[1]
        return output.last_hidden_state

    def _copied(self, cache: WhisperCache, pick: Callable[[Tensor], Tensor]) -> WhisperCache:
        return cache.picked(pick)

    def read_language(self, state: State) -> tuple[State, list[str]]:
        """Take the most probable language token, as the library does, and read on to the transcript."""
        with torch.no_grad():
            ids = torch.tensor(self.text.language_ids, device=state.mask.device)
            token = ids[self.logits(state.hidden)[:, ids].argmax(-1)]
            after = torch.tensor(self.text.after_language, device=state.mask.device)
            read = torch.cat([token[:, None], after.expand(len(token), -1)], 1)
            state = self.step(state, self.embed(read), torch.ones_like(read, dtype=torch.bool))
        return state, self.text.tokens(token.tolist())


def load_whisper(
    name: str, revision: str | None = None, dtype: str = "float32", device: str = "cpu"
) -> WhisperBackbone:
    """Load a local folder or a hub id.

    Args:
        name: folder with config.json, or an id such as ``openai/whisper-tiny.en``.
        revision: commit hash; demanded for a hub id, so that a result names its weights.
        dtype: ``float32`` or ``bfloat16``.

    Raises:
        ConfigError: no such folder and no revision; not a Whisper configuration; other dtype.
    """
    hub.check_dtype(dtype)
    folder, where = hub.source(name, revision, KIND)
    model = WhisperForConditionalGeneration.from_pretrained(name, dtype=getattr(torch, dtype), **where)
    extractor = WhisperFeatureExtractor.from_pretrained(name, **where)
    text = load_whisper_text(name, revision)
    backbone = WhisperBackbone(model, extractor, text, hub.fingerprint(folder, name, revision))
    return backbone.to(device)
