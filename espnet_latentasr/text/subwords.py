"""A sentencepiece model and ESPnet's token list of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import atomic_path, atomic_write_text


def train_subwords(sentences: Sequence[str], output: Path, vocab_size: int, model_type: str) -> int:
    """Write ``bpe.model`` and ``tokens.txt`` below ``output``.

    The token list is ESPnet's: blank, unknown, the pieces in the model's order, start/end.

    Returns:
        Length of the token list.

    Raises:
        ConfigError: sentencepiece refuses the vocabulary size for these sentences.
    """
    import sentencepiece

    output.mkdir(parents=True, exist_ok=True)
    with atomic_path(output / "bpe.model") as temporary, open(temporary, "wb") as file:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(sentences),
                model_writer=file,
                vocab_size=vocab_size,
                model_type=model_type,
                character_coverage=1.0,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ConfigError(f"vocab_size {vocab_size}, {len(sentences)} sentences: {error}") from None
    model = sentencepiece.SentencePieceProcessor(model_file=str(output / "bpe.model"))
    pieces = [model.id_to_piece(i) for i in range(model.vocab_size())]
    pieces = [piece for piece in pieces if piece not in ("<unk>", "<s>", "</s>")]
    tokens = ["<blank>", "<unk>", *pieces, "<sos/eos>"]
    atomic_write_text(output / "tokens.txt", "".join(f"{token}\n" for token in tokens))
    return len(tokens)
