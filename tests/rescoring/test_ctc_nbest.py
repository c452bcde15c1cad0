"""Lists from posteriors, other posteriors of one utterance, and the command."""

import json
import math

import kaldiio
import numpy as np
import pytest
import torch
from torch import nn

from espnet_latentasr.bin.ctc_nbest import main
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.config import CtcListConfig
from espnet_latentasr.rescoring.ctc import log_probability, viterbi
from espnet_latentasr.rescoring.ctc_nbest import ctc_candidates, read_token_list
from espnet_latentasr.rescoring.ctc_scorers import (
    MaskConfig,
    contrast,
    contrastive,
    masked_features,
    mc_dropout,
    only_dropout,
)
from espnet_latentasr.rescoring.nbest_list import read_nbest
from espnet_latentasr.text.normalize import get_normalizer

TOKENS = ["<blank>", "<unk>", "▁a", "b", "▁ab", "c"]
NONE = get_normalizer("none")
WAYS = {
    "sys": {},
    "iid": {"seed": 3},
    "prefix": {"num_paths": 40},
    "kbest": {"output_beam": None},
}


def text(ids):
    return "".join(TOKENS[i] for i in ids).replace("▁", " ").strip()


def posterior(seed=0, frames=12):
    logits = np.random.default_rng(seed).standard_normal((frames, len(TOKENS))) * 2
    logits[:, 0] += 1
    logits[:, 1] -= 4
    return torch.tensor(logits).log_softmax(-1).numpy()


def candidates(lp, gen="sys", **keys):
    config = CtcListConfig(gen=gen, **{"size": 16} | WAYS[gen] | keys)
    return ctc_candidates(lp, "u", config, text, NONE, model="m")


@pytest.mark.parametrize("gen", WAYS)
@pytest.mark.parametrize("order", ["path", "am"])
def test_lists_have_greedy_first_exact_scores_and_no_text_twice(gen, order):
    lp = posterior()
    nbest = candidates(lp, gen, order=order)
    assert len(nbest) == 16 == len(set(nbest.texts))
    best = lp.argmax(1)
    assert nbest.hyps[0].path_logp == pytest.approx(lp.max(1).sum())
    assert nbest.texts[0] == text([k for k, p in zip(best, [0, *best]) if k not in (0, p)])
    tensor = torch.from_numpy(lp)
    for c in nbest.hyps:
        own = float(log_probability(tensor, [c.tokens]))
        assert c.am_logp >= own - 1e-9 >= c.path_logp - 1e-8
        if gen in ("prefix", "kbest"):
            assert c.path_logp >= float(viterbi(tensor, [c.tokens])[0]) - 1e-8
    values = [getattr(c, f"{order}_logp") for c in nbest.hyps[1:]]
    assert values == sorted(values, reverse=True)
    assert (nbest.meta.gen, nbest.meta.G, nbest.meta.extra) == (gen, 16, {"order": order})
    assert nbest.meta.seed == WAYS[gen].get("seed")


def test_two_segmentations_of_a_text_are_one_candidate():
    lp = np.full((4, 6), -np.inf)
    lp[0, [0, 2, 4]] = np.log([0.2, 0.5, 0.3])
    lp[1, [0, 3]] = np.log([0.4, 0.6])
    lp[2:, 0] = 0
    nbest = candidates(lp, "kbest", size=9)
    found = {c.text: c for c in nbest.hyps}
    # P(a b) = 0.5 0.6, P(ab) = 0.3 0.4, both read "ab"; "abb" = 0.3 0.6.
    assert math.exp(found["ab"].am_logp) == pytest.approx(0.3 + 0.12)
    assert found["ab"].path_logp == pytest.approx(math.log(0.3)) and found["ab"].count == 2
    assert found["ab"].tokens == (2, 3)
    assert sum(math.exp(c.am_logp) for c in nbest.hyps) == pytest.approx(1)


def test_lists_of_two_sizes_are_nested():
    lp = posterior(1)
    for gen in WAYS:
        large = candidates(lp, gen, size=12)
        assert candidates(lp, gen, size=4).hyps == large.hyps[:4] or gen == "kbest"
        assert candidates(lp, gen, size=4).texts == large.texts[:4]


def test_counts_are_paths_and_silence_is_a_hypothesis():
    nbest = candidates(posterior(2), "sys", num_paths=300, size=10_000)
    assert sum(c.count for c in nbest.hyps) in (300, 301)
    silent = np.log(np.array([[0.98, *[0.004] * 5]] * 6))
    nbest = candidates(silent)
    assert nbest.texts[0] == "" and nbest.hyps[0].tokens == () and len(nbest) > 1


