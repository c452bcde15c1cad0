"""The contract of a frozen recogniser: operations over a state; knows no model library.

    encode(audio)                  waveforms -> audio embeddings, once per utterance
    prefill(encoded, prompts)      prompt pass, once per utterance -> State
    step(state, embeds, active)    append L positions: thinking, teacher forcing, rescoring, search
    drop / rollback(state, to)     forget the latest positions / everything after ``to``
    fork(state, rows)              copy rows into a state of their own
    branch(stages)                 copy several stages of one cache into one batch

Search (``espnet_latentasr.decode.search``) is written over these and leaves its state valid.

Rules every implementation keeps (and ``tests/backbone/contract.py`` checks):

* A row's result does not depend on the other rows of its batch, nor on when they stop.
* An inactive position of a row is a hole: masked, no position number consumed, hidden state kept.
* A state is consumed by the next operation on its cache; using it afterwards raises ``StaleState``.
  ``drop`` and ``rollback`` are the ways back, ``fork`` the way to several continuations.
* No parameter of the recogniser requires a gradient; gradients flow through activations.

Letters: B batch, A audio positions, P prompt length, L new positions, T cache columns, D width,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from espnet_latentasr.config import PromptConfig
from espnet_latentasr.errors import DataError


class StaleState(RuntimeError):
    """A state was used after a later operation had consumed its cache."""


@dataclass(frozen=True)
class Prompt:
    """Token ids before and after the audio embeddings of one utterance.

    A decoder that attends to the audio from the side has all its ids in ``after``.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Encoded:
    """Audio embeddings of a batch: one (A_b, D) tensor per utterance."""

    audio: tuple[Tensor, ...]

    def __len__(self) -> int:
        return len(self.audio)


@dataclass(frozen=True)
class State:
    """What the decoder has read so far.

    ``trail[:, j]`` is the hidden state of each row after the first j positions of the latest
    operation (``trail[:, 0]``: before it), ``trail_position`` the next position number at that point.
    """

    cache: Any
    mask: Tensor  # (B, T) bool, True where a column is visible to its row
    trail: Tensor  # (B, L + 1, D), after the final norm
    trail_position: Tensor  # (B, L + 1) int64
    made_by: int = 0  # number of the operation that made the latest column

    @property
    def hidden(self) -> Tensor:
        """(B, D) hidden state that predicts the next token."""
        return self.trail[:, -1]

    @property
    def position(self) -> Tensor:
        """(B,) position number of the next token."""
        return self.trail_position[:, -1]

    @property
    def batch_size(self) -> int:
        return self.mask.shape[0]


class TextCodec(Protocol):
    """The recogniser's text side; needs no weights.

    ``prompt``: of an utterance in ``language`` (code or English name).  With ``language: auto`` it ends
    where the recogniser says the language itself; in training that is given: what it should have said.
    Raises ``ConfigError`` for a key of ``prompt_conf`` that the kind has no place for, ``DataError`` for
    a language it cannot be told.
    ``target``: a transcript as the recogniser writes it, end token included.
    """

    end_id: int
    end_ids: tuple[int, ...]

    def tokenize(self, text: str) -> list[int]: ...

    def tokens(self, ids: Sequence[int]) -> list[str]: ...

    def detokenize(self, ids: Sequence[int]) -> str: ...

    def target(self, text: str) -> list[int]: ...

    def prompt(self, language: str, config: PromptConfig, *, training: bool = False) -> Prompt: ...

    def vocabulary(self) -> list[str]: ...

    def id_of(self, token: str) -> int | None: ...


class Backbone(Protocol):
    """A frozen recogniser; see the module's rules.

    ``anchor(token)``: the fixed embedding (D,) of a token, a row index, or ``unused``.
    ``fingerprint``: identifies the weights in cache keys, checkpoints and results.
    ``max_samples``: the longest clip ``encode`` takes (it refuses longer ones), None: any.
    ``max_positions``: position numbers that prompt, latents and transcript of a row have together; a
    search ends there, and ``prefill`` and ``step`` refuse to go on.  None: more than any clip needs.
    ``logits``: of the weights alone; what is trained and scored against a given transcript.
    ``suppress``: logits (M, V) with -inf at tokens that the recogniser never writes; ``first``: whether
    the row's text begins here, for all rows or (M,) bool.  Every search applies it.
    ``read_language``: continue from a prompt with ``language: auto``; per row what the recogniser wrote,
    empty where it wrote nothing (such a row is left where it was).
    ``trainable_decoder``: a copy of the text decoder without its token embeddings, which are looked up in
    ``embedding_table``; ``share``: over the same (frozen) parameter tensors.
    """

    width: int
    model: torch.nn.Module
    max_samples: int | None
    max_positions: int | None
    embedding_table: Tensor  # (V, D)
    end_ids: tuple[int, ...]
    fingerprint: str
    text: TextCodec

    def to(self, device: torch.device | str) -> Backbone: ...

    def anchor(self, token: str | int) -> Tensor: ...

    def encode(self, audio: Sequence[np.ndarray]) -> Encoded: ...

    def prefill(
        self, encoded: Encoded, prompts: Sequence[Prompt], probes: Tensor | None, advance: bool
    ) -> State: ...

    def step(self, state: State, embeds: Tensor, active: Tensor, advance: bool = True) -> State: ...

    def drop(self, state: State, count: int) -> State: ...

    def rollback(self, state: State, to: State, rows: Tensor | None = None) -> State: ...

    def fork(self, state: State, rows: Tensor) -> State: ...

    def stages(self, state: State) -> list[State]: ...

    def branch(self, stages: Sequence[State]) -> State: ...

    def trainable_decoder(self, share: bool) -> Any: ...

    def with_decoder(self, decoder: Any, embedding_table: Tensor | None = None) -> Backbone: ...

    def embed(self, ids: Tensor) -> Tensor: ...

    def logits(self, hidden: Tensor) -> Tensor: ...

    def suppress(self, logits: Tensor, first: bool | Tensor) -> Tensor: ...

    def read_language(self, state: State) -> tuple[State, list[str]]: ...


def check_heard(audio: Sequence[np.ndarray], limit: int, rate: int = 16000) -> None:
    """Refuse clips of more samples than a recogniser hears at once; nothing is ever cut.

    Raises:
        DataError: the first such clip, its length and the limit.
    """
    for index, clip in enumerate(audio):
        if len(clip) > limit:
            raise DataError(
                f"clip {index + 1} of {len(audio)}: {len(clip) / rate:.2f} s, but this recogniser "
                f"hears {limit / rate:g} s at once; split it at a pause"
            )


def positions_of(
    start: Tensor, active: Tensor, advance: bool
) -> tuple[Tensor, Tensor]:
    """Number new positions of each row.

    Args:
        start: (B,) next position number.
        active: (B, L) bool; holes consume no number.
        advance: True: numbers follow ``start``; False (``positions: hold``): all new positions carry
            the number before ``start`` and the next number stays ``start``.

    Returns:
        (B, L) position numbers and (B, L) next number after each position.
    """
    if not advance:
        held = (start - 1)[:, None].expand(active.shape)
        return held, start[:, None].expand(active.shape)
    after = start[:, None] + active.long().cumsum(1)
    return (after - 1).clamp(min=0), after


def carry_hidden(before: Tensor, new: Tensor, active: Tensor) -> Tensor:
    """Trail of hidden states (B, L + 1, D): at a hole the previous state is carried on."""
    trail = [before]
    for column in range(active.shape[1]):
        keep = active[:, column, None]
        trail.append(torch.where(keep, new[:, column], trail[-1]))
    return torch.stack(trail, 1)
