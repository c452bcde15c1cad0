"""A random Whisper of 0.2 M weights with a window of four seconds, English-only or multilingual."""

from __future__ import annotations

import json

WORDS = ("turn on the light in the kitchen", "call ann and jan", "seven five nine zero (or not)")
LANGUAGES = ("en", "zh", "de", "tl")
POSITIONS = 64  # of the decoder
WINDOW = 4  # seconds
ENCODED = 50 * WINDOW  # encoder positions
SPARE_ROWS = 8


def build_tokenizer():
    """Byte-level BPE on the words, then Whisper's control tokens in the published order."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import WhisperTokenizer

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator([f" {text}" for text in WORDS] * 3, trainer)
    trained = json.loads(bpe.to_str())["model"]
    tokenizer = WhisperTokenizer(trained["vocab"], [tuple(merge) for merge in trained["merges"]])
    control = ["<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES)]
    control += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>"]
    tokenizer.add_special_tokens({"extra_special_tokens": [*control, "<|nospeech|>", "<|notimestamps|>"]})
    return tokenizer


def build_settings(tokenizer, multilingual: bool):
    """generation_config.json as the published models have it."""
    from transformers import GenerationConfig

    ids = tokenizer.convert_tokens_to_ids
    settings = {"lang_to_id": {f"<|{code}|>": ids(f"<|{code}|>") for code in LANGUAGES}}
    settings["task_to_id"] = {task: ids(f"<|{task}|>") for task in ("translate", "transcribe")}
    end = tokenizer.eos_token_id
    never = [ids("("), ids(")"), *range(ids("<|startoftranscript|>"), ids("<|notimestamps|>"))]
    return GenerationConfig(
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=ids("<|startoftranscript|>"),
        no_timestamps_token_id=ids("<|notimestamps|>"),
        is_multilingual=multilingual,
        suppress_tokens=never,
        begin_suppress_tokens=[ids("Ġ"), end],
        max_length=POSITIONS,
        **(settings if multilingual else {}),
    )


def build_parts(multilingual: bool = False):
    """Return (model, extractor, text).

    Weights are larger than the library's, so that a text depends on the audio and on its own past, and
    some texts end by themselves.
    """
    import torch
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    from espnet_latentasr.backbone.whisper_text import WhisperText

    tokenizer = build_tokenizer()
    settings = build_settings(tokenizer, multilingual)
    end = tokenizer.eos_token_id
    config = WhisperConfig(
        vocab_size=len(tokenizer) + ENCODED + 1 + SPARE_ROWS,
        num_mel_bins=16,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=ENCODED,
        max_target_positions=POSITIONS,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=settings.decoder_start_token_id,
        init_std=0.12,
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = WhisperForConditionalGeneration(config)
        with torch.no_grad():
            table = model.model.decoder.embed_tokens.weight
            table[end] = 1.05 * table[128]  # the library leaves it at zero
            table[len(tokenizer) :] *= 0.3  # timestamps and unused rows are never the most probable
            model.model.decoder.embed_positions.weight.normal_(std=0.3)
            for layer in model.model.decoder.layers:
                layer.encoder_attn.q_proj.weight.mul_(6.0)
                layer.encoder_attn.out_proj.weight.mul_(4.0)
                layer.self_attn.out_proj.weight.mul_(3.0)
    model.generation_config = settings
    extractor = WhisperFeatureExtractor(feature_size=16, chunk_length=WINDOW)
    return model, extractor, WhisperText(tokenizer, settings, config)


def build_whisper(multilingual: bool = False):
    """The recogniser around these parts."""
    from espnet_latentasr.backbone.whisper import WhisperBackbone

    return WhisperBackbone(*build_parts(multilingual), fingerprint=f"tiny whisper {multilingual}")


def save_whisper(folder, multilingual: bool = False) -> None:
    """Write a folder as ``load_whisper`` reads it."""
    model, extractor, text = build_parts(multilingual)
    model.save_pretrained(folder)
    extractor.save_pretrained(folder)
    text._tokenizer.save_pretrained(folder)
