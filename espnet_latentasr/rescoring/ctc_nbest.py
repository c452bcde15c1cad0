"""From saved CTC log-posteriors to a file of candidate lists; knows token lists, runs no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from espnet_latentasr.data.kaldi_dir import c_sorted, read_kaldi_table
from espnet_latentasr.errors import DataError
from espnet_latentasr.reading import read_json, read_text
from espnet_latentasr.rescoring.config import CtcListConfig
from espnet_latentasr.rescoring.ctc import log_probability, viterbi
from espnet_latentasr.rescoring.ctc_paths import (
    best_paths,
    collapse,
    distinct,
    keyed_rng,
    log_posteriors,
    path_scores,
    prefix_search,
    sample_paths,
)
from espnet_latentasr.rescoring.nbest_list import (
    Candidate,
    Meta,
    NBest,
    check_unknown,
    deduplicate,
    head,
    normalizer_id,
    unknown_words,
)
from espnet_latentasr.text.normalize import Normalizer

Tokens = tuple[int, ...]
JOIN: dict[str, Callable[[Sequence[str]], str]] = {
    "bpe": lambda tokens: "".join(tokens).replace("▁", " ").strip(),
    "char": lambda tokens: "".join(" " if t == "<space>" else t for t in tokens).strip(),
    "word": " ".join,
}


def read_token_list(path: Path, blank: str) -> tuple[list[str], int]:
    """Read one token a line (ESPnet), or ``token id`` lines (icefall); return them and the blank's id.

    Raises:
        DataError: ids that do not count up from 0, a token twice, or no such blank.
    """
    tokens: list[str] = []
    lines = read_text(path, "a list of tokens").split("\n")
    for number, line in enumerate(lines[: len(lines) - (not lines[-1])], start=1):
        token, *rest = line.split() or [""]
        if len(rest) > 1 or (rest and rest != [str(number - 1)]) or not token:
            raise DataError(f"{path}:{number}: {line!r:.200}: 'TOKEN' or 'TOKEN {number - 1}' expected")
        tokens.append(token)
    repeated = {t for t, count in Counter(tokens).items() if count > 1}
    if repeated or blank not in tokens:
        what = f"'{min(repeated)}' occurs twice" if repeated else f"no blank symbol '{blank}'"
        raise DataError(
            f"{path}: {what} among {len(tokens)} tokens; name it with --blank, or mend the list"
        )
    return tokens, tokens.index(blank)


def _pool(lp: np.ndarray, config: CtcListConfig, blank: int, rng: Any) -> Iterator[dict[Tokens, tuple]]:
    """Yield growing pools {tokens: (count, score of one path or None)}, in order of generation."""
    if config.gen == "prefix":
        found = prefix_search(lp, config.num_paths, blank=blank, beam=config.output_beam)
        yield {tokens: (1, None) for tokens, _ in found}
        return
    if config.gen in ("sys", "iid"):
        options = {"scale": config.nbest_scale, "beam": config.output_beam, "rng": rng}
        blocks: Any = [sample_paths(lp, config.num_paths, **options)]
    else:
        blocks = best_paths(lp)
    pool: dict[Tokens, tuple[int, float | None]] = {}
    left = config.num_paths
    for block in blocks:
        block, left = block[:left], left - len(block)
        scores = path_scores(lp, block)
        for tokens, rows in distinct(block, blank).items():
            # The score stays that of the path that came first: an arbitrary one of a sample.
            count, score = pool.get(tokens, (0, float(scores[rows[0]])))
            pool[tokens] = (count + len(rows), score)
        yield pool
        if left <= 0:
            return


def ctc_candidates(
    matrix: Any,
    utt_id: str,
    config: CtcListConfig,
    to_text: Callable[[Tokens], str],
    normalizer: Normalizer,
    *,
    model: str,
    blank: int = 0,
    labels: int | None = None,
    ref: str | None = None,
) -> NBest:
    """Make one list: generate, put greedy first, sort, merge equal texts, keep ``size``.

    ``am_logp`` is exact, ``path_logp`` the score of one alignment: the best one for ``kbest`` and
    ``prefix``, the first drawn for ``sys`` and ``iid``; of the greedy hypothesis that of its argmax path.
    ``count`` is the number of paths; the greedy hypothesis counts once even if it was not drawn.

    Args:
        matrix: log-posteriors (T, V).
        to_text: surface of a token sequence.
    """
    lp = log_posteriors(matrix, labels, f"utterance '{utt_id}'")
    best = lp.argmax(1)
    greedy = collapse(best[None], blank)[0]
    texts = {greedy: normalizer(to_text(greedy))}
    pool: dict[Tokens, tuple[int, float | None]] = {}
    for pool in _pool(lp, config, blank, None if config.seed is None else keyed_rng(config.seed, utt_id)):
        for tokens in pool:
            if tokens not in texts:
                texts[tokens] = normalizer(to_text(tokens))
        if config.gen == "kbest" and len(set(texts.values())) >= config.size:
            break
    pool = dict(pool)
    pool[greedy] = (pool.get(greedy, (1, None))[0], float(path_scores(lp, best[None])[0]))
    tensor, unscored = torch.from_numpy(lp), [t for t, (_, score) in pool.items() if score is None]
    if unscored:
        for tokens, score in zip(unscored, viterbi(tensor, unscored, blank=blank)[0].tolist()):
            pool[tokens] = (pool[tokens][0], score)
    exact: dict[Tokens, float] = {}

    def scored(wanted: Sequence[Tokens]) -> None:
        exact.update(zip(wanted, log_probability(tensor, wanted, blank=blank).tolist()))

    if config.order == "am":
        scored(list(pool))
        texts_mass: dict[str, float] = {}
        for tokens in pool:
            mass = texts_mass.get(texts[tokens], -np.inf)
            texts_mass[texts[tokens]] = float(np.logaddexp(mass, exact[tokens]))
        ranked = sorted(pool, key=lambda t: (t != greedy, -texts_mass[texts[t]], -exact[t]))
    else:
        ranked = sorted(pool, key=lambda t: (t != greedy, -pool[t][1]))
    kept = set(list(dict.fromkeys(texts[t] for t in ranked))[: config.size])
    ranked = [t for t in ranked if texts[t] in kept]
    if config.order == "path":
        # Only of texts that stay: the exact probabilities are what costs.
        scored(ranked)
    hyps = tuple(
        Candidate(texts[t], to_text(t), t, min(exact[t], 0.0), pool[t][0], pool[t][1]) for t in ranked
    )
    meta = Meta(
        config.gen, config.size, normalizer_id(normalizer), model, config.seed, config.num_paths,
        config.nbest_scale, config.output_beam, {"order": config.order},
    )  # fmt: skip
    merged = head(deduplicate(NBest(utt_id, meta, hyps, ref)), config.size)
    # Which members of the pool were merged says nothing once the pool is gone.
    return replace(merged, hyps=tuple(replace(c, merged=()) for c in merged.hyps))


def read_posteriors(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (utterance, matrix) of a Kaldi ``.scp`` in C order, or of an ``.ark`` as it comes.

    Raises:
        DataError: an entry is a command (commands are never run) or cannot be read.
    """
    from espnet_latentasr.data.ark import load_ark, load_mat, refuse_command

    if path.suffix != ".scp":
        yield from load_ark(path)
        return
    table = read_kaldi_table(path, require_sorted=False)
    for utt_id in c_sorted(table):
        refuse_command(table[utt_id], f"{path}: utterance '{utt_id}': ")
        try:
            matrix = load_mat(table[utt_id])
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: utterance '{utt_id}': '{table[utt_id]}': {error}") from None
        yield utt_id, matrix


