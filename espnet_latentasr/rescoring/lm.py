"""Masked and causal language models as scorers of whole texts; knows no audio, no lists, no files.

Works on any model of the library that has a body and an output layer (``lm_loading`` loads one).

    MaskedLM    PLL(y) = sum_i log p(y_i | y with y_i masked)         (Salazar et al. 2020)
                within_word_l2r: the later tokens of y_i's word are masked too, so that a rare word cut
                into many pieces is not rewarded for predicting itself    (Kauf and Ivanova 2023)
    CausalLM    LL(y) = sum_i log p(y_i | y_<i), beginning and end of text explicit

Texts of similar length share a batch up to a budget of tokens; the output layer runs at the positions
that are scored and nowhere else; log-probabilities are float32 whatever the weights are.  A text that the
model has no positions for is an error, never cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.lm_text import NORMS, TextOptions, check_choice, normalised

METRICS = ("original", "within_word_l2r")


@dataclass(frozen=True)
class PLLOptions:
    """``metric``: original | within_word_l2r; ``norm``: sum | mean | per_word."""

    metric: str = "original"
    norm: str = "sum"
    text: TextOptions = field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)
        check_choice("norm", self.norm, NORMS)


@dataclass(frozen=True)
class LLOptions:
    """``bos``: the text follows the beginning token (without it the first token is not scored).
    ``bos_token``: which one, where the tokenizer names none; ``eos``: the end token is scored too.
    """

    bos: bool = True
    eos: bool = True
    bos_token: str | None = None
    norm: str = "sum"
    text: TextOptions = field(default_factory=TextOptions)

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, NORMS)


@dataclass(frozen=True)
class _Row:
    """Token ids to read, which of them to mask, and (position, expected token) pairs to score."""

    text: int
    ids: tuple[int, ...]
    wanted: tuple[tuple[int, int], ...]
    masked: tuple[int, ...] = ()


class _LanguageModel:
    """A model with its tokenizer: batching, the output layer where it is needed, checks."""

    _mask = 0

    def __init__(
        self, model: nn.Module, tokenizer: Any, fingerprint: str, options: Any, token_budget: int
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                f"{type(tokenizer).__name__} cannot say which characters a token covers; a model folder "
                "with a tokenizer.json is expected"
            )
        if len(tokenizer) > model.get_input_embeddings().num_embeddings:
            raise ConfigError(
                f"the tokenizer has {len(tokenizer)} entries, the model "
                f"{model.get_input_embeddings().num_embeddings} embeddings: they do not belong together"
            )
        if model.base_model is model:
            raise ConfigError(f"{type(model).__name__}: its body cannot be told from its output layer")
        if token_budget < 1:
            raise ConfigError(f"token_budget: {token_budget}, at least 1 expected")
        self.model = model.eval().requires_grad_(False)
        model.config.use_cache = False
        self.tokenizer, self.options, self.token_budget = tokenizer, options, token_budget
        self.limit = _longest_input(model, tokenizer)
        self.tolerance = 1e-3 if model.dtype == torch.float32 else 0.5
        self.identity = {
            "scorer": type(self).__name__,
            "model": fingerprint,
            "dtype": str(model.dtype).removeprefix("torch."),
            "tokenizer": hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16],
            "options": asdict(options),
        }
        self._picked: Tensor | None = None
        model.base_model.register_forward_hook(self._pick)

    def _pick(self, module: nn.Module, arguments: Any, output: Any) -> Any:
        """Hand only the picked positions on to the output layer."""
        if self._picked is not None:
            output["last_hidden_state"] = output["last_hidden_state"][self._picked][None]
        return output

    def _encode(self, text: str, special: bool) -> tuple[list[int], list[bool], list[int | None]]:
        """Token ids of a prepared text; which are scored; the word of each."""
        text, period = self.options.text.prepare(text)
        end = len(text) + (len(period) if self.options.text.final_period == "scored" else 0)
        found = self.tokenizer(
            text + period,
            add_special_tokens=special,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
            verbose=False,
        )
        scored = [
            not added and start < end
            for added, (start, _) in zip(found["special_tokens_mask"], found["offset_mapping"])
        ]
        return found["input_ids"], scored, found.word_ids(0)

    def unknown(self, text: str) -> tuple[int, int]:
        """Number of unknown tokens of a text, and of all."""
        ids, _, _ = self._encode(text, special=False)
        return sum(token == self.tokenizer.unk_token_id for token in ids), len(ids)

    def _rows(self, index: int, text: str) -> Iterator[_Row]:
        """Inputs that score one text; each kind of language model has its own."""
        raise NotImplementedError

    @torch.inference_mode()
    def score(self, texts: Mapping[str, str]) -> dict[str, float | None]:
        """Score texts; ``texts`` maps each to the utterance it comes from.

        Returns:
            Text -> log-probability (natural logarithm), None where nothing is scored (an empty text).

        Raises:
            DataError: a text longer than the model's input, naming its utterance.
        """
        rows: list[_Row] = []
        for index, (text, utt_id) in enumerate(texts.items()):
            for row in self._rows(index, text):
                if len(row.ids) > self.limit:
                    raise DataError(
                        f"utterance '{utt_id}': its text has {len(row.ids)} tokens (with special ones), "
                        f"but the language model reads {self.limit}: {text[:60]!r}...; leave the "
                        "utterance out, or use a model that reads longer texts"
                    )
                rows.append(row)
        terms: list[list[float]] = [[] for _ in texts]
        for batch in _batches(rows, self.token_budget):
            for row, values in zip(batch, self._log_probabilities(batch)):
                terms[row.text] += values
        return {
            text: normalised(values, text, self.options.norm) for text, values in zip(texts, terms)
        }

    def _log_probabilities(self, rows: Sequence[_Row]) -> Iterator[list[float]]:
        """Log-probability of the wanted tokens of each row."""
        device, longest = self.model.device, max(len(row.ids) for row in rows)
        ids = torch.full((len(rows), longest), self.tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(ids)
        picked = torch.zeros(len(rows), longest, dtype=torch.bool)
        for index, row in enumerate(rows):
            ids[index, : len(row.ids)] = torch.tensor(row.ids)
            ids[index, list(row.masked)] = self._mask
            mask[index, : len(row.ids)] = 1
            picked[index, [position for position, _ in row.wanted]] = True
        tokens = torch.tensor([token for row in rows for _, token in row.wanted], device=device)
        self._picked = picked.to(device)
        try:
            logits = self.model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
        finally:
            self._picked = None
        if logits.shape[:2] != (1, len(tokens)):
            raise ConfigError(
                f"{type(self.model).__name__}: its output layer gave {tuple(logits.shape)} for "
                f"{len(tokens)} positions; this architecture is not supported"
            )
        losses = nn.functional.cross_entropy(logits[0].float(), tokens, reduction="none")
        values = iter((-losses).tolist())
        for row in rows:
            yield [next(values) for _ in row.wanted]


class MaskedLM(_LanguageModel):
    """Pseudo-log-likelihood of texts under a masked language model."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        fingerprint: str,
        options: PLLOptions | None = None,
        token_budget: int = 8192,
    ) -> None:
        if tokenizer.mask_token_id is None:
            raise ConfigError("the tokenizer has no mask token: this is no masked language model")
        self._mask = tokenizer.mask_token_id
        super().__init__(model, tokenizer, fingerprint, options or PLLOptions(), token_budget)

    def _rows(self, index: int, text: str) -> Iterator[_Row]:
        found, scored, words = self._encode(text, special=True)
        ids = tuple(found)
        for position in (p for p, wanted in enumerate(scored) if wanted):
            masked = [position]
            if self.options.metric == "within_word_l2r" and words[position] is not None:
                later = range(position + 1, len(ids))
                masked += [other for other in later if words[other] == words[position]]
            yield _Row(index, ids, ((position, ids[position]),), tuple(masked))


