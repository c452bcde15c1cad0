"""Full fine-tuning, LoRA, prompt tuning: what they train, what they leave alone, how they start."""

import dataclasses

import pytest
import torch

from espnet_latentasr.adaptation.registry import build_method
from espnet_latentasr.config import DecodeConfig, PromptConfig, build, model_config
from espnet_latentasr.decode.recogniser import Clips, Recogniser
from espnet_latentasr.errors import ConfigError

KINDS = {
    "full": {},
    "lora": {"lora": {"rank": 2, "alpha": 4.0, "dropout": 0.0}},
    "prompt": {"prompt_tuning": {"text": "turn on the light in the kitchen"}},
}


def make(kind, backbone, **sections):
    torch.manual_seed(0)
    return build_method(model_config(kind, KINDS[kind] | sections), backbone)


def train(method, batch, steps=2, lr=1e-2):
    optimizer = torch.optim.SGD(method.parameter_groups(), lr=lr)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss, _ = method.loss(batch, 0.0, torch.Generator().manual_seed(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_moves_the_trained_and_nothing_else(tiny_backbone, batch, kind):
    frozen = {k: v.clone() for k, v in tiny_backbone.model.state_dict().items()}
    method = make(kind, tiny_backbone).train()
    before = {k: v.detach().clone() for k, v in method.named_parameters()}
    losses = train(method, batch)
    assert losses[1] < losses[0]
    for key, value in tiny_backbone.model.state_dict().items():
        assert torch.equal(value, frozen[key]), key
    assert all(p.grad is None and not p.requires_grad for p in tiny_backbone.model.parameters())
    moved = {k for k, v in method.named_parameters() if not torch.equal(v, before[k])}
    # B of LoRA starts at zero, so that A has no gradient in the first of the two steps only.
    assert moved == set(before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_holds_the_trained_and_gives_the_same_again(tiny_backbone, batch, kind):
    method = make(kind, tiny_backbone).train()
    train(method, batch)
    states = {k: v.clone() for k, v in method.state_dict().items()}
    assert states.keys() == dict(method.named_parameters()).keys()
    other = make(kind, tiny_backbone)
    other.load_state_dict(states)
    with torch.no_grad():
        one, _ = method.eval().loss(batch, 0.0, None)
        two, _ = other.eval().loss(batch, 0.0, None)
    assert torch.equal(one, two)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_before_training_the_decoder_is_the_frozen_one(tiny_backbone, batch, kind):
    with torch.no_grad():
        _, stats = make(kind, tiny_backbone).eval().loss(batch, 0.0, None)
    torch.testing.assert_close(stats["ce"], stats["ce_base"], atol=1e-5, rtol=0.0)


def test_full_trains_the_decoder_and_the_tied_table(tiny_backbone):
    method = make("full", tiny_backbone)
    decoder = sum(
        p.numel() for n, p in tiny_backbone.decoder.named_parameters() if "embed_tokens" not in n
    )
    table = tiny_backbone.embedding_table.numel()
    assert sum(p.numel() for p in method.parameters()) == decoder + table


def test_lora_adds_two_thin_matrices_to_each_of_seven_maps(tiny_backbone):
    rank, layers = 2, len(tiny_backbone.decoder.layers)
    layer = tiny_backbone.decoder.layers[0]
    maps = [
        *(getattr(layer.self_attn, f"{n}_proj") for n in "qkvo"),
        *(getattr(layer.mlp, f"{n}_proj") for n in ("gate", "up", "down")),
    ]
    expected = layers * sum(rank * (m.in_features + m.out_features) for m in maps)
    assert sum(p.numel() for p in make("lora", tiny_backbone).parameters()) == expected


def test_lora_dropout_is_for_training(tiny_backbone, batch):
    method = make("lora", tiny_backbone, lora={"rank": 2, "alpha": 64.0, "dropout": 0.5})
    train(method.train(), batch, steps=3, lr=0.1)
    with torch.no_grad():
        assert method.loss(batch, 0.0, None)[0] != method.loss(batch, 0.0, None)[0]
        method.eval()
        assert method.loss(batch, 0.0, None)[0] == method.loss(batch, 0.0, None)[0]


def test_lora_refuses_a_module_that_is_not_there(tiny_backbone):
    with pytest.raises(ConfigError, match=r"lora_conf.modules: .*\['w_proj'\]; it has .*'q_proj'"):
        make("lora", tiny_backbone, lora={"modules": "q_proj w_proj"})


def test_prompt_tuning_starts_at_the_words_embeddings(tiny_backbone):
    method = make("prompt", tiny_backbone)
    ids = tiny_backbone.text.tokenize("turn on the light in the kitchen")[:4]
    assert torch.equal(method.vectors, tiny_backbone.embedding_table[ids])
    with pytest.raises(ConfigError, match="1 tokens, but prompt_tuning_conf.vectors is 4"):
        make("prompt", tiny_backbone, prompt_tuning={"text": "a"})


@pytest.mark.parametrize("positions", ["advance", "hold"])
def test_prompt_tuning_equals_a_forward_without_cache(
    tiny_backbone, tiny_prompt, clips, full_forward, positions
):
    section = KINDS["prompt"]["prompt_tuning"] | {"positions": positions}
    method = make("prompt", tiny_backbone, prompt_tuning=section)
    encoded = tiny_backbone.encode(clips[:2])
    state = method.read_prompt(encoded, [tiny_prompt] * 2)
    embed = tiny_backbone.embed
    for row in range(2):
        prompt = torch.cat(
            [
                embed(torch.tensor(tiny_prompt.before)),
                encoded.audio[row],
                embed(torch.tensor(tiny_prompt.after)),
            ]
        )
        size = len(prompt)
        new = range(size, size + 4) if positions == "advance" else [size - 1] * 4
        expected = full_forward(torch.cat([prompt, method.vectors]), [*range(size), *new])[-1]
        torch.testing.assert_close(state.hidden[row], expected, atol=2e-5, rtol=0.0)
        assert state.position[row] == (size + 4 if positions == "advance" else size)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_never_is_the_frozen_recogniser_always_the_adapted_one(
    tiny_backbone, batch, clips, kind
):
    method = make(kind, tiny_backbone).train()
    train(method, batch, steps=6, lr=0.3)
    recogniser = Recogniser(tiny_backbone, method, PromptConfig())
    some = Clips(clips[:4], ["en"] * 4)
    configs = [build(DecodeConfig, {"halting": {"kind": k}}) for k in ("never", "always")]
    never, always = recogniser.recognise(some, configs)
    frozen = Recogniser(tiny_backbone, None, PromptConfig()).recognise(some, configs[:1])[0]
    assert [r.hypothesis for r in never] == [r.hypothesis for r in frozen]
    assert [r.text for r in always] != [r.text for r in frozen]
    assert [r.hypothesis for r in recogniser.recognise(some, configs[::-1])[1]] == [
        r.hypothesis for r in never
    ]


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"halting": {"kind": "threshold"}}, "halting.kind: 'threshold' contradicts adaptation: lora"),
        ({"halting": {"kind": "always"}, "depths": "all"}, "depths: all contradicts adaptation: lora"),
        ({"halting": {"kind": "always"}, "latents": "mean"}, "latents: mean contradicts adaptation"),
    ],
)
def test_rules_of_latents_are_refused(tiny_backbone, clips, keys, said):
    recogniser = Recogniser(tiny_backbone, make("lora", tiny_backbone), PromptConfig())
    with pytest.raises(ConfigError, match=said):
        recogniser.recognise(Clips(clips[:1], ["en"]), [build(DecodeConfig, keys)])


def test_none_has_nothing_to_train(tiny_backbone):
    with pytest.raises(ConfigError, match="adaptation: none is the frozen recogniser"):
        build_method(model_config("none", {}), tiny_backbone)


@pytest.mark.parametrize(
    "adaptation, sections, said",
    [
        ("lora", {"latent": {"steps": 2}}, "adaptation: lora contradicts latent_conf.steps"),
        ("latent", {"lora": {"rank": 4}}, "adaptation: latent contradicts lora_conf.rank"),
        ("full", {"prompt_tuning": {"vectors": 2}}, "full contradicts prompt_tuning_conf.vectors"),
        ("none", {"value": {"detach": True}}, "adaptation: none contradicts value_conf.detach"),
    ],
)
def test_contradictory_choices_name_both_keys(adaptation, sections, said):
    with pytest.raises(ConfigError, match=said):
        model_config(adaptation, sections)


def test_the_batch_is_not_changed_by_the_method(tiny_backbone, batch):
    kept = dataclasses.replace(batch)
    train(make("full", tiny_backbone).train(), batch, steps=1)
    assert all(torch.equal(a, b) for a, b in zip(kept.encoded.audio, batch.encoded.audio))
