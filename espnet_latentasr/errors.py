"""The two errors of our own: a wrong configuration and wrong data."""


class ConfigError(ValueError):
    """A configuration that names an unknown key, a wrong type or contradicting choices."""


class DataError(ValueError):
    """Input data that cannot be used as it is; the message says which, why and what to do."""
