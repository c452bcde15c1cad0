"""Pseudo-log-likelihoods of a list, side by side: ``python benchmarks/pll.py --model FOLDER``.

Ours (batches by token budget, output layer at masked positions only) against one forward per masked
position, one per hypothesis, and minicons where it is installed (it is no dependency).  CPU time of one
process; the sums must agree.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch

from espnet_latentasr.rescoring.lm_loading import load_masked_lm

WORDS = "the of and to in a is that it was for on are with as his they be at this have from".split()


def made_up(count: int, length: int, seed: int) -> list[str]:
    """Distinct texts of about ``length`` words, neighbours of one another."""
    rng = random.Random(seed)
    base = [rng.choice(WORDS) for _ in range(length)]
    texts: dict[str, None] = {}
    while len(texts) < count:
        words = [rng.choice(WORDS) if rng.random() < 0.1 else w for w in base]
        texts[" ".join(words[: length - rng.randrange(3)])] = None
    return list(texts)


@torch.inference_mode()
def masked_rows(scorer, text: str, at_once: bool) -> float:
    """The plain way: the whole output of the model for each masked copy of the text."""
    found = scorer.tokenizer(text, return_special_tokens_mask=True)
    ids = torch.tensor(found["input_ids"])
    where = [i for i, added in enumerate(found["special_tokens_mask"]) if not added]
    rows = ids.repeat(len(where), 1)
    rows[range(len(where)), where] = scorer.tokenizer.mask_token_id
    groups = [rows] if at_once else rows[:, None]
    logits = torch.cat([scorer.model(input_ids=group).logits for group in groups])
    chosen = logits[range(len(where)), where].log_softmax(-1)
    return float(chosen[range(len(where)), ids[where]].sum())


def minicons(scorer) -> Callable[[list[str]], list[float]] | None:
    """The peer on the same model, or None where it is not installed."""
    try:
        from minicons.scorer import MaskedLMScorer
    except ImportError:
        return None
    kind = type(scorer.tokenizer)
    if not hasattr(kind, "batch_encode_plus"):  # minicons calls it by the name of transformers 4
        kind.batch_encode_plus = kind.__call__
    peer = MaskedLMScorer(scorer.model, "cpu", tokenizer=scorer.tokenizer, PLL_metric="original")
    return lambda texts: peer.sequence_score(texts, reduction=lambda x: x.sum().item())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="masked language model, a folder or a hub id")
    parser.add_argument("--revision")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--words", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    scorer = load_masked_lm(args.model, args.revision)
    texts = made_up(args.size, args.words, 0)
    ways: dict[str, Callable[[list[str]], list[float]]] = {
        "ours": lambda texts: [*scorer.score(dict.fromkeys(texts, "list")).values()],
        "one forward per masked position": lambda texts: [masked_rows(scorer, t, False) for t in texts],
        "one forward per hypothesis": lambda texts: [masked_rows(scorer, t, True) for t in texts],
    }
    if (peer := minicons(scorer)) is not None:
        ways["minicons"] = peer
    found, seconds = {}, {name: [] for name in ways}
    for name, way in ways.items():
        found[name] = way(texts)  # warms up
    for turn in range(args.repeats):
        for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            started = time.process_time()
            ways[name](texts)
            seconds[name].append(time.process_time() - started)
    for name in ways:
        apart = max(abs(a - b) for a, b in zip(found[name], found["ours"]))
        ratios = [a / b for a, b in zip(seconds[name], seconds["ours"])]
        print(
            f"{name}: {statistics.median(seconds[name]):.2f} CPU s for {len(texts)} texts, "
            f"{statistics.median(ratios):.2f} times ours [{min(ratios):.2f}, {max(ratios):.2f}], largest "
            f"difference of a sum {apart:.1e}"
        )


if __name__ == "__main__":
    main()