def test_scale_flattens_what_is_drawn_but_not_the_scores():
    lp = posterior(3, 30)
    sharp, flat = (candidates(lp, nbest_scale=s, size=512) for s in (1.0, 0.4))
    assert (sharp.meta.nbest_scale, flat.meta.nbest_scale) == (1.0, 0.4)
    means = [np.mean([c.path_logp for c in n.hyps]) for n in (sharp, flat)]
    assert means[1] < means[0] - 5, "less probable paths are drawn"
    exact = log_probability(torch.from_numpy(lp), [c.tokens for c in flat.hyps]).numpy()
    for c, value in zip(flat.hyps, exact):
        assert c.am_logp >= value - 1e-9
    assert sharp.hyps[0].path_logp == flat.hyps[0].path_logp


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"gen": "iid"}, "gen: iid and no other needs one"),
        ({"seed": 1}, "gen: iid and no other needs one"),
        ({"nbest_scale": 0.5, "output_beam": None}, "without output_beam draws from the flattened tail"),
        ({"nbest_scale": 0.0}, "nbest_scale: 0.0"),
        ({"output_beam": -1.0}, "output_beam: -1.0"),
        ({"gen": "kbest"}, "output_beam: without effect on gen: kbest"),
        ({"gen": "prefix", "nbest_scale": 0.5}, "without effect on gen: prefix"),
        ({"size": 0}, "size: 0"),
    ],
)
def test_contradictions_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        CtcListConfig(**keys)


