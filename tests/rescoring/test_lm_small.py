"""Small language models: masks, splits, determinism, and that training teaches something."""

from __future__ import annotations

import json
import math

import pytest
import torch

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.lm_loading import load_causal_lm, load_masked_lm
from espnet_latentasr.rescoring.small_lm import (
    IGNORED,
    RECORD,
    SmallLMPlan,
    build_tokenizer,
    mask_tokens,
    save,
    split_sentences,
    train,
)

SENTENCES = [f"{a} the {b} {c}" for a in ("open", "close", "paint") for b in ("red", "blue") for c in
             ("door", "gate", "lid", "box", "bag")] * 4
TINY = {"width": 16, "layers": 1, "heads": 2, "batch_size": 16, "held_out": 0.1, "seed": 2}


def plan(**more) -> SmallLMPlan:
    return SmallLMPlan(**(TINY | {"steps": 3} | more))


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def test_masks_cover_a_share_and_never_a_special_token():
    ids = torch.tensor([[3, 7, 8, 9, 4, 0], [3, 7, 4, 0, 0, 0]])
    special = torch.isin(ids, torch.tensor([0, 3, 4]))
    draws = torch.tensor([[0.0, 0.1, 0.6, 0.2, 0.0, 0.0], [0.0, 0.9, 0.0, 0.0, 0.0, 0.0]])
    inputs, labels = mask_tokens(ids, special, 2, 0.25, draws)
    assert inputs.tolist() == [[3, 2, 8, 2, 4, 0], [3, 2, 4, 0, 0, 0]]
    assert labels.tolist() == [[IGNORED, 7, IGNORED, 9, IGNORED, IGNORED], [IGNORED, 7, *[IGNORED] * 4]]
    nothing = torch.tensor([[3, 4]])
    inputs, labels = mask_tokens(nothing, torch.tensor([[True, True]]), 2, 0.25, torch.zeros(1, 2))
    assert inputs.tolist() == [[3, 4]] and labels.tolist() == [[IGNORED] * 2], "an empty sentence"


def test_copies_of_a_sentence_stay_on_one_side():
    training, held_out = split_sentences(SENTENCES, 0.2, 1)
    assert not set(training) & set(held_out)
    assert set(training) | set(held_out) == set(SENTENCES)
    assert len(training) == 4 * len(set(training)) and len(held_out) == len(set(held_out))
    assert split_sentences(list(reversed(SENTENCES)), 0.2, 1)[1] == held_out, "by content, not order"
    assert split_sentences(SENTENCES, 0.2, 2)[1] != held_out
    with pytest.raises(DataError, match="both parts"):
        split_sentences(["a"], 0.5, 1)


@pytest.mark.parametrize("units", ["word", "wordpiece"])
def test_the_tokenizer_is_the_same_every_time(units):
    one, *others = (build_tokenizer(SENTENCES, plan(units=units, vocab_size=60)) for _ in range(5))
    assert {other.backend_tokenizer.to_str() for other in others} == {one.backend_tokenizer.to_str()}
    ids = one("open the red door").input_ids
    assert one.convert_ids_to_tokens([ids[0], ids[-1]]) == ["[BOS]", "[EOS]"]
    assert 15 < len(one) <= 60
    if units == "word":
        assert len(build_tokenizer(SENTENCES, plan(vocab_size=8))) == 8
        assert one.tokenize("open the zebra") == ["open", "the", "[UNK]"]
    else:
        assert one.tokenize("the") == ["the"] and one.tokenize("then") == ["the", "##n"]
        assert "".join(one.tokenize("openlid")).replace("##", "") == "openlid"
        with pytest.raises(ConfigError, match="characters alone need"):
            build_tokenizer(SENTENCES, plan(units=units, vocab_size=20))


def test_training_is_deterministic_and_depends_on_the_seed():
    def weights(**more):
        model, _, record = train(SENTENCES, plan(**more))
        return torch.cat([p.flatten() for p in model.state_dict().values()]), record

    torch.manual_seed(0)
    one, record = weights()
    before = torch.rand(1)
    torch.manual_seed(99)
    two, same = weights()
    assert torch.equal(one, two) and record == same
    assert not torch.equal(one, weights(seed=3)[0])
    torch.manual_seed(0)
    assert torch.equal(before, torch.rand(1)), "the global generator is left alone"


@pytest.mark.parametrize("kind", ["masked", "causal"])
def test_training_beats_guessing_and_survives_saving(kind, tmp_path):
    model, tokenizer, record = train(SENTENCES, plan(kind=kind, steps=120, learning_rate=1e-2))
    # 30 equally likely sentences of four words: at best 30^(1/4) = 2.3 per word (2.0 with the end).
    assert 1.9 < record["held_out_perplexity"] < 3.2
    assert record["parameters"] < 10**6 and record["plan"]["seed"] == 2
    save(tmp_path, model, tokenizer, record)
    assert json.loads((tmp_path / RECORD).read_text()) == record
    loaded = (load_masked_lm if kind == "masked" else load_causal_lm)(str(tmp_path))
    _, held_out = split_sentences(SENTENCES, 0.1, 2)
    scores = loaded.score(dict.fromkeys(held_out, "u"))
    tokens = sum(len(s.split()) + (kind == "causal") for s in held_out)
    assert math.exp(-sum(scores.values()) / tokens) == pytest.approx(record["held_out_perplexity"])
    odd = loaded.score({"open the red door": "u", "open red the door": "u", "open the red zebra": "u"})
    best, *others = odd.values()
    assert best > max(others), "word order and unknown words are judged"


def test_wrong_plans_and_sentences_are_refused():
    with pytest.raises(ConfigError, match="kind: 'rnn'"):
        plan(kind="rnn")
    with pytest.raises(ConfigError, match="held_out"):
        plan(held_out=0.0)
    with pytest.raises(DataError, match="max_length 5 tokens: '"):
        train(SENTENCES, plan(max_length=5))
