"""What stages 5 and 11 leave behind, in small, for tests of decoding and sharing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import yaml

DECODE = "halting: {kind: threshold, theta: 0.0}\nbatch_size: 4\n"


@dataclass(frozen=True)
class Experiment:
    """Where its files are; the three first are what stage 12 is given."""

    backbone_dir: Path
    config: Path
    model: Path
    decode: Path


def divide_clips(method, batch) -> None:
    """A value head that lets some clips think and others not: four steps have taught it nothing."""
    import torch

    from espnet_latentasr.latent import halting

    with torch.no_grad():
        probed = method.read_prompt(batch.encoded, batch.prompts)
        states = method.think(probed, halting.always)[1].states[:, 0]
        apart = torch.nn.functional.normalize(states[0] - states[1], dim=0) * 20
        method.value_head.linear.weight.copy_(apart[None])
        # The mean of all is at zero, so some are above and some below.
        method.value_head.linear.bias.copy_(-(states @ apart).mean()[None])


def write_experiment(root: Path, model_dir: Path, clips, adaptation="latent", **sections) -> Experiment:
    """Stage 5 and 11 in small: freeze, train four steps, write ``config.yaml`` and a checkpoint."""
    import torch

    from espnet_latentasr.adaptation.base import TrainBatch
    from espnet_latentasr.adaptation.registry import build_method
    from espnet_latentasr.backbone.frozen import Frozen, write_frozen
    from espnet_latentasr.backbone.registry import library_version, load_backbone
    from espnet_latentasr.config import ADAPTATIONS, BackboneConfig, PromptConfig, model_config

    torch.set_num_threads(1)
    torch.manual_seed(3)
    frozen = BackboneConfig(name=str(model_dir))
    backbone = load_backbone(frozen)
    record = Frozen(frozen, backbone.fingerprint, 7, library_version())
    write_frozen(root / "backbone", record, backbone.text.vocabulary())
    config = model_config(adaptation, {"backbone": dataclasses.asdict(frozen)} | sections)
    method = build_method(config, backbone).train()
    prompts = [backbone.text.prompt("en", PromptConfig())] * 4
    targets = [backbone.text.target(t) for t in ("call ann", "jan", "turn on the light", "seven")]
    batch = TrainBatch(backbone.encode(clips[:4]), prompts, targets, torch.ones(4), torch.zeros(4))
    optimizer = torch.optim.SGD(method.parameter_groups(), lr=1e-3)
    for step in range(4):
        optimizer.zero_grad()
        method.loss(batch, 0.0, torch.Generator().manual_seed(step))[0].backward()
        optimizer.step()
    if adaptation == "latent":
        divide_clips(method, batch)
    names = ("backbone", "prompt", "schedule", *ADAPTATIONS[adaptation])
    saved = {f"{name}_conf": dataclasses.asdict(getattr(config, name)) for name in names}
    saved |= {"adaptation": adaptation, "backbone_fingerprint": backbone.fingerprint}
    saved["version"] = "202511"  # ESPnet writes its own there
    exp = root / "exp"
    made = Experiment(
        root / "backbone", exp / "config.yaml", exp / "valid.ce.best.pth", root / "decode_x.yaml"
    )
    made.config.parent.mkdir(parents=True)
    made.config.write_text(yaml.safe_dump(saved))
    torch.save({f"method.{key}": value for key, value in method.state_dict().items()}, made.model)
    made.decode.write_text(DECODE)
    return made
