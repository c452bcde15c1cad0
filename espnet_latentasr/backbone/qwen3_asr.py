"""Qwen3-ASR through the native ``transformers`` classes; the only file that imports them to run one.

Features are extracted clip by clip (batching clips in the library's extractor changes the audio
embeddings: another frame count, log-mel of silence in the padding), so a clip's embeddings are those
the library gives the clip alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoProcessor, Qwen3ASRForConditionalGeneration
from transformers import __version__ as transformers_version

from espnet_latentasr.backbone.base import Encoded, Prompt, State
from espnet_latentasr.backbone.causal_lm import CausalLMBackbone
from espnet_latentasr.data.prompt import LINE_END, PromptText
from espnet_latentasr.errors import ConfigError

SAMPLE_RATE = 16000
END_TOKENS = ("<|endoftext|>", "<|im_end|>")
_CHUNK_FRAMES = 100


class Qwen3ASRText:
    """The tokenizer's view of Qwen3-ASR: what training needs of the model without its weights."""

    def __init__(self, tokenizer) -> None:
        self._tokenizer = tokenizer
        self.end_ids = tuple(tokenizer.convert_tokens_to_ids(token) for token in END_TOKENS)
        self.end_id = self.end_ids[-1]
        self.line_end_id = tokenizer.convert_tokens_to_ids(LINE_END)

    def tokenize(self, text: str) -> list[int]:
        """Text to ids; special tokens written in the text become their ids."""
        return self._tokenizer(text, add_special_tokens=False).input_ids

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Ids to the vocabulary's token strings; an unused embedding row N is ``<rowN>``."""
        found = self._tokenizer.convert_ids_to_tokens(list(ids))
        return [f"<row{i}>" if token is None else token for i, token in zip(ids, found)]

    def detokenize(self, ids: Sequence[int]) -> str:
        """Ids to one line of text, without the library's silent repetition fixing.

        Any run of white space (a line break would break every table) becomes one blank.
        """
        return " ".join(self._tokenizer.decode(list(ids), skip_special_tokens=True).split())

    def prompt(self, text: PromptText) -> Prompt:
        """Tokenize a prompt's two halves."""
        return Prompt(tuple(self.tokenize(text.before)), tuple(self.tokenize(text.after)))

    def vocabulary(self) -> list[str]:
        """Token strings by id."""
        entries = sorted(self._tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        return [token for token, _ in entries]

    def id_of(self, token: str) -> int | None:
        """Id of a vocabulary entry, None when there is none."""
        return self._tokenizer.get_vocab().get(token)


class Qwen3ASRBackbone(CausalLMBackbone):
    """A frozen Qwen3-ASR of any size; parameters never require gradients, dropout is always off."""

    kind = "qwen3_asr"

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

    @cached_property
    def first_unused_row(self) -> int:
        """Index of the first embedding row after the tokenizer's last entry."""
        row = len(self.text.vocabulary())
        if row >= len(self.embedding_table):
            raise ConfigError(f"the embedding table has no unused row after {row - 1}")
        return row

    def anchor(self, token: str | int) -> Tensor:
        """Embedding (D,) float32 of a token, a row index, or ``unused`` (first unused row)."""
        if token == "unused":
            row = self.first_unused_row
        elif isinstance(token, int):
            row = token
        else:
            row = self.text.id_of(token)
        if row is None or not 0 <= row < len(self.embedding_table):
            raise ConfigError(
                f"latent_conf.anchor_token: '{token}' is neither a token of the tokenizer nor a row "
                f"below {len(self.embedding_table)}"
            )
        return self.embedding_table[row].detach().float().clone()

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
        """Waveforms (S_b,) float32 at 16 kHz -> audio embeddings (A_b, D)."""
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


def _fingerprint(folder: Path | None, name: str, revision: str | None) -> str:
    """SHA-256 over a local folder's weights and settings, or the hub id with its revision."""
    if folder is None:
        return f"{name}@{revision}"
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in {".safetensors", ".json", ".jinja"} and path.is_file():
            digest.update(path.name.encode() + b"\0")
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return f"sha256:{digest.hexdigest()[:16]}"


def _local_folder(name: str, revision: str | None) -> Path | None:
    """The folder ``name`` is, or None for a hub id with its revision."""
    folder = Path(name) if (Path(name) / "config.json").is_file() else None
    if folder is None and Path(name).is_dir():
        raise ConfigError(f"backbone_conf.name: folder '{name}' has no config.json")
    if folder is None and revision is None:
        raise ConfigError(
            f"backbone_conf.name: '{name}' is no local folder, and a hub id needs "
            "backbone_conf.revision (a commit hash), so that results name their weights"
        )
    if folder is None and not re.fullmatch("[0-9a-f]{7,40}", revision):
        raise ConfigError(
            f"backbone_conf.revision: '{revision}' is not a commit hash; a branch or tag can move, so "
            "that results would not name their weights"
        )
    return folder


def load_qwen3_asr_text(name: str, revision: str | None = None) -> Qwen3ASRText:
    """Load the tokenizer alone (loader workers, recipes)."""
    where = {} if _local_folder(name, revision) else {"revision": revision}
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
    if dtype not in {"float32", "bfloat16"}:
        raise ConfigError(f"backbone_conf.dtype: '{dtype}' is not float32 or bfloat16")
    folder = _local_folder(name, revision)
    if folder is not None:
        found = json.loads((folder / "config.json").read_text()).get("model_type")
        if found != "qwen3_asr":
            raise ConfigError(f"{folder}/config.json: model_type '{found}', expected 'qwen3_asr'")
    where = {} if folder is not None else {"revision": revision}
    model = Qwen3ASRForConditionalGeneration.from_pretrained(
        name, dtype=getattr(torch, dtype), **where
    )
    processor = AutoProcessor.from_pretrained(name, **where)
    backbone = Qwen3ASRBackbone(model, processor, _fingerprint(folder, name, revision))
    return backbone.to(device)


def library_version() -> str:
    """The model library's version, for provenance."""
    return f"transformers {transformers_version}"
