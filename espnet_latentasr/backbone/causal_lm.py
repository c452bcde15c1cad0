"""The contract's cache operations for any Hugging Face text decoder; knows no audio.

Rows are left-padded, so the last prompt column is every row's last prompt token.  Holes are columns
whose mask bit is off.  Position numbers are always passed explicitly: the library infers nothing from
the cache's length.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor
from transformers import DynamicCache

from espnet_latentasr.backbone.base import StaleState, State, TextCodec, carry_hidden, positions_of
from espnet_latentasr.errors import ConfigError

_OPERATIONS = itertools.count(1)


def next_operation() -> int:
    """A number no other operation on a cache has."""
    return next(_OPERATIONS)


class CausalLMBackbone:
    """Mixin: ``self.decoder`` (returns last_hidden_state), ``self.head`` (V, D), ``self.end_ids``."""

    decoder: torch.nn.Module
    embedding_table: Tensor
    end_ids: tuple[int, ...]
    text: TextCodec
    max_samples: int | None = None
    max_positions: int | None = None

    @cached_property
    def _cache_keyword(self) -> str:
        """The library renamed the argument in 5.24 and drops the old name in 5.40."""
        names = inspect.signature(self.decoder.forward).parameters
        return "cache" if "cache" in names else "past_key_values"

    @property
    def width(self) -> int:
        return self.embedding_table.shape[1]

    def embed(self, ids: Tensor) -> Tensor:
        """Token ids (...,) -> embeddings (..., D)."""
        return torch.nn.functional.embedding(ids, self.embedding_table)

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (M, D) -> float32 logits (M, V).

        Two dimensions on purpose: a sliced 3-D bfloat16 input costs 30 times more on a CPU.
        """
        return torch.nn.functional.linear(hidden, self.embedding_table).float()

    def suppress(self, logits: Tensor, first: bool | Tensor) -> Tensor:
        """Nothing is suppressed."""
        return logits

    @cached_property
    def first_unused_row(self) -> int:
        """Index of the first embedding row after the vocabulary's last entry."""
        row = len(self.text.vocabulary())
        if row >= len(self.embedding_table):
            raise ConfigError(
                f"latent_conf.anchor_token: the embedding table has no unused row after {row - 1}; name "
                "a token or a row"
            )
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

    def trainable_decoder(self, share: bool) -> torch.nn.Module:
        """A copy of the decoder's modules without its token embeddings: these are ``embedding_table``.

        ``share``: over the same (frozen) parameter tensors.
        """
        shared = self.decoder.parameters() if share else self.decoder.embed_tokens.parameters()
        copied = copy.deepcopy(self.decoder, {id(parameter): parameter for parameter in shared})
        copied.embed_tokens = None
        return copied

    def with_decoder(self, decoder: torch.nn.Module, embedding_table: Tensor | None = None):
        """This recogniser with another decoder (and table); the frozen one is left as it is."""
        other = copy.copy(self)
        other.decoder = decoder
        if embedding_table is not None:
            other.embedding_table = embedding_table
        return other

    def _forward(self, embeds: Tensor, mask: Tensor, positions: Tensor, cache) -> Tensor:
        output = self.decoder(
            inputs_embeds=embeds,
            attention_mask=mask.long(),
            position_ids=positions,
            use_cache=True,
            **{self._cache_keyword: cache},
        )
        cache.made_by += [next_operation()] * embeds.shape[1]
        return output.last_hidden_state

    def _new_cache(self) -> DynamicCache:
        cache = DynamicCache(config=self.decoder.config)
        cache.made_by = []  # which operation made each column: how a state knows its own
        return cache

    def _copied(self, cache: DynamicCache, pick: Callable[[Tensor], Tensor]) -> DynamicCache:
        """A cache of its own with the rows that ``pick`` takes from the first dimension of a tensor."""
        copied = self._new_cache()
        copied.made_by += cache.made_by
        for index, layer in enumerate(cache.layers):
            copied.update(pick(layer.keys), pick(layer.values), index)
        return copied

    @staticmethod
    def _cut(cache: DynamicCache, count: int) -> None:
        cache.crop(-count)
        del cache.made_by[-count:]

    @staticmethod
    def _state(cache: DynamicCache, mask: Tensor, trail: Tensor, trail_position: Tensor) -> State:
        return State(cache, mask, trail, trail_position, cache.made_by[-1])

    def prefill_embeds(
        self,
        rows: Sequence[Tensor],
        probes: Tensor | None = None,
        advance: bool = True,
        cache: DynamicCache | None = None,
    ) -> State:
        """Read prompts given as embeddings, with ``probes`` (N, D) appended to each row.

        The state's trail holds the last prompt position, then the probes; ``drop(state, N)`` forgets
        them.  ``cache``: an empty one that already knows what the rows attend to beside their text.
        """
        count = 0 if probes is None else probes.shape[0]
        longest = max(len(row) for row in rows)
        device, dtype = self.embedding_table.device, self.embedding_table.dtype
        embeds = torch.zeros(len(rows), longest + count, self.width, device=device, dtype=dtype)
        mask = torch.zeros(len(rows), longest + count, dtype=torch.bool, device=device)
        for index, row in enumerate(rows):
            embeds[index, longest - len(row) : longest] = row
            mask[index, longest - len(row) : longest] = True
        start = mask.sum(1)
        positions = (mask[:, :longest].long().cumsum(1) - 1).clamp(min=0)
        after = start[:, None]
        if probes is not None:
            embeds[:, longest:] = probes.to(dtype)
            mask[:, longest:] = True
            at, next_number = positions_of(start, mask[:, longest:], advance)
            positions = torch.cat([positions, at], 1)
            after = torch.cat([after, next_number], 1)
        cache = self._new_cache() if cache is None else cache
        hidden = self._forward(embeds, mask, positions, cache)
        return self._state(cache, mask, hidden[:, longest - 1 :], after)

    def step(self, state: State, embeds: Tensor, active: Tensor, advance: bool = True) -> State:
        """Append L positions.

        Args:
            embeds: (B, L, D) in any float type.
            active: (B, L) bool; False makes a hole.
            advance: see ``positions_of``.
        """
        self._check_fresh(state)
        at, after = positions_of(state.position, active, advance)
        mask = torch.cat([state.mask, active], 1)
        hidden = self._forward(embeds.to(self.embedding_table.dtype), mask, at, state.cache)
        trail = carry_hidden(state.hidden, hidden, active)
        trail_position = torch.cat([state.position[:, None], after], 1)
        return self._state(state.cache, mask, trail, trail_position)

    def drop(self, state: State, count: int) -> State:
        """Forget the last ``count`` positions of the latest operation, in every row."""
        self._check_fresh(state)
        if count == 0:
            return state
        if count >= state.trail.shape[1]:
            raise ValueError(
                f"cannot drop {count} positions: the latest operation added "
                f"{state.trail.shape[1] - 1}; use rollback"
            )
        self._cut(state.cache, count)
        return self._state(
            state.cache,
            state.mask[:, :-count],
            state.trail[:, :-count],
            state.trail_position[:, :-count],
        )

    def rollback(self, state: State, to: State, rows: Tensor | None = None) -> State:
        """Forget what came after ``to``: for all rows (columns are cut) or ``rows`` (B,) bool (holes)."""
        self._check_fresh(state)
        if to.cache is not state.cache:
            raise StaleState("rollback target belongs to another cache: fork or prefill again")
        extra = state.mask.shape[1] - to.mask.shape[1]
        if extra < 0:
            raise StaleState(
                f"rollback target is {-extra} columns ahead of the state: the cache was cut meanwhile"
            )
        if state.cache.made_by[to.mask.shape[1] - 1] != to.made_by:
            raise StaleState("rollback target's columns were cut and replaced meanwhile")
        if rows is None or bool(rows.all()):
            if extra:
                self._cut(state.cache, extra)
            return to
        pick = rows[:, None]
        padded = torch.nn.functional.pad(to.mask, (0, extra))
        hidden = torch.where(pick, to.hidden, state.hidden)
        position = torch.where(rows, to.position, state.position)
        mask = torch.where(pick, padded, state.mask)
        return self._state(state.cache, mask, hidden[:, None], position[:, None])

    def fork(self, state: State, rows: Tensor) -> State:
        """Copy rows (indices (R,), repeats allowed) into a new state with its own cache."""
        self._check_fresh(state)
        cache = self._copied(state.cache, lambda tensor: tensor[rows])
        return self._state(cache, state.mask[rows], state.trail[rows], state.trail_position[rows])

    def stages(self, state: State) -> list[State]:
        """The states before and after each position of the latest operation, oldest first.

        Nothing is cut: they are targets for ``rollback`` and ``branch``; only the last can be
        continued as it is.
        """
        self._check_fresh(state)
        columns, latest = state.mask.shape[1], state.trail.shape[1] - 1
        found = []
        for index in range(latest + 1):
            end = columns - latest + index
            found.append(
                State(
                    state.cache,
                    state.mask[:, :end],
                    state.trail[:, : index + 1],
                    state.trail_position[:, : index + 1],
                    state.cache.made_by[end - 1],
                )
            )
        return found

    def branch(self, stages: Sequence[State]) -> State:
        """Copy several stages of one cache into a state of its own: all rows of the first, then of
        the second, and so on; the last must be the cache's latest state.
        """
        latest = stages[-1]
        self._check_fresh(latest)
        columns = latest.mask.shape[1]
        masks = []
        for stage in stages:
            width = stage.mask.shape[1]
            if stage.cache is not latest.cache or stage.cache.made_by[width - 1] != stage.made_by:
                raise StaleState("a stage to branch from was cut or belongs to another cache")
            masks.append(torch.nn.functional.pad(stage.mask, (0, columns - width)))
        cache = self._copied(
            latest.cache, lambda tensor: tensor.repeat(len(stages), *[1] * (tensor.dim() - 1))
        )
        hidden = torch.cat([stage.hidden for stage in stages])
        position = torch.cat([stage.position for stage in stages])
        return self._state(cache, torch.cat(masks), hidden[:, None], position[:, None])

    @staticmethod
    def _check_fresh(state: State) -> None:
        held, expected = state.cache.get_seq_length(), state.mask.shape[1]
        if held != expected:
            raise StaleState(
                f"the state covers {expected} columns but its cache holds {held}: a later operation "
                "consumed it; roll back or fork before using it again"
            )
        if state.cache.made_by[-1] != state.made_by:
            raise StaleState("the state's latest columns were cut from its cache and replaced")
