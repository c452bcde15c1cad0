"""Qwen3-ASR through the native ``transformers`` classes; the only file that imports them to run one.

Features are extracted clip by clip (batching clips in the library's extractor changes the audio
embeddings: another frame count, log-mel of silence in the padding), so a clip's embeddings are those
the library gives the clip alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import AutoProcessor, Qwen3ASRForConditionalGeneration

from espnet_latentasr.backbone import hub
from espnet_latentasr.backbone.base import Encoded, Prompt, State, check_heard
from espnet_latentasr.backbone.causal_lm import CausalLMBackbone
from espnet_latentasr.backbone.hf_text import HuggingFaceText
from espnet_latentasr.backbone.language_line import read_line
from espnet_latentasr.backbone.qwen3_asr_prompt import LINE_END, utterance_prompt
from espnet_latentasr.config import PromptConfig
from espnet_latentasr.errors import ConfigError

SAMPLE_RATE = 16000
END_TOKENS = ("<|endoftext|>", "<|im_end|>")
LANGUAGE_CAP = 32  # tokens of a language line; with the published tokenizer none has more than six
MAX_SECONDS = 1200  # its authors' limit; the model itself has none
_CHUNK_FRAMES = 100


class Qwen3ASRText(HuggingFaceText):
    """The tokenizer's view of Qwen3-ASR: what training needs of the model without its weights.

    ``line_end_id``: the token that ends the language line.
    """

    def __init__(self, tokenizer) -> None:
        super().__init__(tokenizer, [tokenizer.convert_tokens_to_ids(token) for token in END_TOKENS])
        self.line_end_id = tokenizer.convert_tokens_to_ids(LINE_END)

    def target(self, text: str) -> list[int]:
        """A transcript's ids and the end token."""
        return [*self.tokenize(text), self.end_id]

    def prompt(self, language: str, config: PromptConfig, *, training: bool = False) -> Prompt:
        """Ids before and after the audio; see ``qwen3_asr_prompt.utterance_prompt``."""
        text = utterance_prompt(language, config, training=training)
        return Prompt(tuple(self.tokenize(text.before)), tuple(self.tokenize(text.after)))


