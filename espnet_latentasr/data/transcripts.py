"""Transcripts as they go into training and scoring: knows characters, no language and no normaliser.

Unicode's form is NFC: recognisers' tokenizers and their output use it, and a letter with an accent
written as two characters would count as an error against one.  Line breaks, tabs and other control
characters become one blank, since a transcript is one line.  All else stays as it is: case,
punctuation, emoji, joiners and marks of writing direction, wide blanks of Chinese and Japanese.
"""

from __future__ import annotations

import re
import unicodedata

from espnet_latentasr.errors import DataError

# Line and paragraph separators, and the byte-order mark within a text.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]+")


def mend_transcript(text: str) -> str:
    """Return a transcript as one line in NFC, without blanks at its ends.

    Raises:
        DataError: half a surrogate pair, which no file in UTF-8 can hold.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"character {error.start + 1} is half of a surrogate pair ({text!r}); export the text "
            "again from its source"
        ) from error
    return unicodedata.normalize("NFC", CONTROL.sub(" ", text)).strip(" ")


def folded(name: str) -> str:
    """Return an id as a file system without case would know it."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