class CausalLM(_LanguageModel):
    """Log-likelihood of texts under a left-to-right language model."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        fingerprint: str,
        options: LLOptions | None = None,
        token_budget: int = 2048,
    ) -> None:
        options = options or LLOptions()
        if options.bos_token is None:
            self._bos = tokenizer.bos_token_id
        else:
            self._bos = tokenizer.get_vocab().get(options.bos_token)
        if options.bos and self._bos is None:
            raise ConfigError(
                f"bos: the tokenizer has no token {options.bos_token or 'for the beginning of a text'}; "
                "name one (bos_token), or set bos: false, which leaves the first token unscored"
            )
        if options.eos and tokenizer.eos_token_id is None:
            raise ConfigError("eos: the tokenizer has no end token; set eos: false")
        super().__init__(model, tokenizer, fingerprint, options, token_budget)

    def _rows(self, index: int, text: str) -> Iterator[_Row]:
        ids, scored, _ = self._encode(text, special=False)
        if self.options.bos:
            ids, scored = [self._bos, *ids], [False, *scored]
        if self.options.eos and ids:
            ids, scored = [*ids, self.tokenizer.eos_token_id], [*scored, True]
        wanted = tuple((at, ids[at + 1]) for at in range(len(ids) - 1) if scored[at + 1])
        if wanted:
            yield _Row(index, tuple(ids[:-1]), wanted)


def _batches(rows: list[_Row], token_budget: int) -> Iterator[list[_Row]]:
    """Rows of similar length; a batch's padded size stays within the budget (one row always fits)."""
    batch: list[_Row] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if batch and (len(batch) + 1) * len(row.ids) > token_budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _longest_input(model: nn.Module, tokenizer: Any) -> int:
    """Most tokens that model and tokenizer take."""
    positions = getattr(model.config, "max_position_embeddings", None) or tokenizer.model_max_length
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding):
        # RoBERTa counts positions from behind its padding index.
        positions = table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return min(positions, tokenizer.model_max_length)
