"""The prompt of Qwen3-ASR as text around the audio; knows no tokenizer and no model.

    <|im_start|>system\\n{context}<|im_end|>\\n<|im_start|>user\\n<|audio_start|> AUDIO <|audio_end|>
    {user_text}<|im_end|>\\n<|im_start|>assistant\\nlanguage {Name}<asr_text>

The latent positions and then the transcript follow.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PromptText:
    """What stands before and after the audio embeddings."""

    before: str
    after: str


def prompt_text(language_name: str, *, context: str = "", user_text: str = "") -> PromptText:
    """Lay out one utterance's prompt with its language forced.

    Args:
        language_name: Qwen3-ASR's English name of the language, for example ``Cantonese``.
        context: hot words for the system turn (soft bias; may leak into the transcript).
        user_text: an extra sentence after the audio; the official prompt has none.
    """
    before = f"<|im_start|>system\n{context}<|im_end|>\n<|im_start|>user\n<|audio_start|>"
    after = (
        f"<|audio_end|>{user_text}<|im_end|>\n<|im_start|>assistant\n"
        f"language {language_name}<asr_text>"
    )
    return PromptText(before, after)
