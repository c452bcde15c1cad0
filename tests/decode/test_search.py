"""Greedy search: caps, ends, scores against the library, and what it leaves behind."""

from __future__ import annotations

import copy

import pytest
import torch

from espnet_latentasr.decode.search import Hypothesis, greedy

LONG = 24


@pytest.fixture
def read(tiny_backbone, tiny_prompt, clips):
    """Return a function from clip numbers to the state after their prompts."""

    def read(rows):
        encoded = tiny_backbone.encode([clips[row] for row in rows])
        return tiny_backbone.prefill(encoded, [tiny_prompt] * len(rows))

    return read


@pytest.fixture
def full(tiny_backbone, read, clips) -> list[Hypothesis]:
    """Every clip's text under a generous cap; some end, some do not."""
    found = greedy(tiny_backbone, read(range(len(clips))), [LONG] * len(clips))
    assert {h.capped for h in found} == {True, False}
    return found


class Counting:
    """Passes everything on and counts forwards."""

    def __init__(self, backbone) -> None:
        self.backbone, self.active = backbone, []

    def __getattr__(self, name):
        return getattr(self.backbone, name)

    def step(self, state, embeds, active, advance=True):
        self.active.append(active[:, 0].tolist())
        return self.backbone.step(state, embeds, active, advance)


def test_scores_are_the_librarys_log_probabilities(tiny_backbone, clips, full):
    for clip, hypothesis in zip(clips, full, strict=True):
        inputs = tiny_backbone.processor.apply_transcription_request(
            audio=[clip], language="English"
        )
        length = inputs["input_ids"].shape[1]
        out = tiny_backbone.model.generate(
            **inputs,
            max_new_tokens=LONG,
            do_sample=False,
            eos_token_id=list(tiny_backbone.end_ids),
            pad_token_id=tiny_backbone.end_ids[-1],
            output_logits=True,
            return_dict_in_generate=True,
        )
        tokens = out.sequences[0, length:]
        scores = [
            logits[0].double().log_softmax(-1)[token]
            for logits, token in zip(out.logits, tokens, strict=True)
        ]
        assert hypothesis.log_probability == pytest.approx(float(sum(scores)), abs=1e-3)
        assert len(tokens) == len(hypothesis.tokens) + (not hypothesis.capped)


def test_flags_and_tokens(tiny_backbone, full):
    for hypothesis in full:
        assert not set(hypothesis.tokens) & set(tiny_backbone.end_ids)
        assert hypothesis.log_probability < 0
        if hypothesis.capped:
            assert len(hypothesis.tokens) == LONG
        else:
            assert len(hypothesis.tokens) < LONG


def test_a_cap_cuts_a_row_and_only_that_row(tiny_backbone, read, clips, full):
    caps = [1, 2, 3, 5, 8, 13, LONG, LONG]
    found = greedy(tiny_backbone, read(range(len(clips))), caps)
    for hypothesis, whole, cap in zip(found, full, caps, strict=True):
        assert hypothesis.tokens == whole.tokens[:cap]
        needed = len(whole.tokens) + (not whole.capped)
        assert hypothesis.capped == (whole.capped or needed > cap)
        (alone,) = greedy(tiny_backbone, read([full.index(whole)]), [cap])
        assert (hypothesis.tokens, hypothesis.capped) == (alone.tokens, alone.capped)
        assert hypothesis.log_probability == pytest.approx(alone.log_probability, abs=1e-4)


def test_the_end_token_needs_room_below_the_cap(tiny_backbone, read, full):
    row = next(n for n, h in enumerate(full) if not h.capped and h.tokens)
    whole = full[row]
    length = len(whole.tokens)
    (roomy,) = greedy(tiny_backbone, read([row]), [length + 1])
    assert (roomy.tokens, roomy.capped) == (whole.tokens, False)
    assert roomy.log_probability == pytest.approx(whole.log_probability, abs=1e-5)
    (tight,) = greedy(tiny_backbone, read([row]), [length])
    assert (tight.tokens, tight.capped) == (whole.tokens, True)
    assert tight.log_probability > whole.log_probability, "the end token's share is missing"


