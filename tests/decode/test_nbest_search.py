"""Sampling and beam search: exact probabilities by enumeration, the library's own rules and results."""

from __future__ import annotations

import copy
import itertools
import math
from collections import Counter

import pytest
import torch
from transformers import Qwen3Config, Qwen3Model
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from espnet_latentasr.backbone.causal_lm import CausalLMBackbone
from espnet_latentasr.backbone.qwen3_asr import Qwen3ASRBackbone
from espnet_latentasr.decode.beam import beam_search
from espnet_latentasr.decode.sampling import SamplingRule, distribution, draw_seed, pick, sample
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.errors import ConfigError

CAP = 12
TOY_CAP = 3


class Toy(CausalLMBackbone):
    """A random decoder over six tokens, two of which end a text; its prompt is a few embeddings."""

    end_ids = (4, 5)

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(17)
            self.decoder = Qwen3Model(
                Qwen3Config(
                    vocab_size=6,
                    hidden_size=16,
                    intermediate_size=32,
                    num_hidden_layers=2,
                    num_attention_heads=2,
                    num_key_value_heads=1,
                    head_dim=8,
                    initializer_range=0.4,
                )
            )
            self.prompts = [torch.randn(length, 16) for length in (3, 5)]
            self.embedding_table = 0.35 * torch.randn(6, 16)
        self.decoder.eval().requires_grad_(False)

    def state(self):
        return self.prefill_embeds(self.prompts)

    @torch.no_grad()
    def next_logp(self, row: int, tokens: tuple[int, ...]) -> torch.Tensor:
        """(V,) by a forward over prompt and tokens, without cache, batch or padding."""
        embeds = torch.cat([self.prompts[row], self.embedding_table[list(tokens)]])
        hidden = self.decoder(inputs_embeds=embeds[None], use_cache=False).last_hidden_state[0, -1]
        return (hidden @ self.embedding_table.T).log_softmax(-1)

    def outcomes(self, row: int, rule=None) -> dict[tuple[tuple[int, ...], bool], float]:
        """Probability of every (tokens without end, capped) within TOY_CAP new tokens."""
        found: Counter = Counter()

        def grow(tokens, probability):
            logp = self.next_logp(row, tokens)
            step = logp.double().exp() if rule is None else distribution(logp[None], rule)[0]
            for token, p in enumerate(step.tolist()):
                if token in self.end_ids:
                    found[tokens, False] += probability * p
                elif len(tokens) + 1 == TOY_CAP:
                    found[(*tokens, token), True] += probability * p
                elif p > 0:
                    grow((*tokens, token), probability * p)

        grow((), 1.0)
        return dict(found)


@pytest.fixture(scope="module")
def toy() -> Toy:
    torch.set_num_threads(1)
    return Toy()


@pytest.fixture(scope="module")
def tiny(tiny_backbone, tiny_prompt, clips):
    """(backbone, state of all clips): beams and samples leave the state valid."""
    encoded = tiny_backbone.encode(clips)
    return tiny_backbone, tiny_backbone.prefill(encoded, [tiny_prompt] * len(clips))


# The distribution


@pytest.mark.parametrize(
    ("rule", "warpers"),
    [
        (SamplingRule(0.7), [TemperatureLogitsWarper(0.7)]),
        (SamplingRule(1.0, top_p=0.6), [TopPLogitsWarper(0.6)]),
        (SamplingRule(1.0, epsilon=0.05), [EpsilonLogitsWarper(0.05)]),
        (
            SamplingRule(1.5, 0.8, 0.1),
            [TemperatureLogitsWarper(1.5), TopPLogitsWarper(0.8), EpsilonLogitsWarper(0.1)],
        ),
        (SamplingRule(1.0, top_p=1e-6), [TopPLogitsWarper(1e-6)]),
        (SamplingRule(1.0, epsilon=0.99), [EpsilonLogitsWarper(0.99)]),
    ],
)
def test_cuts_are_those_of_the_library(rule, warpers):
    logits = torch.randn(20, 30, generator=torch.Generator().manual_seed(0)) * 2
    expected = logits
    for warper in warpers:
        expected = warper(None, expected)
    torch.testing.assert_close(distribution(logits, rule).float(), expected.softmax(-1))


def test_picking_inverts_the_distribution_function():
    probabilities = torch.tensor([[0.2, 0.0, 0.5, 0.3, 0.0]], dtype=torch.float64)
    for uniform, token in [(0.0, 0), (0.199, 0), (0.2, 2), (0.699, 2), (0.701, 3), (1 - 1e-16, 3)]:
        assert pick(probabilities, torch.tensor([uniform], dtype=torch.float64)).tolist() == [token]


