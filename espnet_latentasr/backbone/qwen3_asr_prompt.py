"""The prompt of Qwen3-ASR as text around the audio; knows no tokenizer and no weights.

    <|im_start|>system\\n{context}<|im_end|>\\n<|im_start|>user\\n<|audio_start|> AUDIO <|audio_end|>
    {user_text}<|im_end|>\\n<|im_start|>assistant\\nlanguage {Name}<asr_text>

The latent positions and then the transcript follow.
"""

from __future__ import annotations

from dataclasses import dataclass

from espnet_latentasr.config import PromptConfig
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.languages import get_language


@dataclass(frozen=True)
class PromptText:
    """What stands before and after the audio embeddings."""

    before: str
    after: str


LINE_END = "<asr_text>"


def prompt_text(
    language_name: str | None, *, context: str = "", user_text: str = ""
) -> PromptText:
    """Lay out one utterance's prompt.

    Args:
        language_name: Qwen3-ASR's English name of the language, for example ``Cantonese``; None
            leaves the language line to the recogniser.
        context: hot words for the system turn (soft bias; may leak into the transcript).
        user_text: an extra sentence after the audio; the official prompt has none.
    """
    before = f"<|im_start|>system\n{context}<|im_end|>\n<|im_start|>user\n<|audio_start|>"
    after = f"<|audio_end|>{user_text}<|im_end|>\n<|im_start|>assistant\n"
    if language_name is not None:
        after += f"language {language_name}{LINE_END}"
    return PromptText(before, after)


def utterance_prompt(
    language: str, config: PromptConfig, *, training: bool = False
) -> PromptText:
    """Lay out the prompt of an utterance in ``language`` (code or English name).

    With ``language: auto`` the recogniser writes its language line itself; in training that line is
    given: the one it should have written.

    Raises:
        DataError: a language that is unknown, or that Qwen3-ASR has no name for.
    """
    if config.language == "auto" and not training:
        return prompt_text(None, context=config.context, user_text=config.user_text)
    found = get_language(language)
    if not found.qwen:
        raise DataError(
            f"language '{language}' ({found.name}) is none of Qwen3-ASR's: it cannot be forced"
        )
    return prompt_text(found.name, context=config.context, user_text=config.user_text)
