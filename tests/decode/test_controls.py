"""All depths from one pass, control latents, and a language line that the recogniser writes itself."""

import copy
import json

import pytest
import torch

from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.backbone.language_line import read_line
from espnet_latentasr.config import DecodeConfig, ModelConfig, PromptConfig, build
from espnet_latentasr.decode.controls import controlled_updates
from espnet_latentasr.decode.job import Rule, run_job
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.recogniser import Clips, Recogniser
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.latent.adapter import LatentAdapter

STEPS = 3


@pytest.fixture(scope="module")
def method(tiny_backbone):
    torch.manual_seed(0)
    latent = {"steps": STEPS, "scale": {"init": 2.0}, "normalize": "all"}
    config = build(ModelConfig, {"latent": latent})
    made = LatentMethod(config, tiny_backbone)
    torch.nn.init.normal_(made.value_head.linear.weight, std=2.0)
    made.adapter.mean_update.normal_(generator=torch.Generator().manual_seed(1))
    return made


@pytest.fixture(scope="module")
def recogniser(tiny_backbone, method):
    return Recogniser(tiny_backbone, method, PromptConfig())


def rule(**keys) -> DecodeConfig:
    return build(DecodeConfig, keys)


def english(clips) -> Clips:
    return Clips(clips, ["en"] * len(clips))


