"""The masked-LM reranker: its loss, batches, training to a folder and back."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from espnet_latentasr.bin import rerank_nbest, train_reranker
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.lm_loading import load_masked_lm
from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest, read_nbest, write_nbest
from espnet_latentasr.rescoring.rerankers import load_reranker
from espnet_latentasr.rescoring.rerankers_config import MaskedConfig
from espnet_latentasr.rescoring.rerankers_masked import MaskedReranker, list_loss
from espnet_latentasr.rescoring.small_lm import SmallLMPlan, save, train
from espnet_latentasr.sequence.expected_errors import expected_errors

META = Meta("sys", 4, "none", "m")
SENTENCES = [f"{a} the {b} {c}" for a in ("open", "close", "paint") for b in ("red", "blue")
             for c in ("door", "gate", "lid", "box", "bag")]  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm") / "masked"
    plan = SmallLMPlan(width=16, layers=1, heads=2, batch_size=16, held_out=0.1, steps=20, max_length=16)
    save(folder, *train(SENTENCES * 4, plan))
    return folder


def lists(count: int, seed: int, prefix: str) -> list[NBest]:
    """The right text keeps the article; acoustically all are alike."""
    rng, made = np.random.default_rng(seed), []
    for index in range(count):
        ref = str(rng.choice(SENTENCES))
        words = ref.split()
        texts = [" ".join([words[0], *words[2:]]), ref, " ".join([*words, words[-1]])]
        texts = [texts[i] for i in rng.permutation(3)]
        hyps = tuple(Candidate(t, t, (1,), -1.0) for t in texts)
        made.append(NBest(f"{prefix}{index:03d}", META, hyps, ref))
    return made


def test_the_loss_is_that_of_sequence_training():
    rng = np.random.default_rng(0)
    scores, acoustic, rates = (torch.from_numpy(rng.normal(size=5)) for _ in range(3))
    rates = rates.abs()
    config = MaskedConfig(temperature=2.0, acoustic=0.5)
    expected = expected_errors(((scores + 0.5 * acoustic) / 2.0)[None], rates[None])[0]
    assert list_loss(scores, acoustic, rates, config).item() == pytest.approx(expected.item())


def test_a_score_does_not_depend_on_the_rest_of_its_list(language_model):
    reranker = MaskedReranker(str(language_model), MaskedConfig()).eval()
    texts = ["open the red door", "open", "", "close the blue gate unheard of words"]
    with torch.no_grad():
        together = reranker(texts, "u")
        alone = torch.cat([reranker([text], "u") for text in texts])
    assert torch.allclose(together, alone, atol=1e-5)
    assert len(set(together.tolist())) == 4
    with pytest.raises(DataError, match="utterance 'u': 22 tokens .* at most 16"):
        reranker([" ".join(["red"] * 20)], "u")


def test_from_lists_to_scores(language_model, tmp_path):
    """Training lowers loss and held-out errors; the folder gives the trained scores back."""
    write_nbest(tmp_path / "train.jsonl", lists(60, 1, "train"))
    write_nbest(tmp_path / "dev.jsonl", lists(30, 2, "dev"))
    config = "kind: masked\nheld_out: 0.2\nmasked: {lr: 0.01, warmup: 5, batch: 8, epochs: 6}\n"
    (tmp_path / "c.yaml").write_text(config)
    options = ["--nbest", tmp_path / "train.jsonl", "--config", tmp_path / "c.yaml"]
    for name in ("r", "again"):
        train_reranker.main(
            [*map(str, [*options, "--model", language_model, "--out", tmp_path / name])]
        )
    for file in ("reranker.safetensors", "model/model.safetensors"):
        assert (tmp_path / "r" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    record = json.loads((tmp_path / "r/reranker.json").read_text())
    assert record["log"][-1]["loss"] < record["log"][1]["loss"]
    assert record["held_out"]["reranker"] < 0.5 * record["held_out"]["greedy"]
    assert record["held_out"]["reranker"] == min(e["held_out_error_rate"] for e in record["log"])
    before, after = (load_masked_lm(str(f)) for f in (language_model, tmp_path / "r/model"))
    moved = [
        not torch.equal(a, b) for a, b in zip(before.model.parameters(), after.model.parameters())
    ]
    assert any(moved)
    scored = tmp_path / "scored.jsonl"
    score = ["--nbest", tmp_path / "dev.jsonl", "--reranker", tmp_path / "r", "--out", scored]
    rerank_nbest.main([*map(str, score), "--name", "masked"])
    right = [
        n.texts[int(np.argmax([c.scores["masked"] for c in n.hyps]))] == n.ref for n in read_nbest(scored)
    ]
    assert np.mean(right) > 0.7, "chance is a third"
    loaded = load_reranker(tmp_path / "r")
    assert loaded.identity["model"].startswith("sha256:")
    first = next(iter(read_nbest(scored)))
    assert loaded.reranker.score(first) == pytest.approx([c.scores["masked"] for c in first.hyps])
    with pytest.raises(ConfigError, match="kind: masked needs --model"):
        train_reranker.main([*map(str, [*options, "--out", tmp_path / "q"])])
