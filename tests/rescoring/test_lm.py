"""Language-model scores against one row at a time written straight on the library, and its own loss."""

from __future__ import annotations

import math

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.lm import CausalLM, LLOptions, MaskedLM, PLLOptions
from espnet_latentasr.rescoring.lm_loading import load_causal_lm, load_masked_lm
from espnet_latentasr.rescoring.lm_text import TextOptions, refuse_unknown

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = "turn the light on un ##lock ##ed ##able call ann and jan . a ##a ##b".split()
TEXTS = [
    "turn the light on",
    "unlocked",
    "call ann and jan",
    "turn unlocked light",
    "ann",
    "the unlockable light and the light on ann and jan",
]


def make_tokenizer(**more) -> PreTrainedTokenizerFast:
    vocabulary = {piece: index for index, piece in enumerate([*SPECIAL, *PIECES])}
    core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names |= {"mask_token": "[MASK]", "bos_token": "[CLS]", "eos_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, **(names | {"model_max_length": 24} | more))


SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VOCABULARY = len(SPECIAL) + len(PIECES)


def make_model(name: str) -> torch.nn.Module:
    common = {"vocab_size": VOCABULARY, "pad_token_id": 0, "initializer_range": 0.5}
    build = {
        "bert": lambda: BertForMaskedLM(BertConfig(**SIZES, **common, max_position_embeddings=32)),
        "roberta": lambda: RobertaForMaskedLM(
            RobertaConfig(**SIZES, **common, max_position_embeddings=32)
        ),
        "distilbert": lambda: DistilBertForMaskedLM(
            DistilBertConfig(**common, dim=16, n_layers=2, n_heads=2, hidden_dim=32)
        ),
        "albert": lambda: AlbertForMaskedLM(AlbertConfig(**SIZES, **common, embedding_size=8)),
        "electra": lambda: ElectraForMaskedLM(ElectraConfig(**SIZES, **common, embedding_size=8)),
        "modernbert": lambda: ModernBertForMaskedLM(
            ModernBertConfig(**SIZES, **common, bos_token_id=2, eos_token_id=3, cls_token_id=2)
        ),
        "gpt2": lambda: GPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCABULARY,
                n_embd=16,
                n_layer=2,
                n_head=2,
                n_positions=32,
                bos_token_id=2,
                eos_token_id=3,
                initializer_range=0.5,
            )
        ),
        "qwen3": lambda: Qwen3ForCausalLM(
            Qwen3Config(**SIZES, **common, num_key_value_heads=1, head_dim=8)
        ),
    }[name]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return build().eval()


def masked(options=None, name="bert", budget=8192, **more) -> MaskedLM:
    return MaskedLM(make_model(name), make_tokenizer(**more), "test", options, budget)


def causal(options=None, name="gpt2", budget=2048, **more) -> CausalLM:
    return CausalLM(make_model(name), make_tokenizer(**more), "test", options, budget)


def score(scorer, texts=TEXTS) -> list[float | None]:
    return list(scorer.score({text: f"utt{index}" for index, text in enumerate(texts)}).values())


@torch.no_grad()
def naive_terms(model, text: str, l2r: bool = False) -> list[float]:
    """One forward over one row per token, the output layer everywhere."""
    tokenizer = make_tokenizer()
    ids = tokenizer(text).input_ids
    pieces = tokenizer.convert_ids_to_tokens(ids)
    terms = []
    for position in range(1, len(ids) - 1):
        row = list(ids)
        row[position] = tokenizer.mask_token_id
        later = position + 1
        while l2r and pieces[later].startswith("##"):
            row[later] = tokenizer.mask_token_id
            later += 1
        logits = model(input_ids=torch.tensor([row])).logits[0, position]
        terms.append(float(logits.log_softmax(-1)[ids[position]]))
    return terms


MASKED = ["bert", "roberta", "distilbert", "albert", "electra", "modernbert"]


@pytest.mark.parametrize("name", MASKED)
def test_pll_equals_masking_one_token_at_a_time(name):
    expected = [sum(naive_terms(make_model(name), text)) for text in TEXTS]
    assert score(masked(name=name)) == pytest.approx(expected, abs=1e-4)
    assert len({round(value, 3) for value in expected}) == len(TEXTS)


def test_within_word_masks_the_rest_of_the_word():
    model = make_model("bert")
    found = score(masked(PLLOptions(metric="within_word_l2r")))
    expected = [sum(naive_terms(model, text, l2r=True)) for text in TEXTS]
    assert found == pytest.approx(expected, abs=1e-4)
    original = score(masked())
    whole_words = [index for index, text in enumerate(TEXTS) if "unlock" not in text]
    for index in range(len(TEXTS)):
        assert (found[index] == pytest.approx(original[index], abs=1e-4)) == (index in whole_words)


