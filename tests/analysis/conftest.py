"""Decoded folders in the layout that decoding writes, made by hand."""

import json

import pytest


def candidate(depth, text, log_probability=-1.0):
    return {"text": text, "depth": depth, "am_logp": log_probability, "n_tok": len(text.split())}


@pytest.fixture
def write_pass(tmp_path):
    """Write a pass over all depths: {utterance: (texts, values)} -> folder."""

    def write(utterances, steps=None, name="pass"):
        folder = tmp_path / name
        folder.mkdir()
        nbest, latent = [], []
        for utt, (texts, values) in utterances.items():
            hyps = [candidate(k, text) for k, text in enumerate(texts)]
            nbest.append({"utt_id": utt, "hyps": hyps})
            latent.append({"utt_id": utt, "values": values})
        for file, rows in (("nbest.jsonl", nbest), ("latent.jsonl", latent)):
            (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return folder

    return write
