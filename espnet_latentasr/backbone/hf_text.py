"""What the text sides of all Hugging Face recognisers share; knows no prompt and no weights."""

from __future__ import annotations

from collections.abc import Sequence


class HuggingFaceText:
    """A tokenizer as the contract's ``TextCodec``, without ``prompt`` and ``target``.

    Args:
        end_ids: tokens that end a text; the last is the one that transcripts are trained with.
    """

    def __init__(self, tokenizer, end_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.end_ids = tuple(end_ids)
        self.end_id = self.end_ids[-1]

    def tokenize(self, text: str) -> list[int]:
        """Text to ids; special tokens written in the text become their ids."""
        return self._tokenizer(text, add_special_tokens=False).input_ids

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Ids to the vocabulary's token strings; an unused embedding row N is ``<rowN>``."""
        found = self._tokenizer.convert_ids_to_tokens(list(ids))
        return [self._unnamed(i) if token is None else token for i, token in zip(ids, found)]

    def _unnamed(self, row: int) -> str:
        return f"<row{row}>"

    def detokenize(self, ids: Sequence[int]) -> str:
        """Ids to one line of text, without the library's silent repetition fixing.

        Any run of white space (a line break would break every table) becomes one blank.
        """
        return " ".join(self._tokenizer.decode(list(ids), skip_special_tokens=True).split())

    def vocabulary(self) -> list[str]:
        """Token strings by id."""
        entries = sorted(self._tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        return [token for token, _ in entries]

    def id_of(self, token: str) -> int | None:
        """Id of a vocabulary entry, None when there is none."""
        return self._tokenizer.get_vocab().get(token)
