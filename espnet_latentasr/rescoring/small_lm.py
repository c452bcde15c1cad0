"""Small language models of a task's own sentences, trained in a minute on a CPU; knows no audio.

A masked one (BERT) and a causal one (GPT-2) of at most a million parameters, over whole words or
WordPieces, saved in the library's own format beside ``training.json``, which says on what and how.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.rescoring.lm import CausalLM, MaskedLM
from espnet_latentasr.rescoring.lm_text import check_choice

RECORD = "training.json"
PAD, UNK, MASK, BOS, EOS = "[PAD]", "[UNK]", "[MASK]", "[BOS]", "[EOS]"
SPECIAL = (PAD, UNK, MASK, BOS, EOS)
IGNORED = -100


@dataclass(frozen=True)
class SmallLMPlan:
    """What is trained. ``units``: word | wordpiece; ``held_out``: share of the different sentences.

    ``mask``: share of a sentence's tokens that are masked at once (masked model; at least one is).
    ``unknown``: share of the tokens that are read (never predicted) as the unknown one, so that the
    words beside an unknown word can be scored, and the unknown word itself stays improbable.
    """

    kind: str = "masked"
    units: str = "word"
    vocab_size: int = 1000
    width: int = 128
    layers: int = 2
    heads: int = 4
    steps: int = 1000
    batch_size: int = 32
    learning_rate: float = 2e-3
    mask: float = 0.2
    unknown: float = 0.01
    held_out: float = 0.05
    max_length: int = 128
    seed: int = 1

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("masked", "causal"))
        check_choice("units", self.units, ("word", "wordpiece"))
        if not 0 < self.mask < 1 or not 0 < self.held_out < 1:
            raise ConfigError(f"mask {self.mask}, held_out {self.held_out}: between 0 and 1 expected")


def split_sentences(sentences: Sequence[str], share: float, seed: int) -> tuple[list[str], list[str]]:
    """Split into training and held-out sentences by a hash: copies of one sentence stay together.

    Raises:
        DataError: one of the parts is empty.
    """
    limit = int(share * 2**64)

    def held_out(sentence: str) -> bool:
        digest = hashlib.sha256(f"{seed}\0{sentence}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < limit

    parts = [s for s in sentences if not held_out(s)], sorted({s for s in sentences if held_out(s)})
    if not all(parts):
        raise DataError(
            f"{len(sentences)} sentences: {len(parts[0])} to train on, {len(parts[1])} held out; both "
            "parts need some, give more sentences or another held_out"
        )
    return parts


def _wordpieces(sentences: Sequence[str], size: int) -> dict[str, int]:
    """Train WordPiece and return its vocabulary.

    The trainer numbers single characters in the order of a hash table, and breaks ties by number: as
    given tokens they get their numbers from us, so that one corpus has one vocabulary.
    """
    letters = sorted(set("".join(sentences)) - set(" "))
    given = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    if size < len(given):
        raise ConfigError(f"vocab_size {size}: the {len(letters)} characters alone need {len(given)}")
    core = Tokenizer(models.WordPiece({}, unk_token=UNK))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.train_from_iterator(
        sentences, trainers.WordPieceTrainer(vocab_size=size, special_tokens=given, show_progress=False)
    )
    return core.get_vocab()


def build_tokenizer(sentences: Sequence[str], plan: SmallLMPlan) -> PreTrainedTokenizerFast:
    """Make the tokenizer of the training sentences; each sentence gets a begin and an end token."""
    if plan.units == "word":
        counts = Counter(word for sentence in sentences for word in sentence.split())
        words = sorted(counts, key=lambda word: (-counts[word], word))
        kept = [*SPECIAL, *words][: plan.vocab_size]
        core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(kept)}, unk_token=UNK))
    else:
        pieces = _wordpieces(sentences, plan.vocab_size)
        core = Tokenizer(models.WordPiece(pieces, unk_token=UNK, continuing_subword_prefix="##"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [(token, core.token_to_id(token)) for token in (BOS, EOS)]
    core.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A {EOS}", special_tokens=ends
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNK,
        mask_token=MASK,
        bos_token=BOS,
        eos_token=EOS,
        cls_token=BOS,
        sep_token=EOS,
        model_max_length=plan.max_length,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, plan: SmallLMPlan) -> torch.nn.Module:
    """Make the untrained model."""
    ids = {"pad_token_id": tokenizer.pad_token_id}
    if plan.kind == "masked":
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=plan.width,
            num_hidden_layers=plan.layers,
            num_attention_heads=plan.heads,
            intermediate_size=4 * plan.width,
            max_position_embeddings=plan.max_length,
            type_vocab_size=1,
            **ids,
        )
        return BertForMaskedLM(config)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=plan.width,
        n_layer=plan.layers,
        n_head=plan.heads,
        n_positions=plan.max_length,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **ids,
    )
    return GPT2LMHeadModel(config)


def _padded(rows: Sequence[Sequence[int]], pad: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])


def _batches(rows: list[list[int]], plan: SmallLMPlan, pad: int) -> Iterator[Tensor]:
    """Endless batches (B, L) of padded sentences, each sentence once per pass."""
    generator = torch.Generator().manual_seed(plan.seed)
    size = min(plan.batch_size, len(rows))
    while True:
        order = torch.randperm(len(rows), generator=generator).tolist()
        for start in range(0, len(order) - size + 1, size):
            yield _padded([rows[index] for index in order[start : start + size]], pad)


def mask_tokens(
    ids: Tensor, special: Tensor, mask: int, share: float, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """Mask a share of each row's tokens, at least one.

    Args:
        ids: (B, L); special: (B, L) bool, never masked; draws: (B, L) uniform in [0, 1).

    Returns:
        Masked ids and labels (B, L), labels ``IGNORED`` where nothing is masked.
    """
    draws = draws.masked_fill(special, 2.0)
    chosen = (draws < share) | (draws == draws.amin(1, keepdim=True))
    chosen &= ~special
    return ids.masked_fill(chosen, mask), ids.masked_fill(~chosen, IGNORED)


def train(
    sentences: Sequence[str], plan: SmallLMPlan
) -> tuple[torch.nn.Module, PreTrainedTokenizerFast, dict]:
    """Train on sentences; the same sentences and plan give the same weights on one machine.

    Returns:
        Model, tokenizer and record (data hash, parameters, held-out perplexity per scored token).

    Raises:
        DataError: too few sentences, or one longer than ``max_length``.
    """
    training, held_out = split_sentences(sentences, plan.held_out, plan.seed)
    tokenizer = build_tokenizer(training, plan)
    rows = [tokenizer(sentence, verbose=False).input_ids for sentence in training]
    if too_long := [s for s, row in zip(training, rows) if len(row) > plan.max_length]:
        raise DataError(f"sentence of more than max_length {plan.max_length} tokens: {too_long[0]!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        model = build_model(tokenizer, plan).train()
        _optimise(model, rows, tokenizer, plan)
    scorer = (MaskedLM if plan.kind == "masked" else CausalLM)(model, tokenizer, "in training")
    total = sum(filter(None, scorer.score(dict.fromkeys(held_out, "held-out")).values()))
    scored = sum(len(tokenizer.tokenize(s)) + (plan.kind == "causal") for s in held_out)
    record = {
        "plan": asdict(plan),
        "sentences": len(training),
        "held_out": len(held_out),
        "data_sha256": hashlib.sha256("\n".join(sentences).encode()).hexdigest(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "held_out_perplexity": math.exp(-total / scored),
        "held_out_unknown": [sum(column) for column in zip(*map(scorer.unknown, held_out))],
        "held_out_words": sum(len(sentence.split()) for sentence in held_out),
    }
    return model, tokenizer, record


def _optimise(
    model: torch.nn.Module, rows: list[list[int]], tokenizer: PreTrainedTokenizerFast, plan: SmallLMPlan
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, weight_decay=0.01)
    warmup = max(1, plan.steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warmup, max(0.0, (plan.steps - step) / (plan.steps - warmup + 1))),
    )
    special = torch.tensor([tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id])
    for step, ids in zip(range(plan.steps), _batches(rows, plan, tokenizer.pad_token_id)):
        seen = (ids != tokenizer.pad_token_id).long()
        fixed = torch.isin(ids, special)
        if plan.kind == "masked":
            inputs, labels = mask_tokens(
                ids, fixed, tokenizer.mask_token_id, plan.mask, torch.rand(ids.shape)
            )
        else:
            inputs, labels = ids, ids.masked_fill(seen == 0, IGNORED)
        lost = (torch.rand(ids.shape) < plan.unknown) & ~fixed
        inputs = inputs.masked_fill(lost & (inputs == ids), tokenizer.unk_token_id)
        loss = model(input_ids=inputs, attention_mask=seen, labels=labels).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 200 == 0:
            logging.info("step %d of %d: loss %.3f", step + 1, plan.steps, float(loss.detach()))


def save(folder: Path, model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, record: dict) -> None:
    """Write the library's own files and the record, which comes last and marks the folder complete."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    atomic_write_text(folder / RECORD, json.dumps(record, indent=1) + "\n")
