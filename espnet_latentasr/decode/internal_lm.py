"""The language model inside a recogniser: log P(y | prompt without audio) (Meng et al. 2021, "zero-out").

The prompt is that of a real utterance, but with no audio position (a decoder that attends to audio from
the side is run without that attention).  The very token sequence of a candidate is scored, not its text
tokenized again: log P(y | x) - mu * ILM(y) compares one event under two models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from espnet_latentasr.backbone.base import Backbone, Encoded, Prompt, State
from espnet_latentasr.config import PromptConfig, build
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.decode.loading import load_recogniser
from espnet_latentasr.decode.nbest import sequence_scores
from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.nbest_list import Candidate, NBest


def silent_state(backbone: Backbone, prompt: Prompt) -> State:
    """The state (one row) after a prompt without audio."""
    table = backbone.embedding_table
    nothing = Encoded((torch.zeros(0, backbone.width, device=table.device, dtype=table.dtype),))
    return backbone.prefill(nothing, [prompt], None, True)


class InternalLM:
    """Scores token sequences, written as ids with blanks between, under one prompt."""

    def __init__(self, backbone: Backbone, prompt: Prompt, max_rows: int = 64) -> None:
        dtype = str(backbone.embedding_table.dtype).removeprefix("torch.")
        self.backbone, self.max_rows = backbone, max_rows
        self.tolerance = 1e-3 if dtype == "float32" else 0.5
        self.identity = {
            "scorer": type(self).__name__,
            "model": backbone.fingerprint,
            "dtype": dtype,
            "prompt": [backbone.text.detokenize(ids) for ids in (prompt.before, prompt.after)],
            "prompt_ids": [*prompt.before, *prompt.after],
        }
        self._state = silent_state(backbone, prompt)

    def unknown(self, text: str) -> tuple[int, int]:
        """No token is unknown to the recogniser that wrote it."""
        return 0, len(text.split())

    def score(self, texts: Mapping[str, str]) -> dict[str, float | None]:
        """Score token sequences; ``texts`` maps each to the utterance it comes from.

        Raises:
            DataError: an id that is not in the recogniser's vocabulary.
        """
        sequences = [[int(token) for token in text.split()] for text in texts]
        rows = len(self.backbone.embedding_table)
        for utt_id, ids in zip(texts.values(), sequences):
            if any(not 0 <= token < rows for token in ids):
                raise DataError(
                    f"utterance '{utt_id}': token ids {ids}: at most {rows - 1} expected; the list is of "
                    "another recogniser"
                )
        scores = sequence_scores(
            self.backbone, self._state, [0] * len(sequences), sequences, self.max_rows
        )
        return dict(zip(texts, scores))


def internal_lms(
    backbone: Backbone, languages: Mapping[str, str], prompt: PromptConfig, max_rows: int = 64
) -> dict[str, InternalLM]:
    """One scorer per utterance of ``languages`` (shared by those of one language).

    The language line stands in the prompt also where the recogniser writes it itself.
    """
    names = set(languages.values())
    prompts = {name: backbone.text.prompt(name, prompt, training=True) for name in names}
    shared = {read: InternalLM(backbone, read, max_rows) for read in set(prompts.values())}
    return {utt_id: shared[prompts[language]] for utt_id, language in languages.items()}


def check_tokens(backbone: Backbone, utt_id: str, surface: str, tokens: Sequence[int]) -> None:
    """Refuse a candidate whose tokens do not write its text: it comes from another recogniser.

    Raises:
        DataError: naming the utterance and both texts.
    """
    written = backbone.text.detokenize(tokens)
    if written != surface:
        raise DataError(
            f"utterance '{utt_id}': its tokens write {written!r} with this recogniser, but the candidate "
            f"is {surface!r}; give the recogniser that made the list"
        )


def internal_lm_readers(
    backbone_dir: str | Path, data_dir: Path, prompt_keys: Mapping[str, Any], device: str = "cpu"
) -> tuple[Callable[[NBest], InternalLM], Callable[[NBest, Candidate], str]]:
    """What ``rescoring.score_lists.score_file`` needs: the scorer of a list, the text of a candidate.

    Args:
        prompt_keys: ``prompt_conf`` of the model that made the lists.
    """
    backbone = load_recogniser(backbone_dir, device=device).recogniser.backbone
    prompt = build(PromptConfig, dict(prompt_keys), "prompt_conf")
    scorers = internal_lms(backbone, KaldiDir.load(data_dir).languages(), prompt)

    def scorer_of(nbest: NBest) -> InternalLM:
        if nbest.utt_id not in scorers:
            raise DataError(f"{data_dir}: no utterance '{nbest.utt_id}'; give the set the list is of")
        return scorers[nbest.utt_id]

    def read(nbest: NBest, candidate: Candidate) -> str:
        check_tokens(backbone, nbest.utt_id, candidate.surface, candidate.tokens)
        return " ".join(map(str, candidate.tokens))

    return scorer_of, read
