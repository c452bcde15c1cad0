"""Sequence training of the latent adapter: probabilities, gradient, lists, and what stays as it was."""

import dataclasses

import jiwer
import pytest
import torch

from espnet_latentasr.adaptation.base import TrainBatch
from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.adaptation.latent_mwer import (
    CandidateLists,
    expected_word_errors,
    mwer_loss,
    sequence_log_probs,
)
from espnet_latentasr.backbone.base import Encoded
from espnet_latentasr.config import ModelConfig, MwerConfig, PromptConfig, build, config_hash
from espnet_latentasr.decode.nbest import sequence_scores
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.decode.training_lists import CAP_EXTRA, CAP_FACTOR, TrainingLists
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.latent import halting

TEXTS = ["turn on the light", "call ann", "seven five nine zero", "jan"]
PLAIN = {
    "latent": {
        "steps": 2,
        "positions": "hold",
        "delta": "free",
        "gate": "open",
        "normalize": "all",
        "depth": "sampled",
        "drop": 0.0,
        "noise": {"std": 0.0},
    },
    "value": {"flip": {"prob": 0.0}},
    "loss": {"cycle": 0.0, "value": 0.0},
}


def make(tiny_backbone, mwer=None, **latent) -> LatentMethod:
    sections = PLAIN | {"latent": PLAIN["latent"] | latent}
    sections |= {"loss": PLAIN["loss"] | {"mwer": mwer or {}}}
    torch.manual_seed(0)
    method = LatentMethod(build(ModelConfig, sections), tiny_backbone)
    with torch.no_grad():
        for parameter in method.adapter.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    if mwer:
        method.write_lists = TrainingLists(tiny_backbone, method.config.loss.mwer)
    return method


def generator():
    return torch.Generator().manual_seed(1)


def thought(method, batch, depth=2):
    probed = method.read_prompt(batch.encoded, batch.prompts)
    return method.think(probed, halting.fixed(depth))[0]


def recorded(method) -> list[CandidateLists]:
    """Every list that the method asks for from now on."""
    made, write = [], method.write_lists

    def writer(*arguments):
        made.append(write(*arguments))
        return made[-1]

    method.write_lists = writer
    return made


def lists_of(backbone) -> CandidateLists:
    """Hand-made lists: three texts, one whose candidates are equally wrong, one of a single text."""
    ids = backbone.text.tokenize
    tokens = [
        [tuple(ids("turn on the light")), tuple(ids("turn on")), ()],
        [tuple(ids("call")), tuple(ids("ann"))],
        [tuple(ids("nine"))],
        [tuple(ids("call ann and jan")), tuple(ids("jan"))],
    ]
    return CandidateLists(tokens, [[0, 2, 4], [1, 1], [4], [3, 0]], [4, 2, 4, 1])


def test_log_probabilities_are_those_of_the_search(tiny_backbone, batch):
    """Same as decoding's scores, one by one as together; the state can be read again."""
    state = thought(make(tiny_backbone), batch)[-1]
    lists = lists_of(tiny_backbone)
    rows = [b for b, group in enumerate(lists.tokens) for _ in group]
    sequences = [tokens for group in lists.tokens for tokens in group]
    found = sequence_log_probs(tiny_backbone, state, rows, sequences)
    assert found.requires_grad and found.dtype == torch.float64
    alone = [sequence_log_probs(tiny_backbone, state, [r], [s]) for r, s in zip(rows, sequences)]
    assert torch.allclose(found, torch.cat(alone), atol=1e-4)
    expected = sequence_scores(tiny_backbone, state, rows, sequences)
    assert found.tolist() == pytest.approx(expected, abs=1e-4)


def test_the_loss_equals_enumeration(tiny_backbone, batch):
    """Each candidate alone, its tokens read one at a time; lists without a choice keep their errors."""
    state = thought(make(tiny_backbone), batch)[-1]
    lists, temperature = lists_of(tiny_backbone), 2.0
    risks = []
    with torch.no_grad():
        for row, (group, errors) in enumerate(zip(lists.tokens, lists.errors)):
            masses = []
            for tokens in group:
                here, mass = tiny_backbone.fork(state, torch.tensor([row])), 0.0
                for token in tokens:
                    mass += tiny_backbone.logits(here.hidden).log_softmax(-1)[0, token].item()
                    embeds = tiny_backbone.embed(torch.tensor([[token]]))
                    here = tiny_backbone.step(here, embeds, torch.ones(1, 1, dtype=torch.bool))
                ends = tiny_backbone.logits(here.hidden).softmax(-1)[0, list(tiny_backbone.end_ids)]
                masses.append(mass + ends.sum().log().item())
            weights = torch.tensor(masses, dtype=torch.float64).div(temperature).exp()
            risks.append(float((weights / weights.sum()) @ torch.tensor(errors).double()))
    loss, stats = mwer_loss(tiny_backbone, state, lists, temperature, torch.ones(4).bool())
    assert loss.item() == pytest.approx(sum(risks) / 11, abs=1e-5)
    assert stats["mwer"] == loss
    assert stats["wer"].item() == pytest.approx((0 + 1 + 4 + 3) / 11)
    assert stats["wer_oracle"].item() == pytest.approx((0 + 1 + 4 + 0) / 11)
    assert stats["list_size"] == 2 and stats["list_informative"] == 0.5


