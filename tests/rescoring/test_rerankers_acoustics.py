"""The acoustic value head: frames of tokens, features by hand, the hinge, training to a folder."""

from __future__ import annotations

import itertools
import json

import kaldiio
import numpy as np
import pytest
import torch

from espnet_latentasr.bin import rerank_nbest, train_reranker
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest, read_nbest, write_nbest
from espnet_latentasr.rescoring.rerankers_acoustics import Acoustics, align_tokens, hear
from espnet_latentasr.rescoring.rerankers_value import pairwise_hinge

META = Meta("sys", 4, "none", "sha256:m", num_paths=8)
LABELS = ("<blank>", "a", "b", "c")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def log_posteriors(rng, frames: int) -> np.ndarray:
    logits = rng.normal(size=(frames, len(LABELS))) * 2
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(6))
def test_the_alignment_is_the_best_of_all_growing_ones(seed):
    rng = np.random.default_rng(seed)
    lp = log_posteriors(rng, 6)
    for tokens in ((), (1,), (1, 1), (2, 1, 3), (1, 2, 1, 2, 3, 3)):
        frames = align_tokens(lp, tokens)
        assert all(a < b for a, b in itertools.pairwise(frames))
        best = max(
            sum(lp[t, k] for t, k in zip(ts, tokens))
            for ts in itertools.combinations(range(6), len(tokens))
        )
        assert lp[frames, list(tokens)].sum() == pytest.approx(best)
    with pytest.raises(DataError, match="7 tokens in 6 frames"):
        align_tokens(lp, (1,) * 7)


def test_features_by_hand():
    p = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]])
    states = np.array([[1.0, 0.0], [0.0, 2.0], [5.0, 4.0]], dtype=np.float32)
    hyps = (Candidate("a c", "a c", (1, 3), -1.5), Candidate("", "", (), -3.0))
    heard = hear(NBest("u", META, hyps), states, np.log(p).astype(np.float32), 0)
    assert heard.utterance.tolist() == [2.0, 2.0]
    assert heard.hypotheses.tolist() == [[2.5, 3.0], [2.0, 2.0]], "frames 1 and 2; no token: the mean"
    peaked, flat = -(0.7 * np.log(0.7) + 0.3 * np.log(0.1)), np.log(4)
    entropy = [peaked, peaked, flat]
    own = [3, np.mean(entropy), np.std(entropy), 1.05 / 3, (0.1 + 0.7 + 0.25) / 3]
    assert heard.scalars[0].tolist() == pytest.approx([-1.5, (0.7 + 0.25) / 2, 2, 3, *own], abs=1e-6)
    assert heard.scalars[1].tolist() == pytest.approx([-3.0, 0, 0, 0, *own], abs=1e-6)
    rows = heard.rows()
    assert rows.shape == (2, 15) and rows.dtype == np.float32
    assert rows[0, :6].tolist() == pytest.approx([2.5, 3.0, 2.0, 2.0, 0.5, 1.0])
    half = hear(NBest("u", META, hyps), states[[0, 2]], np.log(p), 0)
    assert half.hypotheses[0].tolist() == [3.0, 2.0], "frames 1 and 2 of 3 read states 0 and 1 of 2"


