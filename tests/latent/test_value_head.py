"""ValueHead by hand."""

from __future__ import annotations

import torch

from espnet_latentasr.latent.value_head import ValueHead


def example() -> ValueHead:
    head = ValueHead(2)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[0.5, -1.0]]))
        head.linear.bias.fill_(0.25)
    return head


def test_values_by_hand():
    # 0.5 - 0.5 + 0.25 = 0.25; 1 + 1 + 0.25 = 2.25
    hidden = torch.tensor([[1.0, 0.5], [2.0, -1.0]])
    expected = torch.tensor([0.2449187, 0.9780261])
    torch.testing.assert_close(example()(hidden), expected, atol=1e-6, rtol=0)


def test_any_leading_shape():
    head, hidden = example(), torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    values = head(hidden)
    assert values.shape == (3, 4)
    torch.testing.assert_close(values[1, 2], head(hidden[1, 2][None])[0])


def test_untrained_values_are_zero_and_can_be_trained():
    head = ValueHead(8)
    hidden = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    values = head(hidden)
    assert torch.equal(values, torch.zeros(3))
    (values - 1).pow(2).sum().backward()
    assert head.linear.weight.grad.abs().min() > 0 and head.linear.bias.grad.abs() > 0


def test_a_bfloat16_state_is_judged_in_float32():
    value = example()(torch.tensor([[1.0, 0.5]], dtype=torch.bfloat16))
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, torch.tensor([0.2449187]), atol=1e-6, rtol=0)