def test_a_batch_gives_what_its_utterances_give_alone(tiny_backbone, batch):
    method = make(tiny_backbone)
    lists = lists_of(tiny_backbone)
    together = expected_word_errors(
        tiny_backbone, thought(method, batch)[-1], lists, 1.0, torch.ones(4).bool()
    )
    for row in range(4):
        single = dataclasses.replace(
            batch, encoded=Encoded(batch.encoded.audio[row : row + 1]), prompts=batch.prompts[:1]
        )
        one = CandidateLists(*(part[row : row + 1] for part in dataclasses.astuple(lists)))
        state = thought(method, single)[-1]
        alone = expected_word_errors(tiny_backbone, state, one, 1.0, torch.ones(1).bool())
        assert together[row].item() == pytest.approx(alone.item(), abs=1e-4)


def test_uncounted_utterances_add_nothing(tiny_backbone, batch):
    state = thought(make(tiny_backbone), batch)[-1]
    counted = torch.tensor([True, False, False, False])
    lists = lists_of(tiny_backbone)
    some = expected_word_errors(tiny_backbone, state, lists, 1.0, counted)
    every = expected_word_errors(tiny_backbone, state, lists, 1.0, torch.ones(4).bool())
    assert some[0].item() == pytest.approx(every[0].item(), abs=1e-6)
    assert some[1:].tolist() == [0, 0, 0] and every[1:3].tolist() == [1, 4]


def test_the_gradient_equals_finite_differences(tiny_backbone, batch):
    """Along the gradient itself and along a random direction, through both latent steps."""
    method = make(tiny_backbone)
    lists = lists_of(tiny_backbone)
    weights = [p for _, p in sorted(method.adapter.named_parameters())]

    def loss():
        state = thought(method, batch)[-1]
        return mwer_loss(tiny_backbone, state, lists, 3.0, torch.ones(4).bool())[0]

    loss().backward()
    gradient = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in weights]
    length = torch.stack([g.norm() for g in gradient]).norm()
    assert length > 1e-3
    noise = [torch.randn(p.shape, generator=generator()) for p in weights]
    for direction, scale in ((gradient, length), (noise, torch.stack([n.norm() for n in noise]).norm())):
        step = [d / scale * 3e-2 for d in direction]
        slope = sum((g * s).sum() for g, s in zip(gradient, step)).item()
        values = []
        for sign in (1, -2):
            with torch.no_grad():
                for parameter, move in zip(weights, step):
                    parameter.add_(sign * move)
                values.append(loss().item())
        with torch.no_grad():
            for parameter, move in zip(weights, step):
                parameter.add_(move)
        assert (values[0] - values[1]) / 2 == pytest.approx(slope, rel=2e-2, abs=2e-6)


def test_following_the_gradient_lowers_the_expected_errors(tiny_backbone, batch):
    method, lists = make(tiny_backbone), lists_of(tiny_backbone)
    optimizer = torch.optim.Adam(method.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        state = thought(method, batch)[-1]
        loss, _ = mwer_loss(tiny_backbone, state, lists, 1.0, torch.ones(4).bool())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0] - 0.01


