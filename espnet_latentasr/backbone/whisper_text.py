"""Whisper's text side: prompt, transcripts and the tokens it never writes; needs no weights.

    [<|startofprev|> context] <|startoftranscript|> [<|lang|> <|transcribe|>] <|notimestamps|>

The latent positions and then the transcript follow; the audio is attended to from the side.  An
English-only model has no language and task token.
"""

from __future__ import annotations

from transformers import GenerationConfig, WhisperConfig, WhisperTokenizer
from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

from espnet_latentasr.backbone import hub
from espnet_latentasr.backbone.base import Prompt
from espnet_latentasr.backbone.hf_text import HuggingFaceText
from espnet_latentasr.config import PromptConfig
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.text.languages import get_language

KIND = "whisper"
SECONDS_PER_POSITION = 0.02  # of the encoder: what timestamp tokens count in
_OTHER_NAMES = {"fil": "tl"}  # our code of Filipino, Whisper's of Tagalog


class WhisperText(HuggingFaceText):
    """Prompts, transcripts and language tokens of one Whisper model.

    Args:
        generation: the model's generation_config.json.

    Raises:
        ConfigError: an outdated generation_config.json.
    """

    def __init__(
        self, tokenizer: WhisperTokenizer, generation: GenerationConfig, config: WhisperConfig
    ) -> None:
        end = generation.eos_token_id
        super().__init__(tokenizer, end if isinstance(end, list) else [end])
        needed = ["is_multilingual", "no_timestamps_token_id", "decoder_start_token_id"]
        if getattr(generation, "is_multilingual", False):
            needed += ["lang_to_id", "task_to_id"]
        if missing := [key for key in needed if getattr(generation, key, None) is None]:
            raise ConfigError(
                f"generation_config.json: no {', '.join(missing)}: an outdated Whisper folder; take the "
                "one of openai/whisper-* on the hub"
            )
        self.multilingual: bool = generation.is_multilingual
        self._start = generation.decoder_start_token_id
        self._no_timestamps = generation.no_timestamps_token_id
        self._languages: dict[str, int] = generation.lang_to_id if self.multilingual else {}
        self._task = [generation.task_to_id["transcribe"]] if self.multilingual else []
        self.language_ids = tuple(sorted(self._languages.values()))
        self.max_positions: int = config.max_target_positions
        self._timestamps = config.max_source_positions + 1
        self.never = tuple(generation.suppress_tokens or ())
        self.never_first = tuple(generation.begin_suppress_tokens or ())

    @property
    def after_language(self) -> tuple[int, ...]:
        """What stands between the language token and the transcript."""
        return (*self._task, self._no_timestamps)

    def target(self, text: str) -> list[int]:
        """A transcript's ids, begun with a blank as Whisper does, and the end token."""
        return [*self.tokenize(f" {text.strip()}"), self.end_id]

    def vocabulary(self) -> list[str]:
        """Token strings by id; the timestamps follow also where the tokenizer does not list them."""
        listed = super().vocabulary()
        last = self._no_timestamps + self._timestamps
        return listed + [self._unnamed(row) for row in range(len(listed), last + 1)]

    def _unnamed(self, row: int) -> str:
        index = row - self._no_timestamps - 1
        if 0 <= index < self._timestamps:
            return f"<|{index * SECONDS_PER_POSITION:.2f}|>"
        return super()._unnamed(row)

    def prompt(self, language: str, config: PromptConfig, *, training: bool = False) -> Prompt:
        """All ids before the transcript, or before the language token where the model says it itself.

        Raises:
            ConfigError: ``user_text`` (there is no place for it), ``language: auto`` of an English-only
                model, or a context that is too long.
            DataError: a language the model has no token for.
        """
        if config.user_text:
            raise ConfigError(
                f"prompt_conf.user_text has no place in the prompt of backbone_conf.kind: {KIND}; remove "
                "it (prompt_conf.context is what Whisper calls the previous text)"
            )
        if config.language == "auto" and not self.multilingual:
            raise ConfigError(
                f"prompt_conf.language: auto contradicts backbone_conf.kind: {KIND} with an English-only "
                "model, which says no language; use language: forced"
            )
        ids = [*self._context(config.context), self._start]
        if config.language == "auto" and not training:
            return Prompt((), tuple(ids))
        return Prompt((), (*ids, *self._language(language), *self.after_language))

    def _context(self, context: str) -> list[int]:
        if not context.strip():
            return []
        ids = self.tokenize(f" {context.strip()}")
        longest = self.max_positions // 2 - 1
        if any(token >= self.end_ids[0] for token in ids):
            raise ConfigError(f"prompt_conf.context: {context!r} holds control tokens, no plain text")
        if len(ids) > longest:
            raise ConfigError(
                f"prompt_conf.context: {len(ids)} tokens, at most {longest} expected (half the decoder)"
            )
        return [self._tokenizer.convert_tokens_to_ids("<|startofprev|>"), *ids]

    def _language(self, language: str) -> list[int]:
        found = get_language(language)
        if not self.multilingual:
            if found.code != "en":
                raise DataError(
                    f"language '{language}' ({found.name}): this Whisper is English-only; take a "
                    "multilingual one (a name without '.en')"
                )
            return []
        code = _OTHER_NAMES.get(found.code, TO_LANGUAGE_CODE.get(found.name.lower(), found.code))
        if (token := self._languages.get(f"<|{code}|>")) is None:
            raise DataError(
                f"language '{language}' ({found.name}) is none of this Whisper's "
                f"{len(self._languages)}: it cannot be forced"
            )
        return [token]


def load_whisper_text(name: str, revision: str | None = None) -> WhisperText:
    """Load tokenizer and settings alone (loader workers, recipes)."""
    _, where = hub.source(name, revision, KIND)
    return WhisperText(
        WhisperTokenizer.from_pretrained(name, **where),
        GenerationConfig.from_pretrained(name, **where),
        WhisperConfig.from_pretrained(name, **where),
    )