@pytest.fixture(scope="module")
def threshold(recogniser, clips):
    """A threshold between the first values, so that some enter and some do not."""
    whole = rule(halting={"kind": "always"}, depths="all")
    found = recogniser.recognise(english(clips), [whole])[0]
    values = sorted(result.trace.values[0] for result in found)
    return {"kind": "threshold", "theta": sum(values[len(values) // 2 - 1 :][:2]) / 2}


@pytest.mark.parametrize("on_halt", ["keep", "discard"])
def test_all_depths_equal_one_decoding_per_depth(recogniser, clips, threshold, on_halt):
    whole = rule(halting=threshold, on_halt=on_halt, depths="all")
    singles = [rule(halting={"kind": "never"})]
    singles += [rule(halting={"kind": "fixed", "steps": k}) for k in range(1, STEPS + 1)]
    chosen = rule(halting=threshold, on_halt=on_halt)
    found, policy, *alone = recogniser.recognise(english(clips), [whole, chosen, *singles])
    steps = set()
    for row, result in enumerate(found):
        assert len(result.depths) == STEPS + 1
        for depth, (text, hypothesis) in enumerate(result.depths):
            assert (text, hypothesis.tokens) == (
                alone[depth][row].text, alone[depth][row].hypothesis.tokens
            )  # fmt: skip
        # The policy's own choice, read off the recorded values.
        assert result.text == policy[row].text
        assert result.trace.steps == policy[row].trace.steps
        assert result.trace.stopped == policy[row].trace.stopped
        assert len(result.trace.values) == STEPS + 1
        steps.add(result.trace.steps)
    assert len(steps) > 1


def test_surest_takes_the_most_probable_text_per_token(recogniser, clips):
    surest = rule(halting={"kind": "surest"}, depths="all")
    found = recogniser.recognise(english(clips), [surest])[0]
    for result in found:
        means = [h.log_probability / (len(h.tokens) + 1) for _, h in result.depths]
        best = means.index(max(means))
        assert result.trace.steps == best and result.text == result.depths[best][0]
        stopped = {0: "entry", STEPS: "budget"}.get(best, "step")
        assert result.trace.stopped == stopped
    assert len({result.trace.steps for result in found}) > 1
    with pytest.raises(ConfigError, match="halting.kind: surest contradicts depths: policy"):
        rule(halting={"kind": "surest"})


def test_swapped_with_itself_is_own_and_with_others_is_not(recogniser, clips):
    always = {"kind": "always"}
    configs = [rule(halting=always), rule(halting=always, latents="swapped")]
    some = english(clips[:4])
    own, same = recogniser.recognise(some, configs, donors=some)
    for one, other in zip(own, same):
        assert one.hypothesis.tokens == other.hypothesis.tokens
        assert one.hypothesis.log_probability == pytest.approx(
            other.hypothesis.log_probability, abs=1e-4
        )
    _, swapped = recogniser.recognise(some, configs, donors=english(clips[4:8]))
    assert any(
        abs(one.hypothesis.log_probability - other.hypothesis.log_probability) > 1e-3
        for one, other in zip(own, swapped)
    )


def test_pause_tokens_are_anchor_embeddings(recogniser, tiny_backbone, method, tiny_prompt, clips):
    config = rule(halting={"kind": "always"}, latents="pause")
    found = recogniser.recognise(english(clips[:2]), [config])[0]
    anchor = tiny_backbone.anchor("unused").expand(STEPS, -1)
    with torch.no_grad():
        encoded = tiny_backbone.encode(clips[:2])
        state = tiny_backbone.prefill(encoded, [tiny_prompt] * 2, anchor, True)
    expected = greedy(tiny_backbone, state, [30, 30])
    for one, other in zip(found, expected):
        length = min(len(one.hypothesis.tokens), 20)
        assert one.hypothesis.tokens[:length] == other.tokens[:length]


def test_the_own_values_decide_how_many_are_injected(recogniser, clips, threshold):
    configs = [rule(halting=threshold), rule(halting=threshold, latents="mean")]
    own, mean = recogniser.recognise(english(clips), configs)
    assert [r.trace.steps for r in own] == [r.trace.steps for r in mean]
    for one, other in zip(own, mean):
        if one.trace.steps == 0:
            assert one.hypothesis.tokens == other.hypothesis.tokens


class TestControlledUpdates:
    own = torch.tensor([[[3.0, 4.0], [0.0, 2.0]], [[1.0, 0.0], [6.0, 8.0]]])
    adapter = LatentAdapter(torch.zeros(2), 2)

    def test_random_keeps_each_length_and_follows_the_key(self):
        found = controlled_updates("random", self.own, self.adapter, ["a", "b"], None)
        torch.testing.assert_close(found.norm(dim=-1), self.own.norm(dim=-1))
        assert not torch.allclose(found, self.own)
        again = controlled_updates("random", self.own.flip(0), self.adapter, ["b", "a"], None)
        unit = found / found.norm(dim=-1, keepdim=True)
        torch.testing.assert_close(unit, (again / again.norm(dim=-1, keepdim=True)).flip(0))

    def test_mean_is_the_same_for_everyone(self):
        self.adapter.mean_update.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        found = controlled_updates("mean", self.own, self.adapter, ["a", "b"], None)
        assert torch.equal(found[0], found[1]) and found[0, 1].tolist() == [3.0, 4.0]

    def test_swapped_needs_donors(self):
        with pytest.raises(ValueError, match="donor"):
            controlled_updates("swapped", self.own, self.adapter, ["a", "b"], None)


def test_donors_do_not_depend_on_the_number_of_jobs(recogniser, clips, tmp_path):
    import soundfile

    from espnet_latentasr.data.kaldi_dir import write_kaldi_table

    folder = tmp_path / "dump/tones"
    folder.mkdir(parents=True)
    wav = {}
    for index, clip in enumerate(clips[:5]):
        wav[f"u{index}"] = str(folder / f"u{index}.wav")
        soundfile.write(wav[f"u{index}"], clip, 16000, "PCM_16")
    write_kaldi_table(folder / "wav.scp", wav)
    for name, value in (("text", "jan"), ("utt2lang", "en")):
        write_kaldi_table(folder / name, dict.fromkeys(wav, value))
    for name in ("utt2spk", "spk2utt"):
        write_kaldi_table(folder / name, {u: u for u in wav})
    loaded = Loaded(recogniser, "model", "tiny")
    keys = {"halting": {"kind": "always"}, "latents": "swapped", "batch_size": 2, "depths": "all"}
    rules = [Rule("swapped", build(DecodeConfig, keys))]
    rows = {}
    for jobs in (1, 2):
        for job in range(1, jobs + 1):
            run_job(loaded, rules, folder, tmp_path / str(jobs), job, jobs)
        lines = [
            json.loads(line)
            for path in (tmp_path / str(jobs)).rglob("nbest.jsonl")
            for line in path.open()
        ]
        rows[jobs] = {row["utt_id"]: [h["text"] for h in row["hyps"]] for row in lines}
    assert rows[1] == rows[2] and all(len(texts) == STEPS + 1 for texts in rows[1].values())


def writing(backbone, scripts):
    """The recogniser with logits that first write the given ids, row by row, then its own."""
    other = copy.copy(backbone)
    count = [0]

    def logits(hidden):
        found = backbone.logits(hidden)
        for row, script in enumerate(scripts):
            if count[0] < len(script):
                found[row, script[count[0]]] = 1e9
        count[0] += 1
        return found

    other.logits = logits
    return other


@torch.no_grad()
def test_a_language_line_is_read_up_to_its_end(tiny_backbone, tiny_prompt, clips):
    text = tiny_backbone.text
    line, end = text.tokenize("language English"), text.line_end_id
    plain = text.tokenize("jan " * 20)[:20]
    scripts = [[*line, end], [*line[:1], end], plain]
    encoded = tiny_backbone.encode(clips[:3])
    state = tiny_backbone.prefill(encoded, [tiny_prompt] * 3, None, True)
    before = state.hidden.clone(), state.position.clone()
    found, rows = read_line(writing(tiny_backbone, scripts), state, end, 20)
    assert rows == [line, line[:1], []]
    assert torch.equal(found.hidden[2], before[0][2]) and found.position[2] == before[1][2]
    for row, script in ((0, scripts[0]), (1, scripts[1])):
        encoded = tiny_backbone.encode(clips[row : row + 1])
        alone = tiny_backbone.prefill(encoded, [tiny_prompt], None, True)
        embeds = tiny_backbone.embed(torch.tensor(script))[None]
        alone = tiny_backbone.step(alone, embeds, torch.ones(1, len(script), dtype=torch.bool))
        torch.testing.assert_close(found.hidden[row], alone.hidden[0], atol=2e-5, rtol=0.0)
        assert found.position[row] == alone.position[0]


def test_a_line_given_or_written_gives_the_same_text(tiny_backbone, method, clips, threshold):
    """With the line of the forced prompt written by itself, everything after it is the same."""
    text = tiny_backbone.text
    script = [*text.tokenize("language English"), text.line_end_id]
    told = Recogniser(tiny_backbone, method, PromptConfig())
    scripted = writing(tiny_backbone, [script] * 3)
    own = copy.copy(method)
    own._held = (scripted,)
    auto = Recogniser(scripted, own, PromptConfig(language="auto"))
    config = rule(halting=threshold)
    some = english(clips[:3])
    expected = told.recognise(some, [config])[0]
    found = auto.recognise(some, [config])[0]
    assert [r.language for r in found] == ["language English"] * 3
    assert [r.language for r in expected] == [None] * 3
    assert [r.hypothesis.tokens for r in found] == [r.hypothesis.tokens for r in expected]
    assert [r.trace.steps for r in found] == [r.trace.steps for r in expected]


def test_without_a_language_line_nobody_thinks(tiny_backbone, method, clips):
    auto = Recogniser(tiny_backbone, method, PromptConfig(language="auto"))
    found = auto.recognise(english(clips[:3]), [rule(halting={"kind": "always"})])[0]
    assert [r.language for r in found] == [""] * 3
    assert [r.trace.steps for r in found] == [0] * 3