def test_lists_hold_the_greedy_texts_of_all_depths_and_samples(tiny_backbone, batch):
    method = make(tiny_backbone)
    stages = thought(method, batch, torch.tensor([2, 1, 2, 0]))
    seeds = [[7, 8, 9]] * 4
    writer = TrainingLists(tiny_backbone, MwerConfig("nbest", samples=3))
    lists = writer(stages, batch.targets, seeds)
    caps = [CAP_FACTOR * len(ids) + CAP_EXTRA for ids in batch.targets]
    with torch.no_grad():
        texts = greedy(tiny_backbone, tiny_backbone.branch(stages), caps * 3)
        own = greedy(tiny_backbone, tiny_backbone.branch([stages[-1]]), caps)
    for row, group in enumerate(lists.tokens):
        assert group[0] == own[row].tokens
        assert {texts[4 * depth + row].tokens for depth in range(3)} <= set(group)
        assert len(set(group)) == len(group) <= 6
        assert lists.lengths[row] == len(TEXTS[row].split())
        for tokens, errors in zip(group, lists.errors[row]):
            found = jiwer.process_words(TEXTS[row], tiny_backbone.text.detokenize(tokens))
            assert errors >= found.substitutions + found.deletions + found.insertions
    assert max(map(len, lists.tokens)) > 2
    alone = TrainingLists(tiny_backbone, MwerConfig("nbest", samples=3, depths=False))
    few = alone(stages, batch.targets, seeds)
    assert [group[0] for group in few.tokens] == [hypothesis.tokens for hypothesis in own]
    assert all(set(a) <= set(b) for a, b in zip(few.tokens, lists.tokens))


def test_errors_are_counted_in_the_configured_unit_after_the_normaliser(tiny_backbone, batch):
    writer = TrainingLists(
        tiny_backbone, MwerConfig("nbest", unit="cer_nospace", normalizer="whisper_basic")
    )
    ids = [*tiny_backbone.text.tokenize("call ann"), tiny_backbone.text.end_id]
    assert writer._units(ids) == list("callann")


def test_loss_is_the_weighted_sum(tiny_backbone, batch):
    """The same draws whatever the weights, so value and gradient are linear in them."""

    def run(mwer):
        method = make(tiny_backbone, mwer)
        loss, stats = method.loss(batch, 0.0, generator())
        loss.backward()
        grads = [p.grad.flatten() for _, p in sorted(method.adapter.named_parameters())]
        return loss.item(), stats, torch.cat(grads)

    # Random weights give texts of very different lengths: a high temperature lets all have a say.
    soft = {"kind": "nbest", "temperature": 50.0, "samples": 2}
    off, _, ce_gradient = run(None)
    one, stats, both = run(soft | {"weight": 1.0, "ce": 1.0})
    two, _, more = run(soft | {"weight": 3.0, "ce": 1.0})
    rest, _, no_ce = run(soft | {"weight": 1.0, "ce": 0.0})
    assert one == pytest.approx(stats["ce"].item() + stats["mwer"].item(), rel=1e-5)
    assert off == pytest.approx(stats["ce"].item(), rel=1e-6)
    assert two - one == pytest.approx(2 * stats["mwer"].item(), rel=1e-4)
    assert rest == pytest.approx(stats["mwer"].item(), rel=1e-5)
    assert torch.allclose(both, ce_gradient + no_ce, atol=1e-5)
    assert torch.allclose(more, ce_gradient + 3 * no_ce, atol=1e-5)
    assert no_ce.norm() > 1e-4


def test_off_it_changes_nothing(tiny_backbone, batch):
    method = make(tiny_backbone)
    made = []
    method.write_lists = lambda *arguments: made.append(arguments)
    draws = generator()
    _, stats = method.loss(batch, 0.0, draws)
    expected = generator()
    torch.randint(1, 3, (4,), generator=expected)
    torch.rand(4, generator=expected)
    assert not made and "mwer" not in stats
    assert torch.equal(draws.get_state(), expected.get_state())


def test_the_section_left_out_changes_no_identity():
    without = build(ModelConfig, {})
    assert config_hash(without) == config_hash(build(ModelConfig, {"loss": {"mwer": {}}}))
    # What a plain mapping of the fields that there were before hashes to.
    plain = dataclasses.asdict(without)
    del plain["loss"]["mwer"]
    assert config_hash(without) == config_hash(plain)
    on = build(ModelConfig, {"loss": {"mwer": {"kind": "nbest"}}})
    assert config_hash(on) != config_hash(without)


def test_same_draws_same_loss_and_validation_draws_nothing(tiny_backbone, batch):
    method = make(tiny_backbone, {"kind": "nbest", "samples": 2})
    made = recorded(method)
    runs = [method.loss(batch, 0.0, seed) for seed in (generator(), generator(), None, None)]
    assert runs[0][0] == runs[1][0] and runs[2][0] == runs[3][0]
    assert len({tuple(stats) for _, stats in runs}) == 1
    assert made[0] == made[1] and made[2] == made[3]
    assert max(map(len, made[2].tokens)) <= 3  # the depths alone


