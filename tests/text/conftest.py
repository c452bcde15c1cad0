"""Fixtures of the text tests: the sclite binary as an oracle, where it is installed."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, however slow the machine.
settings.register_profile("text", derandomize=True, database=None, deadline=None)
settings.load_profile("text")

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN


@pytest.fixture(scope="session")
def oracle():
    """The module that runs sclite and makes the golden files."""
    spec = importlib.util.spec_from_file_location("oracle", GOLDEN / "make_sclite_golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sclite(oracle):
    if oracle.find_sclite() is None:
        pytest.skip("sclite is not installed (Debian: apt-get install sctk)")
    return oracle