class Qwen3ASRBackbone(CausalLMBackbone):
    """A frozen Qwen3-ASR of any size; parameters never require gradients, dropout is always off."""

    kind = "qwen3_asr"
    max_samples = MAX_SECONDS * SAMPLE_RATE

    def __init__(self, model: Qwen3ASRForConditionalGeneration, processor, fingerprint: str) -> None:
        """Wrap a loaded model.

        Args:
            fingerprint: identifies the weights; goes into cache keys, checkpoints and results.

        Raises:
            ConfigError: the audio width is not the decoder's (the sign of a checkpoint that the
                native classes cannot read: use the ``-hf`` repositories).
        """
        config = model.config
        audio_width, width = config.audio_config.output_dim, config.text_config.hidden_size
        if audio_width != width:
            raise ConfigError(
                f"audio output_dim {audio_width} differs from text hidden_size {width}: this is not "
                "a native Qwen3-ASR checkpoint; use Qwen/Qwen3-ASR-0.6B-hf or -1.7B-hf"
            )
        self.model = model.eval().requires_grad_(False)
        self.processor, self.text = processor, Qwen3ASRText(processor.tokenizer)
        self.decoder = model.model.language_model
        self.embedding_table = model.lm_head.weight
        if self.embedding_table.data_ptr() != model.get_input_embeddings().weight.data_ptr():
            raise ConfigError("lm_head and embeddings are not tied: unknown Qwen3-ASR variant")
        self.end_ids = self.text.end_ids
        self.fingerprint = fingerprint

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Qwen3ASRBackbone:
        """Move (and cast) in place."""
        self.model.to(device=device, dtype=dtype)
        self.embedding_table = self.model.lm_head.weight
        return self

    def read_language(self, state: State) -> tuple[State, list[str]]:
        """Let it write ``language X<asr_text>``; per row the text before the line's end."""
        state, rows = read_line(self, state, self.text.line_end_id, LANGUAGE_CAP)
        return state, [self.text.detokenize(row) for row in rows]

    def _features(self, clip: np.ndarray) -> tuple[Tensor, int]:
        found = self.processor.feature_extractor(
            np.asarray(clip, dtype=np.float32),
            sampling_rate=SAMPLE_RATE,
            padding="longest",
            return_attention_mask=True,
            return_tensors="pt",
        )
        return found["input_features"][0], int(found["attention_mask"][0].sum())

    @torch.no_grad()
    def encode(self, audio: Sequence[np.ndarray]) -> Encoded:
        """Waveforms (S_b,) float32 at 16 kHz -> audio embeddings (A_b, D).

        Raises:
            DataError: a clip of more than 20 minutes.
        """
        check_heard(audio, self.max_samples)
        clips = [self._features(clip) for clip in audio]
        frames = max(features.shape[1] for features, _ in clips)
        frames += -frames % _CHUNK_FRAMES
        device, dtype = self.embedding_table.device, self.embedding_table.dtype
        bins = clips[0][0].shape[0]
        batch = torch.zeros(len(clips), bins, frames, device=device, dtype=dtype)
        mask = torch.zeros(len(clips), frames, dtype=torch.long, device=device)
        for row, (features, length) in enumerate(clips):
            batch[row, :, : features.shape[1]] = features
            mask[row, :length] = 1
        packed = self.model.get_audio_features(batch, mask, return_dict=True).pooler_output
        counts = self.processor._get_audio_token_length(mask.sum(-1)).tolist()
        return Encoded(tuple(packed.split([int(count) for count in counts])))

    def prefill(
        self,
        encoded: Encoded,
        prompts: Sequence[Prompt],
        probes: Tensor | None = None,
        advance: bool = True,
    ) -> State:
        """Read each utterance's prompt once; see ``CausalLMBackbone.prefill_embeds``."""
        device, dtype = self.embedding_table.device, self.embedding_table.dtype
        rows = []
        for audio, prompt in zip(encoded.audio, prompts, strict=True):
            before = self.embed(torch.tensor(prompt.before, device=device))
            after = self.embed(torch.tensor(prompt.after, device=device))
            rows.append(torch.cat([before, audio.to(device=device, dtype=dtype), after]))
        return self.prefill_embeds(rows, probes, advance)


def load_qwen3_asr_text(name: str, revision: str | None = None) -> Qwen3ASRText:
    """Load the tokenizer alone (loader workers, recipes)."""
    _, where = hub.source(name, revision, Qwen3ASRBackbone.kind)
    return Qwen3ASRText(AutoProcessor.from_pretrained(name, **where).tokenizer)


def load_qwen3_asr(
    name: str, revision: str | None = None, dtype: str = "float32", device: str = "cpu"
) -> Qwen3ASRBackbone:
    """Load a local folder or a hub id.

    Args:
        name: folder with config.json, or an id such as ``Qwen/Qwen3-ASR-0.6B-hf``.
        revision: commit hash; demanded for a hub id, so that a result names its weights.
        dtype: ``float32`` or ``bfloat16`` (float16 overflows in this decoder family).

    Raises:
        ConfigError: no such folder and no revision; not a Qwen3-ASR configuration; other dtype.
    """
    hub.check_dtype(dtype)
    folder, where = hub.source(name, revision, Qwen3ASRBackbone.kind)
    model = Qwen3ASRForConditionalGeneration.from_pretrained(
        name, dtype=getattr(torch, dtype), **where
    )
    processor = AutoProcessor.from_pretrained(name, **where)
    backbone = Qwen3ASRBackbone(model, processor, hub.fingerprint(folder, name, revision))
    return backbone.to(device)
