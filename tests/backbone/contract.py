"""What every frozen recogniser must do; ``test_contract.py`` runs it for each registered kind.

A kind takes part by building a ``Subject``.  All numbers are float32; texts are compared token for
token, states to 1e-5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from espnet_latentasr.backbone.base import Backbone, Encoded, Prompt, StaleState, State
from espnet_latentasr.config import PromptConfig
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.errors import DataError

CAP = 12


@dataclass(frozen=True)
class Subject:
    """One recogniser under test.

    ``prompt_embeds``: audio embeddings (A, D) of an utterance to what its decoder reads first (P, D).
    ``full_forward``: one row without any cache, audio embeddings, what the decoder reads (T, D) and
    position numbers (T,) to hidden states (T, D), written straight on the model library.
    """

    backbone: Backbone
    clips: list[np.ndarray]
    prompt: Prompt
    prompt_embeds: Callable[[Tensor], Tensor]
    full_forward: Callable[[Tensor, Tensor, list[int]], Tensor]

    def prefill(self, rows: list[int] | None = None, probes=None, advance: bool = True) -> State:
        encoded = self.encoded(rows)
        return self.backbone.prefill(encoded, [self.prompt] * len(encoded), probes, advance)

    def encoded(self, rows: list[int] | None = None) -> Encoded:
        picked = range(len(self.clips)) if rows is None else rows
        return self.backbone.encode([self.clips[row] for row in picked])

    def embeds(self, *shape: int, seed: int = 0) -> Tensor:
        """Random embeddings of the size of the recogniser's own."""
        scale = self.backbone.embedding_table.float().pow(2).mean().sqrt()
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, self.backbone.width, generator=generator) * scale

    def texts(self, state: State) -> list[tuple[int, ...]]:
        return [h.tokens for h in greedy(self.backbone, state, [CAP] * state.batch_size)]


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0.0)


def same_future(subject: Subject, found: State, expected: State) -> None:
    """Both states predict alike now, number alike and go on alike."""
    close(found.hidden, expected.hidden)
    assert torch.equal(found.position, expected.position)
    assert subject.texts(found) == subject.texts(expected)


def everyone(batch: int, length: int = 1) -> Tensor:
    return torch.ones(batch, length, dtype=torch.bool)