def test_hinge_by_hand():
    """Pairs (0, 1), (2, 1): 0.1 - 0.5 is met, 0.1 - (-0.2) is not; 0 and 2 are equally wrong."""
    scores = torch.tensor([1.0, 0.5, 0.3], requires_grad=True)
    loss = pairwise_hinge(scores, torch.tensor([0.0, 1.0, 0.0]), 0.1)
    assert loss.item() == pytest.approx(0.3 / 2)
    loss.backward()
    assert scores.grad.tolist() == pytest.approx([0, 0.5, -0.5])
    assert pairwise_hinge(scores, torch.zeros(3), 0.1).item() == 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Lists whose right candidate is told by the encoder states alone: (folder)."""
    root, rng = tmp_path_factory.mktemp("value"), np.random.default_rng(5)
    for part, count in (("train", 60), ("dev", 25)):
        lists, states, posteriors = [], {}, {}
        for index in range(count):
            utt, word = f"{part}{index:03d}", 1 + int(rng.integers(3))
            lp = np.full((5, 4), np.log(0.1))
            lp[[0, 1, 3, 4], 0] = np.log(0.7)
            lp[2] = np.log([0.19, 0.27, 0.27, 0.27])
            code = rng.normal(size=(5, 3)).astype(np.float32) * 0.3
            code[2, word - 1] += 3.0
            states[utt], posteriors[utt] = code, lp.astype(np.float32)
            order = rng.permutation([1, 2, 3])
            # Which label it is stands in its length in characters, which the network reads.
            hyps = [Candidate(LABELS[k] * k, LABELS[k] * k, (int(k),), -1.5) for k in order]
            lists.append(NBest(utt, META, tuple(hyps), ref=LABELS[word] * word))
        write_nbest(root / f"{part}.jsonl", lists)
        (root / part).mkdir()
        for name, table in (("states", states), ("ctc_logp", posteriors)):
            place = root / part / name
            kaldiio.save_ark(f"{place}.ark", table, scp=f"{place}.scp")
        (root / part / "posteriors.json").write_text(json.dumps({"model": "sha256:m"}))
        (root / part / "tokens.txt").write_text("".join(f"{label}\n" for label in LABELS))
    (root / "c.yaml").write_text("kind: value\nvalue: {epochs: 40, width: 32, width_2: 16, lr: 0.01}\n")
    return root


def options(root, part: str) -> list[str]:
    tables = ["--embeddings", root / part / "states.scp", "--posteriors", root / part / "ctc_logp.scp"]
    return [str(o) for o in ["--nbest", root / f"{part}.jsonl", *tables]]


def test_it_hears_what_probabilities_do_not_say(prepared):
    config = ["--config", str(prepared / "c.yaml")]
    for name in ("r", "again"):
        train_reranker.main([*options(prepared, "train"), *config, "--out", str(prepared / name)])
    tensors = [(prepared / n / "reranker.safetensors").read_bytes() for n in ("r", "again")]
    assert tensors[0] == tensors[1]
    log = json.loads((prepared / "r/reranker.json").read_text())["log"]
    assert len(log) == 40 and log[-1]["loss"] < log[0]["loss"]
    out = prepared / "scored.jsonl"
    reranker = ["--reranker", str(prepared / "r"), "--name", "head", "--out", str(out)]
    rerank_nbest.main([*options(prepared, "dev"), *reranker])
    right = [
        nbest.texts[int(np.argmax([c.scores["head"] for c in nbest.hyps]))] == nbest.ref
        for nbest in read_nbest(out)
    ]
    assert np.mean(right) > 0.85, "chance is a third"
    with pytest.raises(ConfigError, match="kind: value needs --embeddings and --posteriors"):
        rerank_nbest.main(["--nbest", str(prepared / "dev.jsonl"), *reranker])


def test_posteriors_of_another_model_are_refused(prepared):
    acoustics = Acoustics(prepared / "dev/states.scp", prepared / "dev/ctc_logp.scp")
    lists = next(iter(read_nbest(prepared / "dev.jsonl")))
    ar = NBest(lists.utt_id, Meta("ar-sample", 4, "none", "sha256:other"), lists.hyps)
    with pytest.raises(DataError, match="posteriors of sha256:m, but the lists .* made by sha256:other"):
        acoustics.hear(ar)
    with pytest.raises(DataError, match="utterance 'nobody': no such entry"):
        acoustics.hear(NBest("nobody", lists.meta, lists.hyps))
    far = NBest(lists.utt_id, lists.meta, (Candidate("x", "x", (4,), -1.0),))
    with pytest.raises(DataError, match="token 4, but the posteriors have 4 labels"):
        acoustics.hear(far)
