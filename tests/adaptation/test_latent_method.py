"""LatentMethod: what is trained, what is reported, and which states are supervised."""

import dataclasses

import pytest
import torch

from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.config import ModelConfig, build


def make(tiny_backbone, **sections) -> LatentMethod:
    torch.manual_seed(0)
    return LatentMethod(build(ModelConfig, sections), tiny_backbone)


def generator():
    return torch.Generator().manual_seed(1)


def test_only_adapter_and_value_head_are_parameters(tiny_backbone):
    method = make(tiny_backbone)
    assert {name.split(".")[0] for name in method.state_dict()} == {"adapter", "value_head"}
    assert all(not p.requires_grad for p in tiny_backbone.model.parameters())


def test_a_step_moves_the_method_and_not_the_recogniser(tiny_backbone, batch):
    method = make(tiny_backbone, latent={"drop": 0.0})
    before = {k: v.clone() for k, v in tiny_backbone.model.state_dict().items()}
    optimizer = torch.optim.AdamW(method.parameters(), lr=1e-2)
    loss, _ = method.loss(batch, 0.0, generator())
    loss.backward()
    moved = {name for name, p in method.named_parameters() if p.grad.abs().sum() > 0}
    assert moved == {name for name, _ in method.named_parameters()}
    optimizer.step()
    for key, value in tiny_backbone.model.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_loss_is_the_sum_of_its_weighted_terms(tiny_backbone, batch):
    method = make(tiny_backbone, loss={"cycle": 0.2, "value": 3.0}, latent={"drop": 0.0})
    loss, stats = method.loss(batch, 0.25, generator())
    expected = stats["ce"] + 3.0 * stats["value"] + 0.2 * 0.75 * stats["cycle"]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_a_batch_that_skips_the_loop_reports_the_frozen_scores(tiny_backbone, batch):
    method = make(tiny_backbone, latent={"drop": 1.0})
    loss, stats = method.loss(batch, 0.0, generator())
    assert stats["skipped"] == 1.0 and stats["depth"] == 0.0
    assert stats["ce"].item() == pytest.approx(stats["ce_base"].item(), abs=1e-5)
    assert stats["acc"].item() == pytest.approx(stats["acc_base"].item(), abs=1e-6)
    assert stats["value"] == 0.0
    loss.backward()  # no trainable ancestor: must not crash


def test_every_batch_reports_the_same_keys(tiny_backbone, batch):
    """Distributed training waits for ever when one process averages a key that another has not."""
    keys = {
        tuple(make(tiny_backbone, latent=latent).loss(batch, 0.0, seed)[1])
        for latent in ({"drop": 1.0}, {"drop": 0.0}, {"depth": "sampled"})
        for seed in (generator(), None)
    }
    assert len(keys) == 1


def test_zero_initialised_free_delta_starts_as_pause_tokens(tiny_backbone, batch):
    method = make(tiny_backbone, latent={"delta": "free", "delta_init": "zero", "gate": "open"})
    state, thoughts = method.think(
        method.read_prompt(batch.encoded, batch.prompts), lambda v, k: torch.ones_like(v) > 0
    )
    assert torch.equal(thoughts.updates, torch.zeros_like(thoughts.updates))


def test_validation_draws_nothing(tiny_backbone, batch):
    method = make(tiny_backbone, latent={"depth": "sampled"})
    one, stats = method.loss(batch, 0.0, None)
    two, _ = method.loss(batch, 0.0, None)
    assert one == two and stats["depth"] == 4.0 and stats["skipped"] == 0.0


def test_the_same_generator_gives_the_same_loss(tiny_backbone, batch):
    method = make(tiny_backbone, latent={"depth": "sampled"})
    losses = {method.loss(batch, 0.0, generator())[0].item() for _ in range(3)}
    assert len(losses) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"states": "all"}, [[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]),
        ({"states": "last"}, [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]),
        ({"target": "utility"}, [[1, 0, 1, 0, 0], [0, 0, 0, 0, 0]]),
    ],
)
def test_supervised_states(tiny_backbone, value, expected):
    """Row 0 took two steps, row 1 skipped the loop (only its h_0 was made)."""
    method = make(tiny_backbone, value=value)
    made = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
    found = method._supervised(made, torch.tensor([2, 0]), every=False)
    assert found.int().tolist() == expected


def test_detached_value_head_leaves_the_adapter_alone(tiny_backbone, batch):
    sections = {"latent": {"drop": 0.0, "noise": {"std": 0.0}}, "loss": {"cycle": 0.0}}
    attached = make(tiny_backbone, **sections)
    torch.nn.init.normal_(attached.value_head.linear.weight)
    detached = LatentMethod(
        dataclasses.replace(
            attached.config, value=dataclasses.replace(attached.config.value, detach=True)
        ),
        tiny_backbone,
    )
    detached.load_state_dict(attached.state_dict())
    grads = []
    for method, weight in ((attached, 3.0), (detached, 3.0), (detached, 0.0)):
        config = dataclasses.replace(
            method.config, loss=dataclasses.replace(method.config.loss, value=weight)
        )
        method.config = config
        method.zero_grad()
        method.loss(batch, 0.0, generator())[0].backward()
        grads.append(method.adapter.delta_projection.weight.grad.clone())
    assert torch.allclose(grads[1], grads[2], atol=1e-8)
    assert not torch.allclose(grads[0], grads[1], atol=1e-6)