def test_seeds_differ_between_utterances_samples_and_runs():
    seeds = {draw_seed(s, u, i) for s in (0, 1) for u in ("a", "b", "a1") for i in range(12)}
    assert len(seeds) == 2 * 3 * 12
    assert draw_seed(0, "a", 0) == draw_seed(0, "a", 0)


@pytest.mark.parametrize("bad", [{"temperature": 0.0}, {"top_p": 0.0}, {"top_p": 1.1}, {"epsilon": 1.0}])
def test_impossible_rules_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        SamplingRule(**bad)


# Samples


@pytest.mark.parametrize("rule", [SamplingRule(), SamplingRule(0.6, top_p=0.9, epsilon=0.03)])
def test_frequencies_are_the_exact_probabilities(toy, rule):
    count = 4000
    seeds = [[draw_seed(0, f"utt{row}", i) for i in range(count)] for row in range(2)]
    samples = sample(toy, toy.state(), [TOY_CAP] * 2, seeds, rule, max_rows=1000)
    for row in range(2):
        expected = toy.outcomes(row, rule)
        assert sum(expected.values()) == pytest.approx(1)
        found = Counter((h.tokens, h.capped) for h in samples[row])
        assert set(found) <= {outcome for outcome, p in expected.items() if p > 0}
        assert sum(p > 0.01 for p in expected.values()) > 10, "a weak subject"
        chi_square, freedom = 0.0, -1
        for outcome, p in expected.items():
            if count * p >= 5:
                chi_square += (found[outcome] - count * p) ** 2 / (count * p)
                freedom += 1
        assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


def test_a_samples_score_is_the_models_own_whatever_was_drawn_from(toy):
    seeds = [[draw_seed(1, f"{row}", i) for i in range(30)] for row in range(2)]
    samples = sample(toy, toy.state(), [TOY_CAP] * 2, seeds, SamplingRule(1.7, top_p=0.95))
    for row, group in enumerate(samples):
        for hypothesis in group:
            expected = sum(
                float(toy.next_logp(row, hypothesis.tokens[:i])[token])
                for i, token in enumerate(hypothesis.tokens)
            )
            if not hypothesis.capped:
                ends = [float(toy.next_logp(row, hypothesis.tokens)[end]) for end in toy.end_ids]
                assert any(
                    hypothesis.log_probability == pytest.approx(expected + end, abs=1e-4) for end in ends
                )
            else:
                assert hypothesis.log_probability == pytest.approx(expected, abs=1e-4)


def test_samples_do_not_depend_on_batch_rows_or_number(tiny):
    backbone, state = tiny
    rows = state.batch_size
    seeds = [[draw_seed(3, f"utt{row}", i) for i in range(5)] for row in range(rows)]
    caps = [CAP + row % 3 for row in range(rows)]
    rule = SamplingRule(1.2)
    together = sample(backbone, state, caps, seeds, rule, max_rows=64)
    assert len({h.tokens for group in together for h in group}) > 20
    assert {h.capped for group in together for h in group} == {True, False}
    for max_rows in (7, 13):
        assert [[h.tokens for h in g] for g in sample(backbone, state, caps, seeds, rule, max_rows)] == [
            [h.tokens for h in g] for g in together
        ]
    for row in (0, 3, rows - 1):
        alone = backbone.fork(state, torch.tensor([row]))
        (found,) = sample(backbone, alone, [caps[row]], [seeds[row][2:4]], rule)
        assert [h.tokens for h in found] == [h.tokens for h in together[row][2:4]]
        for one, other in zip(found, together[row][2:4]):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-3)


def test_temperature_changes_the_samples_and_zero_is_greedy(tiny):
    backbone, state = tiny
    rows = state.batch_size
    best = [h.tokens for h in greedy(backbone, state, [CAP] * rows)]
    seeds = [[draw_seed(0, f"utt{row}", i) for i in range(8)] for row in range(rows)]
    distinct = []
    for temperature in (1e-4, 0.02, 0.1):
        samples = sample(backbone, state, [CAP] * rows, seeds, SamplingRule(temperature))
        distinct.append(sum(len({h.tokens for h in group}) for group in samples))
        if temperature == 1e-4:
            assert all(h.tokens == best[row] for row, group in enumerate(samples) for h in group)
    assert rows == distinct[0] < distinct[1] < distinct[2]
    assert [h.tokens for h in greedy(backbone, state, [CAP] * rows)] == best, "the state stays valid"


def test_caps_and_no_samples(toy):
    state = toy.state()
    assert sample(toy, state, [2, 0], [[], [5]], SamplingRule())[0] == []
    (empty,) = sample(toy, state, [2, 0], [[], [5]], SamplingRule())[1]
    assert (empty.tokens, empty.log_probability, empty.capped) == ((), 0.0, True)
    with pytest.raises(ConfigError, match="max_rows"):
        sample(toy, state, [2, 2], [[1], [1]], SamplingRule(), max_rows=0)