def recorded_model(posteriors: Path) -> str:
    """Return what made an archive, as ``bin.ctc_posteriors`` recorded it beside it.

    Raises:
        DataError: there is no record (of posteriors from elsewhere, or of an unfinished run).
    """
    record = posteriors.with_name("posteriors.json")
    try:
        return str(read_json(record, "what bin.ctc_posteriors recorded")["model"])
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{record}: cannot be read ({error!r}); name what made {posteriors.name} with --model"
        ) from None


def candidate_lists(
    posteriors: Path,
    token_list: Path,
    config: CtcListConfig,
    normalizer: Normalizer,
    *,
    model: str,
    token_type: str = "bpe",
    blank: str = "<blank>",
    refs: dict[str, str] | None = None,
    max_unk_rate: float = 0.01,
    observe: Callable[[NBest, np.ndarray, int], None] | None = None,
) -> Iterator[NBest]:
    """Make the lists of a set, one at a time.

    Args:
        observe: called with each list, its log-posteriors (T, V) and the blank's id.

    Raises:
        DataError: a matrix that is no posterior over this token list, an utterance without reference, or,
            at the end, too many unknown words.
    """
    tokens, blank_id = read_token_list(token_list, blank)
    unknown = words = 0

    def to_text(ids: Tokens) -> str:
        return JOIN[token_type]([tokens[i] for i in ids])

    for utt_id, matrix in read_posteriors(posteriors):
        if refs is not None and utt_id not in refs:
            raise DataError(f"{posteriors}: utterance '{utt_id}' has no reference ({len(refs)} there)")
        options = {"model": model, "blank": blank_id, "labels": len(tokens)}
        try:
            nbest = ctc_candidates(matrix, utt_id, config, to_text, normalizer, **options)
        except DataError as error:
            raise DataError(f"{posteriors}: {error}") from None
        if observe is not None:
            observe(nbest, log_posteriors(matrix), blank_id)
        unknown, words = (a + b for a, b in zip((unknown, words), unknown_words(nbest)))
        yield nbest if refs is None else replace(nbest, ref=refs[utt_id])
    check_unknown(unknown, words, max_unk_rate, posteriors)
