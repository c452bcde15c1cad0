"""The contract of ``espnet_latentasr.backbone.base``, for every registered kind."""

from __future__ import annotations

import pytest
from contract import BackboneContract, Subject

from espnet_latentasr.backbone.registry import KINDS


@pytest.fixture(params=KINDS)
def subject(request, clips) -> Subject:
    """A small recogniser of each kind; a new kind adds its own here."""
    if request.param != "qwen3_asr":
        pytest.fail(f"no small '{request.param}' to test: build one in tests/conftest.py")
    backbone = request.getfixturevalue("tiny_backbone")
    return Subject(
        backbone,
        clips,
        request.getfixturevalue("tiny_prompt"),
        request.getfixturevalue("full_forward"),
        lambda: list(backbone.model.parameters()),
    )


class TestContract(BackboneContract):
    pass