# Beams


def test_width_one_is_greedy(tiny, toy):
    for backbone, state in (tiny, (toy, toy.state())):
        caps = [CAP + row % 4 for row in range(state.batch_size)]
        expected = greedy(backbone, state, caps)
        for found, best in zip(beam_search(backbone, state, caps, 1), expected, strict=True):
            assert (found[0].tokens, found[0].capped) == (best.tokens, best.capped)
            assert found[0].log_probability == pytest.approx(best.log_probability, abs=1e-4)
            assert len(found) == 1


def ended(toy: Toy, row: int) -> dict[tuple[int, ...], float]:
    """Best log-probability of every text of at most TOY_CAP - 1 tokens with one of its end tokens."""
    found = {}
    for length in range(TOY_CAP):
        for tokens in itertools.product(range(4), repeat=length):
            total = sum(float(toy.next_logp(row, tokens[:i])[t]) for i, t in enumerate(tokens))
            found[tokens] = total + float(toy.next_logp(row, tokens)[list(toy.end_ids)].max())
    return found


def test_a_wide_beam_finds_the_best_texts_there_are(toy):
    for row, found in enumerate(beam_search(toy, toy.state(), [TOY_CAP] * 2, 200, max_rows=400)):
        exact = ended(toy, row)
        complete = [h for h in found if not h.capped]
        assert {h.tokens for h in complete} == set(exact)
        for hypothesis in complete:
            assert hypothesis.log_probability == pytest.approx(exact[hypothesis.tokens], abs=1e-4)
        for kind in (False, True):
            scores = [h.log_probability for h in found if h.capped == kind]
            assert scores == sorted(scores, reverse=True) and len(scores) > 15
        assert [h.capped for h in found] == sorted(h.capped for h in found), "ended ones first"
        (narrow,) = beam_search(toy, toy.prefill_embeds([toy.prompts[row]]), [TOY_CAP], 8)
        assert narrow[0].tokens == complete[0].tokens


def test_beams_do_not_depend_on_the_batch(tiny):
    backbone, state = tiny
    caps = [CAP + row % 3 for row in range(state.batch_size)]
    together = beam_search(backbone, state, caps, 4)
    assert [[h.tokens for h in group] for group in beam_search(backbone, state, caps, 4, 4)] == [
        [h.tokens for h in group] for group in together
    ]
    for row in (0, 5):
        alone = backbone.fork(state, torch.tensor([row]))
        (found,) = beam_search(backbone, alone, [caps[row]], 4)
        assert [(h.tokens, h.capped) for h in found] == [(h.tokens, h.capped) for h in together[row]]


@pytest.fixture(scope="module")
def ending(tiny_backbone):
    """The tiny recogniser with a likelier end of text, and only one end token."""
    model = copy.deepcopy(tiny_backbone.model)
    with torch.no_grad():
        model.lm_head.weight[tiny_backbone.end_ids[-1]] *= 1.5
    backbone = Qwen3ASRBackbone(model, tiny_backbone.processor, "ending")
    backbone.end_ids = tiny_backbone.end_ids[-1:]
    return backbone


@pytest.mark.parametrize("width", [2, 3, 5])
def test_beams_are_those_of_generate(ending, tiny_prompt, clips, width):
    """With no length penalty; texts at the cap are treated otherwise by the library and left out."""
    (end,) = ending.end_ids
    compared = 0
    for clip in clips[:5]:
        inputs = ending.processor.apply_transcription_request(audio=[clip], language="English")
        output = ending.model.generate(
            **inputs,
            max_new_tokens=24,
            do_sample=False,
            num_beams=width,
            num_return_sequences=width,
            length_penalty=0.0,
            early_stopping=False,
            eos_token_id=[end],
            pad_token_id=end,
            return_dict_in_generate=True,
            output_scores=True,
        )
        state = ending.prefill(ending.encode([clip]), [tiny_prompt])
        (found,) = beam_search(ending, state, [24], width)
        texts = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
        if any(end not in text for text in texts) or any(h.capped for h in found):
            continue
        assert [list(h.tokens) for h in found] == [text[: text.index(end)] for text in texts]
        scores = [h.log_probability for h in found]
        assert scores == pytest.approx(output.sequences_scores.tolist(), abs=1e-3)
        compared += 1
    assert compared >= 3, "hardly any text ends by itself: a weak subject"


def test_impossible_widths_are_refused(toy):
    for width, max_rows in ((0, 64), (5, 4)):
        with pytest.raises(ConfigError, match="beam"):
            beam_search(toy, toy.state(), [2, 2], width, max_rows)