class BackboneContract:
    """Collected by subclassing; needs the fixture ``subject``."""

    # Encoding and reading the prompt

    def test_an_encoding_does_not_depend_on_the_batch(self, subject):
        together = subject.encoded()
        assert len(together) == len(subject.clips)
        for row, audio in enumerate(together.audio):
            (alone,) = subject.encoded([row]).audio
            assert audio.shape == alone.shape
            close(audio, alone)

    def test_an_encoding_depends_on_the_audio(self, subject):
        first, second = subject.clips[0], subject.clips[0][::-1].copy()
        one, two = subject.backbone.encode([first, second]).audio
        assert one.shape == two.shape
        assert (one - two).abs().max() > 0.01

    def test_a_prompt_read_in_a_batch_equals_the_prompt_read_alone(self, subject):
        together = subject.prefill()
        texts = subject.texts(together)
        for row in range(len(subject.clips)):
            alone = subject.prefill([row])
            close(together.hidden[row : row + 1], alone.hidden)
            assert together.position[row] == alone.position[0]
            assert texts[row] == subject.texts(alone)[0]
        assert len(set(texts)) > len(texts) // 2, "texts hardly depend on the audio: a weak subject"

    def test_the_prompt_equals_a_forward_without_cache(self, subject):
        state = subject.prefill()
        for row, audio in enumerate(subject.encoded().audio):
            embeds = subject.prompt_embeds(audio)
            expected = subject.full_forward(audio, embeds, list(range(len(embeds))))
            close(state.hidden[row], expected[-1])
            assert state.position[row] == len(embeds)

    @pytest.mark.parametrize("advance", [True, False])
    def test_probes_in_the_prompt_equal_probing_alone(self, subject, advance):
        probes = subject.embeds(1).expand(3, -1)
        probed = subject.prefill(probes=probes, advance=advance)
        plain = subject.prefill()
        assert probed.trail.shape[1] == 4
        close(probed.trail[:, 0], plain.hidden)
        assert torch.equal(probed.trail_position[:, 0], plain.position)
        for count in (1, 2, 3):
            batch = len(subject.clips)
            active = everyone(batch, count)
            alone = subject.backbone.step(
                plain, probes[:count].expand(batch, count, -1), active, advance
            )
            close(probed.trail[:, count], alone.hidden)
            assert torch.equal(probed.trail_position[:, count], alone.position)
            plain = subject.backbone.drop(alone, count)
        same_future(subject, subject.backbone.drop(probed, 3), subject.prefill())

    def test_different_probes_are_read_in_their_order(self, subject):
        probes = subject.embeds(2, seed=3)
        probed = subject.prefill(probes=probes)
        for row, audio in enumerate(subject.encoded().audio):
            embeds = torch.cat([subject.prompt_embeds(audio), probes])
            expected = subject.full_forward(audio, embeds, list(range(len(embeds))))
            close(probed.trail[row], expected[-3:])

    # Steps

    def test_several_steps_equal_one_longer_step(self, subject):
        batch = len(subject.clips)
        embeds = subject.embeds(batch, 3)
        once = subject.backbone.step(subject.prefill(), embeds, everyone(batch, 3))
        state = subject.prefill()
        close(once.trail[:, 0], state.hidden)
        for column in range(3):
            state = subject.backbone.step(state, embeds[:, column : column + 1], everyone(batch))
            close(once.trail[:, column + 1], state.hidden)
            assert torch.equal(once.trail_position[:, column + 1], state.position)
        same_future(subject, once, state)

    @pytest.mark.parametrize("advance", [True, False])
    def test_position_numbers(self, subject, advance):
        start = subject.prefill()
        active = torch.tensor([[True, True, True], [False, True, False], [False, False, False]])
        active = active.repeat(len(subject.clips), 1)[: len(subject.clips)]
        state = subject.backbone.step(start, subject.embeds(*active.shape), active, advance)
        moved = active.sum(1) if advance else torch.zeros(len(active), dtype=torch.long)
        assert torch.equal(state.position, start.position + moved)
        assert torch.equal(state.trail_position[:, 0], start.position)

    @pytest.mark.parametrize("advance", [True, False])
    def test_ragged_rows_equal_rows_alone(self, subject, advance):
        generator = torch.Generator().manual_seed(11)
        batch = len(subject.clips)
        steps = []
        for length in (2, 1, 2, 3):
            active = torch.rand(batch, length, generator=generator) < 0.6
            active[0] = True
            active[1] = False
            steps.append((subject.embeds(batch, length, seed=length), active))
        state = subject.prefill()
        for embeds, active in steps:
            state = subject.backbone.step(state, embeds, active, advance)
        counts = torch.cat([active for _, active in steps], 1).sum(1)
        assert len(set(counts.tolist())) > 3, "rows of equally many steps prove little"
        texts = subject.texts(state)
        for row in range(batch):
            alone = subject.prefill([row])
            for embeds, active in steps:
                for column in active[row].nonzero()[:, 0].tolist():
                    new = embeds[row : row + 1, column : column + 1]
                    alone = subject.backbone.step(alone, new, everyone(1), advance)
            close(state.hidden[row : row + 1], alone.hidden)
            assert state.position[row] == alone.position[0]
            assert texts[row] == subject.texts(alone)[0]

    def test_a_hole_keeps_the_hidden_state_along_the_trail(self, subject):
        batch = len(subject.clips)
        start = subject.prefill()
        active = torch.tensor([[False, True, False]]).expand(batch, 3)
        state = subject.backbone.step(start, subject.embeds(batch, 3), active)
        assert torch.equal(state.trail[:, 1], start.hidden)
        assert torch.equal(state.trail[:, 3], state.trail[:, 2])
        assert (state.trail[:, 2] - state.trail[:, 1]).abs().max() > 0.1

    # Ways back

    def test_a_dropped_position_never_happened(self, subject):
        batch = len(subject.clips)
        embeds = subject.embeds(batch, 3)
        active = everyone(batch, 3)
        active[1::2, 1] = False
        longer = subject.backbone.step(subject.prefill(), embeds, active)
        shorter = subject.backbone.step(subject.prefill(), embeds[:, :1], active[:, :1])
        dropped = subject.backbone.drop(longer, 2)
        same_future(subject, dropped, shorter)
        more = subject.embeds(batch, 2, seed=5)
        same_future(
            subject,
            subject.backbone.step(dropped, more, everyone(batch, 2)),
            subject.backbone.step(shorter, more, everyone(batch, 2)),
        )

    def test_only_positions_of_the_latest_operation_can_be_dropped(self, subject):
        state = subject.backbone.step(subject.prefill([0]), subject.embeds(1, 2), everyone(1, 2))
        same_future(subject, subject.backbone.drop(state, 0), state)
        with pytest.raises(ValueError, match="cannot drop 3"):
            subject.backbone.drop(state, 3)
        same_future(subject, subject.backbone.drop(state, 2), subject.prefill([0]))

    @pytest.mark.parametrize("rows", [None, "all"])
    def test_rollback_of_all_rows_is_an_identity(self, subject, rows):
        batch = len(subject.clips)
        rows = rows and torch.ones(batch, dtype=torch.bool)
        start = subject.prefill()
        away = subject.backbone.step(start, subject.embeds(batch, 2), everyone(batch, 2))
        away = subject.backbone.step(away, subject.embeds(batch, 1, seed=4), everyone(batch))
        back = subject.backbone.rollback(away, start, rows)
        assert back.mask.shape == start.mask.shape
        same_future(subject, back, subject.prefill())
        more = subject.embeds(batch, 2, seed=5)
        same_future(
            subject,
            subject.backbone.step(back, more, everyone(batch, 2)),
            subject.backbone.step(subject.prefill(), more, everyone(batch, 2)),
        )

    def test_rollback_of_some_rows_leaves_the_others(self, subject):
        batch = len(subject.clips)
        rows = torch.arange(batch) % 3 == 0
        embeds, more = subject.embeds(batch, 2), subject.embeds(batch, 2, seed=5)
        start = subject.prefill()
        away = subject.backbone.step(start, embeds, everyone(batch, 2))
        back = subject.backbone.rollback(away, start, rows)
        expected = subject.backbone.step(
            subject.prefill(), embeds, ~rows[:, None] & everyone(batch, 2)
        )
        same_future(subject, back, expected)
        same_future(
            subject,
            subject.backbone.step(back, more, everyone(batch, 2)),
            subject.backbone.step(expected, more, everyone(batch, 2)),
        )

    def test_rollback_to_the_state_itself(self, subject):
        state = subject.prefill([0, 1])
        same_future(subject, subject.backbone.rollback(state, state), state)

    def test_a_consumed_state_is_refused(self, subject):
        backbone, start = subject.backbone, subject.prefill([0, 1])
        again = backbone.step(start, subject.embeds(2, 1), everyone(2))
        operations = {
            "step": lambda: backbone.step(start, subject.embeds(2, 1), everyone(2)),
            "drop": lambda: backbone.drop(start, 1),
            "rollback": lambda: backbone.rollback(start, start),
            "fork": lambda: backbone.fork(start, torch.tensor([0])),
            "search": lambda: greedy(backbone, start, [2, 2]),
        }
        for name, operation in operations.items():
            with pytest.raises(StaleState):
                operation()
                pytest.fail(f"{name} took a consumed state")
        cut = backbone.drop(again, 1)
        with pytest.raises(StaleState):
            backbone.step(again, subject.embeds(2, 1), everyone(2))
        same_future(subject, cut, subject.prefill([0, 1]))
        longer = backbone.step(cut, subject.embeds(2, 3), everyone(2, 3))
        backbone.drop(longer, 1)
        with pytest.raises(StaleState):
            backbone.step(longer, subject.embeds(2, 1), everyone(2))

    def test_a_state_whose_positions_were_replaced_is_refused(self, subject):
        backbone, start = subject.backbone, subject.prefill([0, 1])
        abandoned = backbone.step(start, subject.embeds(2, 1), everyone(2))
        start = backbone.rollback(abandoned, start)
        taken = backbone.step(start, subject.embeds(2, 1, seed=1), everyone(2))
        for operation in (
            lambda: backbone.step(abandoned, subject.embeds(2, 1), everyone(2)),
            lambda: backbone.rollback(taken, abandoned),
        ):
            with pytest.raises(StaleState):
                operation()

    def test_rollback_needs_a_target_in_the_states_own_past(self, subject):
        backbone, start = subject.backbone, subject.prefill([0])
        with pytest.raises(StaleState):
            backbone.rollback(start, subject.prefill([0]))
        ahead = backbone.step(start, subject.embeds(1, 2), everyone(1, 2))
        with pytest.raises(StaleState):
            backbone.rollback(backbone.drop(ahead, 1), ahead)

    # Several continuations

    def test_a_fork_equals_its_source_rows(self, subject):
        rows = torch.tensor([2, 0, 0, 1])
        batch = len(subject.clips)
        active = everyone(batch, 2)
        active[0, 1] = False
        state = subject.backbone.step(subject.prefill(), subject.embeds(batch, 2), active)
        texts = subject.texts(state)
        forked = subject.backbone.fork(state, rows)
        close(forked.hidden, state.hidden[rows])
        assert torch.equal(forked.position, state.position[rows])
        assert subject.texts(forked) == [texts[row] for row in rows.tolist()]

    def test_a_fork_and_its_source_do_not_touch_each_other(self, subject):
        batch = len(subject.clips)
        state = subject.prefill()
        texts = subject.texts(state)
        forked = subject.backbone.fork(state, torch.arange(batch))
        gone = subject.backbone.step(forked, subject.embeds(batch, 3), everyone(batch, 3))
        assert subject.texts(state) == texts
        gone_texts = subject.texts(gone)
        moved = subject.backbone.step(state, subject.embeds(batch, 2, seed=1), everyone(batch, 2))
        assert subject.texts(gone) == gone_texts
        assert subject.texts(moved) != texts
        with pytest.raises(StaleState):
            subject.backbone.rollback(gone, state)

    def test_stages_and_branches(self, subject):
        """Rows of a branch equal their stage, which the source still is."""
        rng = torch.Generator().manual_seed(6)
        state = subject.prefill([0, 1])
        width = subject.backbone.width
        embeds = torch.randn(2, 3, width, generator=rng) * 0.5
        active = torch.tensor([[True, True, True], [True, False, True]])
        more = torch.randn(2, 2, width, generator=rng) * 0.5
        both = torch.ones(2, 2, dtype=torch.bool)
        alone = []
        for count in range(4):
            fresh = subject.prefill([0, 1])
            if count:
                fresh = subject.backbone.step(fresh, embeds[:, :count], active[:, :count])
            alone.append(subject.backbone.step(fresh, more, both).hidden)
        state = subject.backbone.step(state, embeds, active)
        stages = subject.backbone.stages(state)
        assert len(stages) == 4 and torch.equal(stages[3].hidden, state.hidden)
        branch = subject.backbone.branch(stages)
        hidden = subject.backbone.step(branch, more.repeat(4, 1, 1), both.repeat(4, 1)).hidden
        torch.testing.assert_close(hidden, torch.cat(alone), atol=1e-5, rtol=0.0)
        again = subject.backbone.step(state, more, both).hidden
        torch.testing.assert_close(again, alone[3], atol=1e-5, rtol=0.0)
        with pytest.raises(StaleState):
            subject.backbone.branch(stages)

    def test_decoding_twice_equals_decoding_once(self, subject):
        state = subject.prefill()
        first, second = (greedy(subject.backbone, state, [CAP] * len(subject.clips)) for _ in "ab")
        assert first == second
        fresh = subject.prefill()
        batch = len(subject.clips)
        embeds = subject.embeds(batch, 2)
        same_future(
            subject,
            subject.backbone.step(state, embeds, everyone(batch, 2)),
            subject.backbone.step(fresh, embeds, everyone(batch, 2)),
        )

    # Gradients

    @pytest.mark.parametrize("advance", [True, False])
    def test_loss_and_gradient_equal_a_forward_without_cache(self, subject, advance):
        """Three injected embeddings, then teacher forcing: one row takes all, one one, one none."""
        rows, counts = [0, 3, 5], [3, 1, 0]
        targets = torch.tensor([[5, 17, 40], [90, 3, 61], [7, 7, 7]])
        thoughts = subject.embeds(3, 3, seed=9).requires_grad_()
        backbone = subject.backbone

        with torch.no_grad():
            state = subject.prefill(rows)
        for column in range(3):
            active = torch.tensor([[column < count] for count in counts])
            state = backbone.step(state, thoughts[:, column : column + 1], active, advance)
        read = backbone.step(state, backbone.embed(targets[:, :-1]), everyone(3, 2))
        logits = torch.stack([backbone.logits(read.trail[:, j]) for j in range(3)], 1)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        (gradient,) = torch.autograd.grad(loss, thoughts)

        recomputed = torch.zeros(())
        for row, (clip, count) in enumerate(zip(rows, counts, strict=True)):
            (audio,) = subject.encoded([clip]).audio
            prompt = subject.prompt_embeds(audio)
            length = len(prompt)
            extra = [length - 1] * count
            if advance:
                extra = list(range(length, length + count))
            first = length + count if advance else length
            embeds = torch.cat([prompt, thoughts[row, :count], backbone.embed(targets[row, :2])])
            positions = [*range(length), *extra, first, first + 1]
            hidden = subject.full_forward(audio, embeds, positions)[-3:]
            scores = (hidden @ backbone.embedding_table.T).log_softmax(-1)
            recomputed = recomputed - scores[range(3), targets[row]].sum() / 9
        (expected,) = torch.autograd.grad(recomputed, thoughts)

        close(loss.detach(), recomputed.detach())
        close(gradient, expected)
        for row, count in enumerate(counts):
            assert (gradient[row, :count].abs().amax(-1) > 1e-4).all(), "no gradient arrives"
            assert (gradient[row, count:] == 0).all(), "a hole has a gradient"

    def test_no_parameter_requires_a_gradient_or_moves(self, subject):
        parameters = list(subject.backbone.model.parameters())
        assert parameters
        before = [parameter.clone() for parameter in parameters]
        thoughts = subject.embeds(2, 2).requires_grad_()
        state = subject.backbone.step(subject.prefill([0, 1]), thoughts, everyone(2, 2))
        subject.backbone.logits(state.hidden).logsumexp(-1).sum().backward()
        assert thoughts.grad is not None and thoughts.grad.abs().sum() > 0
        for parameter, old in zip(parameters, before, strict=True):
            assert not parameter.requires_grad and parameter.grad is None
            assert torch.equal(parameter, old)

    # Vocabulary

    def test_logits_and_embeddings_share_the_table(self, subject):
        backbone = subject.backbone
        assert backbone.embedding_table.shape[1] == backbone.width
        ids = torch.tensor([[3, 0], [2, 1]])
        assert torch.equal(backbone.embed(ids)[1, 0], backbone.embedding_table[2])
        hidden = subject.embeds(2)
        logits = backbone.logits(hidden)
        assert logits.dtype == torch.float32
        close(logits, hidden @ backbone.embedding_table.T)
        assert all(0 <= token < len(backbone.embedding_table) for token in backbone.end_ids)

    def test_suppression_removes_tokens_and_changes_nothing_else(self, subject):
        backbone = subject.backbone
        logits = backbone.logits(subject.embeds(3))
        kept = {first: backbone.suppress(logits, first) for first in (False, True)}
        for cut in kept.values():
            assert ((cut == logits) | (cut == -torch.inf)).all()
            assert torch.isfinite(cut).any(1).all()
        assert torch.isfinite(kept[False][:, list(backbone.end_ids)]).all(), "a text must be able to end"
        assert (torch.isfinite(kept[False]) | ~torch.isfinite(kept[True])).all()
        mixed = backbone.suppress(logits, torch.tensor([True, False, True]))
        assert torch.equal(mixed, torch.stack([kept[f][i] for i, f in enumerate((True, False, True))]))
        for row in subject.texts(subject.prefill([0, 1])):
            assert all(torch.isfinite(kept[i == 0][0, token]) for i, token in enumerate(row))

    def test_clips_beyond_the_limit_are_refused(self, subject):
        limit = subject.backbone.max_samples
        longest = 16000 * 6 if limit is None else min(limit, 16000 * 30)
        clip = np.resize(subject.clips[0], longest)
        assert len(subject.backbone.encode([clip])) == 1
        if limit is not None:
            with pytest.raises(DataError, match="hears"):
                subject.backbone.encode([clip, np.resize(clip, limit + 1)])

    def test_transcripts_and_prompts(self, subject):
        text = subject.backbone.text
        target = text.target("call ann")
        assert target[-1] in subject.backbone.end_ids and text.detokenize(target) == "call ann"
        prompt = text.prompt("en", PromptConfig())
        assert prompt == text.prompt("English", PromptConfig(), training=True) == subject.prompt
        vocabulary = text.vocabulary()
        assert text.tokens(prompt.after) == [vocabulary[token] for token in prompt.after]