def test_token_lists(tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("".join(f"{t}\n" for t in TOKENS))
    assert read_token_list(path, "<blank>") == (TOKENS, 0)
    path.write_text("".join(f"{t} {i}\n" for i, t in enumerate(TOKENS)))
    assert read_token_list(path, "c") == (TOKENS, 5)
    for content, message in [
        ("a 0\nb 2\n", "tokens.txt:2: 'b 2'"),
        ("a\n\nb\n", "tokens.txt:2: ''"),
        ("a\n<blank>\na\n", "'a' occurs twice"),
        ("a\nb\n", "no blank symbol '<blank>'"),
    ]:
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            read_token_list(path, "<blank>")
    with pytest.raises(DataError, match="cannot be read"):
        read_token_list(tmp_path / "none", "<blank>")


@pytest.fixture
def saved(tmp_path):
    (tmp_path / "tokens.txt").write_text("".join(f"{t}\n" for t in TOKENS))
    matrices = {f"utt{i}": posterior(i, 8 + i).astype(np.float32) for i in (2, 0, 1)}
    with kaldiio.WriteHelper(f"ark,scp:{tmp_path}/lp.ark,{tmp_path}/lp.scp") as writer:
        for utt, matrix in matrices.items():
            writer(utt, matrix)
    (tmp_path / "text").write_text("utt0 ab\nutt1 a b\nutt2 c\n")
    return tmp_path


def arguments(folder, *more):
    return [
        "--posteriors", str(folder / "lp.scp"), "--token_list", str(folder / "tokens.txt"),
        "--model", "m1", "--out", str(folder / "nbest.jsonl"), *more,
    ]  # fmt: skip


def test_command_writes_lists_in_order(saved):
    main(arguments(saved, "--ref", str(saved / "text"), "--size", "5", "--frames", str(saved / "f.csv")))
    lists = list(read_nbest(saved / "nbest.jsonl"))
    assert [(n.utt_id, n.ref, len(n)) for n in lists] == [
        ("utt0", "ab", 5), ("utt1", "a b", 5), ("utt2", "c", 5)
    ]  # fmt: skip
    assert lists[0].meta.model == "m1" and lists[0].meta.output_beam == 8.0
    header, *rows = (saved / "f.csv").read_text().splitlines()
    assert header.split(",")[:2] == ["utt_id", "variant"] and len(rows) == 6
    first = (saved / "nbest.jsonl").read_bytes()
    main(arguments(saved, "--ref", str(saved / "text"), "--size", "5"))
    assert (saved / "nbest.jsonl").read_bytes() == first
    main(arguments(saved, "--gen", "kbest", "--size", "3", "--normalizer", "whisper_basic"))
    assert next(read_nbest(saved / "nbest.jsonl")).meta.norm.startswith(
        "whisper_basic whisper-normalizer"
    )


def test_command_names_the_utterance_that_is_wrong(saved):
    wrong = {"utt0": posterior(0).astype(np.float32), "utt1": np.zeros((3, 6), np.float32)}
    with kaldiio.WriteHelper(f"ark,scp:{saved}/lp.ark,{saved}/lp.scp") as writer:
        for utt, matrix in wrong.items():
            writer(utt, matrix)
    with pytest.raises(DataError, match="lp.scp: utterance 'utt1': probabilities of frame 0 sum to 6"):
        main(arguments(saved))
    assert not (saved / "nbest.jsonl").exists()
    (saved / "lp.scp").write_text("utt0 cat lp.ark |\n")
    with pytest.raises(DataError, match="'utt0': 'cat lp.ark |' is a command"):
        main(arguments(saved))
    (saved / "lp.scp").write_text("utt9 " + str(saved / "none.ark:5") + "\n")
    with pytest.raises(DataError, match="utterance 'utt9'"):
        main(arguments(saved))


def test_command_refuses_another_token_list_and_mostly_unknown_text(saved):
    (saved / "tokens.txt").write_text("".join(f"{t}\n" for t in [*TOKENS, "d"]))
    with pytest.raises(DataError, match=r"shape \(8, 6\), \(frames, 7\) expected"):
        main(arguments(saved))
    mixed = ["<blank>", "▁a", "<unk>", "b", "▁ab", "c"]
    (saved / "tokens.txt").write_text("".join(f"{t}\n" for t in mixed))
    with pytest.raises(DataError, match="words are unknown"):
        main(arguments(saved))
    assert not (saved / "nbest.jsonl").exists()


def test_contrast_by_hand():
    clean, masked = (torch.tensor([p], dtype=torch.float64).log() for p in ([0.6, 0.4], [0.5, 0.5]))
    wanted = torch.tensor([[0.36, 0.16]], dtype=torch.float64) / 0.52
    assert contrast(clean, masked, 1.0).exp().numpy() == pytest.approx(wanted.numpy())
    assert contrast(clean, masked, 0.0).numpy() == pytest.approx(clean.numpy())
    zeros = contrast(torch.tensor([[0.0, -torch.inf]]), torch.tensor([[-torch.inf, 0.0]]), 0.5)
    assert zeros.exp().tolist() == [[1.0, 0.0]]


def test_masks_depend_on_seed_and_utterance_and_cover_what_they_say():
    features = torch.ones(100, 80)
    one = masked_features(features, "a", 1)
    assert one.equal(masked_features(features, "a", 1)) and features.min() == 1
    assert not one.equal(masked_features(features, "a", 2))
    assert not one.equal(masked_features(features, "b", 1))
    bands = masked_features(features, "a", 1, MaskConfig(bands=1, spans=0))
    spans = masked_features(features, "a", 1, MaskConfig(bands=0, spans=1, fill=-3))
    assert (bands == 0).sum() == 12 * 100 and (spans == -3).sum() == 15 * 80
    assert masked_features(torch.ones(3, 5), "a", 0).shape == (3, 5)

    def model(x):
        return torch.stack([x.sum(1), x[:, 0]], 1).log_softmax(-1)

    found = contrastive(model, features, "a", amount=0.5, seed=1)
    assert found.numpy() == pytest.approx(contrast(model(features), model(one), 0.5).numpy())


def test_dropout_is_on_alone_and_seeded():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3)).train()
    features = torch.randn(10, 4)
    with only_dropout(model):
        assert [m.training for m in model] == [False, False, True, False]
    assert all(m.training for m in model)
    model.eval()
    state = torch.get_rng_state()

    def run(x):
        return model(x).log_softmax(-1)

    one, same, seed, utt = (
        mc_dropout(run, features, u, model, seed=s) for u, s in [("a", 1), ("a", 1), ("a", 2), ("b", 1)]
    )
    assert one.equal(same) and not one.equal(seed) and not one.equal(utt)
    assert torch.get_rng_state().equal(state)
    assert one.exp().sum(1).numpy() == pytest.approx(np.ones(10))
    # The mean is over probabilities: many passes come near it, whatever the seed.
    first, second = (mc_dropout(run, features, "a", model, seed=s, passes=400).exp() for s in (1, 2))
    assert float((first - second).abs().max()) < 0.06
    still = nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3)).eval()
    alone = mc_dropout(lambda x: still(x).log_softmax(-1), features, "a", still, seed=1)
    assert alone.numpy() == pytest.approx(still(features).log_softmax(-1).detach().numpy(), abs=1e-6)


def test_lines_are_json_without_nan(saved):
    main(arguments(saved))
    for line in open(saved / "nbest.jsonl"):
        json.loads(line, parse_constant=lambda name: pytest.fail(name))