def test_rows_without_latents_teach_nothing(tiny_backbone, batch):
    method = make(tiny_backbone, {"kind": "nbest", "ce": 0.0}, drop=1.0)
    loss, stats = method.loss(batch, 0.0, generator())
    loss.backward()
    assert stats["mwer"] == 0 and loss == 0 and stats["list_size"] == 0
    assert all(p.grad.abs().sum() == 0 for p in method.parameters())


def test_every_depth_at_once(tiny_backbone, batch):
    method = make(tiny_backbone, {"kind": "nbest"}, depth="every")
    loss, _ = method.loss(batch, 0.0, generator())
    loss.backward()
    assert loss.isfinite()


@pytest.mark.parametrize("refresh", ["batch", "epoch"])
def test_what_draws_the_lists(tiny_backbone, batch, refresh):
    """The adapter of the moment, or the one that the epoch began with; it is in no checkpoint."""
    method = make(tiny_backbone, {"kind": "nbest", "samples": 3, "refresh": refresh})
    made, names = recorded(method), set(method.state_dict())
    method.train()
    method.loss(batch, 0.0, generator())
    with torch.no_grad():
        for parameter in method.adapter.parameters():
            parameter.mul_(-2.0)
    method.loss(batch, 0.0, generator())
    method.train()  # the next epoch
    method.loss(batch, 0.0, generator())
    tokens = [lists.tokens for lists in made]
    assert (tokens[0] == tokens[1]) == (refresh == "epoch")
    assert tokens[0] != tokens[2]
    assert set(method.state_dict()) == names
    method.eval()
    method.loss(batch, 0.0, None)
    assert len(made) == 4


def test_lists_must_be_made_by_something(tiny_backbone, batch):
    method = make(tiny_backbone, {"kind": "nbest"})
    method.write_lists = None
    with pytest.raises(RuntimeError, match="nothing makes lists"):
        method.loss(batch, 0.0, generator())


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"weight": 2.0}, "loss_conf.mwer.weight: without effect under kind: none"),
        ({"kind": "nbest", "weight": 0.0}, r"loss_conf.mwer.weight: 0.0 is outside \(0"),
        ({"kind": "nbest", "samples": 1, "depths": False}, "lists of one candidate teach nothing"),
        ({"kind": "nbest", "temperature": 0}, "loss_conf.mwer.temperature: 0.0 is outside"),
        ({"kind": "eq4"}, "loss.mwer.kind: expected 'none' or 'nbest'"),
    ],
)
def test_contradictions_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        build(ModelConfig, {"loss": {"mwer": keys}})


def test_a_recogniser_that_attends_to_its_audio_from_the_side(tiny_whisper, clips):
    """Lists, loss and a gradient that agrees with the slope along it."""
    encoded = tiny_whisper.encode(clips[:2])
    prompts = [tiny_whisper.text.prompt("English", PromptConfig())] * 2
    targets = [tiny_whisper.text.target(text) for text in TEXTS[:2]]
    batch = TrainBatch(encoded, prompts, targets, torch.ones(2), torch.zeros(2))
    latent = PLAIN["latent"] | {"anchor_token": 1}
    torch.manual_seed(0)
    sections = {**PLAIN, "latent": latent, "loss": {"mwer": {"kind": "nbest", "temperature": 20.0}}}
    method = LatentMethod(build(ModelConfig, sections), tiny_whisper)
    method.write_lists = TrainingLists(tiny_whisper, method.config.loss.mwer)
    made = recorded(method)
    method.loss(batch, 0.0, generator())
    lists = made[0]

    def loss():
        state = thought(method, batch)[-1]
        return mwer_loss(tiny_whisper, state, lists, 20.0, torch.ones(2).bool())[0]

    loss().backward()
    weights = [p for p in method.adapter.parameters() if p.grad is not None]
    length = torch.stack([p.grad.norm() for p in weights]).norm()
    assert max(map(len, lists.tokens)) > 1 and length > 0
    with pytest.raises(DataError, match="the recogniser never writes them"):
        state = thought(method, batch)[-1]
        sequence_log_probs(tiny_whisper, state, [0], [()])  # no text may be empty
    values = []
    with torch.no_grad():
        step = [p.grad / length * 1e-2 for p in weights]
        for sign in (1, -2):
            for parameter, move in zip(weights, step):
                parameter.add_(sign * move)
            values.append(loss().item())
    assert (values[0] - values[1]) / 2e-2 == pytest.approx(length.item(), rel=5e-2)