@pytest.mark.parametrize("norm", ["mean", "per_word"])
def test_norms_divide_the_sum(norm):
    plain, divided = score(masked()), score(masked(PLLOptions(norm=norm)))
    tokens = [len(make_tokenizer().tokenize(text)) for text in TEXTS]
    words = [len(text.split()) for text in TEXTS]
    assert tokens != words
    for total, value, count in zip(plain, divided, tokens if norm == "mean" else words):
        assert value == pytest.approx(total / count)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_masked_scores_do_not_depend_on_the_batch(name):
    together = score(masked(name=name))
    for budget in (1, 13, 40):
        assert score(masked(name=name, budget=budget)) == pytest.approx(together, abs=1e-4)
    alone = [score(masked(name=name), [text])[0] for text in TEXTS]
    assert alone == pytest.approx(together, abs=1e-4)


def test_batches_stay_within_the_budget(monkeypatch):
    scorer, sizes = masked(budget=30), []
    original = scorer.model.forward

    def watch(*args, **kwargs):
        sizes.append(kwargs["input_ids"].numel())
        return original(*args, **kwargs)

    monkeypatch.setattr(scorer.model, "forward", watch)
    score(scorer)
    assert max(sizes) <= 30 and len(sizes) > 5


def test_the_output_layer_runs_at_masked_positions_only(monkeypatch):
    scorer, rows = masked(), []
    scorer.model.cls.register_forward_hook(lambda m, args, out: rows.append(args[0].shape[:2].numel()))
    score(scorer)
    assert sum(rows) == sum(len(make_tokenizer().tokenize(text)) for text in TEXTS)


def test_casing_and_final_period():
    model = make_model("bert")

    def pll(text, **options):
        scorer = MaskedLM(model, make_tokenizer(), "t", PLLOptions(text=TextOptions(**options)))
        return score(scorer, [text])[0]

    plain = pll("call ann")
    assert pll("CALL Ann", casing="lower") == pytest.approx(plain, abs=1e-5)
    dotted = naive_terms(model, "call ann .")
    assert pll("call ann", final_period="scored") == pytest.approx(sum(dotted), abs=1e-5)
    assert pll("call ann", final_period="context") == pytest.approx(sum(dotted[:-1]), abs=1e-5)
    assert pll("call ann.", final_period="scored") == pytest.approx(sum(dotted), abs=1e-5)
    assert dotted[-1] < -0.1 and abs(plain - sum(dotted[:-1])) > 1e-3
    assert TextOptions(casing="capitalize").prepare("call ANN") == ("Call ann", "")
    with pytest.raises(ConfigError, match="casing: 'title' is none of keep"):
        TextOptions(casing="title")


def test_an_empty_text_has_no_pll():
    found = masked().score({"": "utt1", "ann": "utt2"})
    assert found[""] is None and found["ann"] < 0


def test_a_text_that_is_too_long_is_refused_by_name():
    text = " ".join(["ann"] * 23)
    with pytest.raises(DataError, match="utterance 'utt7': its text has 25 tokens .* reads 24"):
        masked().score({"ann": "utt1", text: "utt7"})
    fits = " ".join(["ann"] * 22)
    assert masked().score({fits: "utt1"})[fits] < 0


def test_positions_of_the_model_limit_the_text_too():
    assert masked(model_max_length=10**30).limit == 32
    assert masked(name="roberta", model_max_length=10**30).limit == 31, "padding index 0 is reserved"
    assert causal(model_max_length=10**30).limit == 32
    at_limit = " ".join(["ann"] * 29)
    assert masked(name="roberta", model_max_length=10**30).score({at_limit: "u"})[at_limit] < 0


# Left to right


@torch.no_grad()
def naive_ll(model, ids: list[int]) -> float:
    """The library's own mean loss of one row, as a sum; the first token is its context."""
    row = torch.tensor([ids])
    return -float(model(input_ids=row, labels=row).loss) * (len(ids) - 1)


@pytest.mark.parametrize("name", ["gpt2", "qwen3"])
@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("eos", [True, False])
def test_ll_equals_the_librarys_loss(name, bos, eos):
    scorer, tokenizer = causal(LLOptions(bos=bos, eos=eos), name), make_tokenizer()
    texts = [text for text in TEXTS if text != "ann"]
    expected = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        expected.append(naive_ll(scorer.model, [*[2] * bos, *ids, *[3] * eos]))
    assert score(scorer, texts) == pytest.approx(expected, abs=1e-4)