def test_without_room_nothing_is_decoded(tiny_backbone, read, full):
    empty = Hypothesis((), 0.0, True)
    assert greedy(tiny_backbone, read([0, 1]), [0, 0]) == [empty, empty]
    some = greedy(tiny_backbone, read([0, 1]), [0, LONG])
    assert some[0] == empty and some[1].tokens == full[1].tokens


def test_every_end_token_ends(tiny_backbone, read, full):
    row = next(n for n, h in enumerate(full) if len(set(h.tokens[:4])) == 4)
    for place in range(4):
        backbone = copy.copy(tiny_backbone)
        backbone.end_ids = (375, full[row].tokens[place])
        (found,) = greedy(backbone, read([row]), [LONG])
        assert found.tokens == full[row].tokens[:place] and not found.capped


def test_a_text_may_be_empty(tiny_backbone, read, full):
    backbone = copy.copy(tiny_backbone)
    backbone.end_ids = (full[0].tokens[0],)
    (found,) = greedy(backbone, read([0]), [5])
    assert found.tokens == () and not found.capped and found.log_probability < 0


def test_no_forward_is_wasted(tiny_backbone, read, clips, full):
    rows = range(len(clips))
    counting = Counting(tiny_backbone)
    greedy(counting, read(rows), [LONG] * len(clips))
    assert len(counting.active) == LONG - 1
    lengths = [len(h.tokens) + (not h.capped) for h in full]
    assert [sum(active[row] for active in counting.active) for row in rows] == [
        length - 1 for length in lengths
    ]
    counting = Counting(tiny_backbone)
    greedy(counting, read([0]), [1])
    assert counting.active == []
    ending = next(n for n, h in enumerate(full) if not h.capped)
    counting = Counting(tiny_backbone)
    greedy(counting, read([ending]), [LONG])
    assert len(counting.active) == lengths[ending] - 1


def test_rows_that_have_ended_are_left_behind(tiny_backbone, read, full):
    ending = next(n for n, h in enumerate(full) if not h.capped)
    endless = next(n for n, h in enumerate(full) if h.capped)
    counting, order = Counting(tiny_backbone), [ending, endless, ending, ending]
    state = read(order)
    found = greedy(counting, state, [LONG] * 4)
    assert [h.tokens for h in found] == [full[n].tokens for n in order]
    scores = [h.log_probability for h in found]
    assert scores == pytest.approx([full[n].log_probability for n in order], abs=1e-4)
    steps = len(full[ending].tokens)
    assert [len(active) for active in counting.active] == [4] * steps + [1] * (LONG - 1 - steps)
    assert greedy(tiny_backbone, state, [LONG] * 4) == found


@pytest.mark.parametrize("look_every", [2, 5, LONG, 2 * LONG])
def test_looking_less_often_changes_nothing(tiny_backbone, read, clips, full, look_every):
    state = read(range(len(clips)))
    assert greedy(tiny_backbone, state, [LONG] * len(clips), look_every) == full
    assert greedy(tiny_backbone, state, [LONG] * len(clips)) == full


def test_the_state_stays_valid(tiny_backbone, read, full):
    state = read([0, 1])
    columns = state.mask.shape[1]
    for cap in (1, 7, LONG):
        greedy(tiny_backbone, state, [cap, cap])
        assert state.cache.get_seq_length() == columns
    assert [h.tokens for h in greedy(tiny_backbone, state, [LONG] * 2)] == [
        h.tokens for h in full[:2]
    ]


def test_a_graph_on_the_state_is_left_alone(tiny_backbone, read):
    embeds = torch.zeros(1, 1, tiny_backbone.width, requires_grad=True)
    state = tiny_backbone.step(read([0]), embeds, torch.ones(1, 1, dtype=torch.bool))
    (found,) = greedy(tiny_backbone, state, [4])
    assert isinstance(found.log_probability, float)
    tiny_backbone.logits(state.hidden)[0, 3].backward()
    assert embeds.grad.abs().sum() > 0
