"""The two errors of our own: a wrong configuration and wrong data."""

HEAD, TAIL = 6000, 1500  # characters of a message that are shown if it has more


class _Brief(ValueError):
    """An error whose message stays readable: what it quotes may be a line of a million characters."""

    def __str__(self) -> str:
        text = super().__str__()
        left_out = len(text) - HEAD - TAIL
        return text if left_out <= 0 else f"{text[:HEAD]} [{left_out} characters] {text[-TAIL:]}"


class ConfigError(_Brief):
    """A configuration that names an unknown key, a wrong type or contradicting choices."""


class DataError(_Brief):
    """Input data that cannot be used as it is; the message says which, why and what to do."""