def test_ll_of_a_text_with_nothing_to_score_is_none():
    assert score(causal(LLOptions(bos=False, eos=False)), ["ann", ""]) == [None, None]
    only_end = score(causal(), [""])[0]
    assert only_end == pytest.approx(naive_ll(make_model("gpt2"), [2, 3]), abs=1e-5)


def test_ll_does_not_depend_on_the_batch():
    together = score(causal())
    for budget in (1, 20):
        assert score(causal(budget=budget)) == pytest.approx(together, abs=1e-4)
    assert [score(causal(), [text])[0] for text in TEXTS] == pytest.approx(together, abs=1e-4)


def test_the_probabilities_of_all_texts_of_a_length_sum_to_one():
    """Over every one-token continuation and the end: sum_y p(y | bos) = 1."""
    scorer = causal(LLOptions(eos=False))
    single = [piece for piece in PIECES if not piece.startswith("##")]
    total = sum(math.exp(value) for value in score(scorer, single))
    ids = torch.tensor([[2]])
    with torch.no_grad():
        other = scorer.model(input_ids=ids).logits[0, 0].softmax(-1)
    rest = 1 - sum(float(other[make_tokenizer().convert_tokens_to_ids(piece)]) for piece in single)
    assert total == pytest.approx(1 - rest, abs=1e-5)


def test_the_beginning_must_be_named():
    with pytest.raises(ConfigError, match="no token for the beginning"):
        causal(bos_token=None)
    named = causal(LLOptions(bos_token="[CLS]"), bos_token=None)
    assert score(named) == pytest.approx(score(causal()))
    with pytest.raises(ConfigError, match="no token <s>"):
        causal(LLOptions(bos_token="<s>"))
    with pytest.raises(ConfigError, match="no end token"):
        causal(eos_token=None)


# Loading


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("lm")
    make_model("bert").save_pretrained(path / "bert")
    make_model("bert").bert.save_pretrained(path / "headless")
    make_model("gpt2").save_pretrained(path / "gpt2")
    for name in ("bert", "headless", "gpt2"):
        make_tokenizer().save_pretrained(path / name)
    return path


def test_a_saved_model_gives_the_same_scores(folder):
    loaded = load_masked_lm(str(folder / "bert"))
    assert score(loaded) == pytest.approx(score(masked()), abs=1e-5)
    assert loaded.identity["model"].startswith("sha256:")
    again = load_masked_lm(str(folder / "bert"), options=PLLOptions(norm="mean"))
    assert again.identity["model"] == loaded.identity["model"]
    assert again.identity != loaded.identity
    assert score(load_causal_lm(str(folder / "gpt2"))) == pytest.approx(score(causal()), abs=1e-5)


def test_bfloat16_only_rounds(folder):
    exact = score(load_masked_lm(str(folder / "bert")))
    rounded = load_masked_lm(str(folder / "bert"), dtype="bfloat16")
    differences = [abs(a - b) for a, b in zip(score(rounded), exact)]
    assert 0 < max(differences) < rounded.tolerance
    with pytest.raises(ConfigError, match="'float16' is not"):
        load_masked_lm(str(folder / "bert"), dtype="float16")


def test_models_that_do_not_fit_are_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="lacks weights"):
        load_masked_lm(str(folder / "headless"))
    with pytest.raises(ConfigError, match="cannot be loaded|lacks weights"):
        load_masked_lm(str(folder / "gpt2"))
    with pytest.raises(ConfigError, match="needs its revision"):
        load_masked_lm("FacebookAI/roberta-base")
    with pytest.raises(ConfigError, match="got 'main'"):
        load_masked_lm("FacebookAI/roberta-base", "main")
    with pytest.raises(ConfigError, match="no config.json"):
        load_masked_lm(str(tmp_path))
    with pytest.raises(ConfigError, match="no mask token"):
        masked(mask_token=None)


def test_texts_in_a_casing_the_model_does_not_know_are_refused():
    scorer = masked()
    assert scorer.unknown("CALL ann") == (1, 2)
    refuse_unknown(scorer, {"call ann": "a", "CALL ann": "b"}, 0.5)
    with pytest.raises(DataError, match="4 of 6 tokens .* utterance 'b'.*casing"):
        refuse_unknown(scorer, {"call ann": "a", "CALL ANN AND JAN": "b"}, 0.5)
