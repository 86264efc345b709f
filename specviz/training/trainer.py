"""The training loop: what a step computes depends on the configuration and the step's number alone.

Every random choice of a step (the windows of text, the rows that skip a layer) comes from a generator seeded with the
seed and the step, so a run that was killed and resumed from its checkpoint ends with the same weights as one that was not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from specviz.training.config import ModelShape, TrainConfig
from specviz.training.corpus import Corpus
from specviz.training.evaluate import HeldOut, greedy
from specviz.training.files import full_disk, replace_folder, write_atomically
from specviz.training.forward import TrainingForward
from specviz.training.losses import exit_losses
from specviz.training.progress import Progress
from specviz.training.recipe import Recipe

CALIBRATION_STEPS = 12
CHECKPOINT_SECONDS = 120.0
# Text the model writes itself, once the exits learn from it: rows kept, tokens of prompt and of text, steps between writings.
OWN_ROWS, OWN_PROMPT, OWN_WRITTEN, OWN_REFRESH = 1024, 64, 64, 500
OWN_WEIGHT = 0.3  # of the loss there, beside the 1 of a step's other losses


def new_model(shape: ModelShape, context: int, end_id: int, seed: int) -> LlamaForCausalLM:
    """An untrained model; the matrices that write into the residual stream start smaller the deeper the model is."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.hidden,
            intermediate_size=shape.intermediate,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            max_position_embeddings=context,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=end_id,
            pad_token_id=end_id,
        )
    )
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_((2 * shape.layers) ** -0.5)
            layer.mlp.down_proj.weight.mul_((2 * shape.layers) ** -0.5)
    return model


def step_generator(seed: int, step: int) -> torch.Generator:
    """The source of all random choices of one step."""
    return torch.Generator().manual_seed((seed * 1_000_003 + step) * 2_654_435_761 % 2**63)


class Trainer:
    """One run in one folder: ``config.json``, ``log.jsonl``, ``checkpoint.pt`` and ``model/``, always a usable model."""

    def __init__(self, config: TrainConfig, corpus: Corpus, folder: Path, device: str = "cpu", model=None) -> None:
        self.config, self.corpus, self.folder, self.device = config, corpus, folder, torch.device(device)
        self.tokenizer = corpus.tokenizer
        if model is None:
            longest = max(length for _, length in config.contexts)
            model = new_model(config.shape, longest, self.tokenizer.eos_token_id, config.seed)
        self.model = model.float().to(self.device)
        self.forward = TrainingForward(self.model)
        self.optimizer = torch.optim.AdamW(
            self._groups(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay, fused=True
        )
        self.data = torch.from_numpy(corpus.train[:].astype("int16")) if len(corpus.train) else None
        self.held_out = HeldOut(corpus, self.device)
        self.step, self.seconds = config.first_step, 0.0
        self.layer_runs = torch.zeros(len(self.forward.blocks), dtype=torch.long)  # samples that passed each layer
        self.own_texts: Tensor | None = None

    def _groups(self) -> list[dict]:
        """Weight decay for matrices only."""
        trained = [p for p in self.model.parameters() if p.requires_grad]
        return [
            {"params": [p for p in trained if p.ndim > 1]},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ]

    # -- one step ---------------------------------------------------------------------------------------------------

    def batch(self, generator: torch.Generator) -> Tensor:
        """Windows of the training text: (batch, context + 1)."""
        context = self.config.context_at(self.step)
        count = self.config.batch_tokens // context
        starts = torch.randint(0, max(1, len(self.data) - context - 1), (count, 1), generator=generator)
        windows = self.data[(starts + torch.arange(context + 1)).clamp_(max=len(self.data) - 1)]
        return windows.to(torch.long).bitwise_and_(0xFFFF).to(self.device)

    def keep_rows(self, generator: torch.Generator) -> Callable[[int, int], Tensor | None]:
        """Layer dropout: which samples of the batch pass through a layer at this step."""
        recipe, layers, steps = self.config.recipe, len(self.forward.blocks), self.config.steps

        def rows(layer: int, batch: int) -> Tensor | None:
            rate = recipe.dropout_rate(layer, layers, self.step, steps)
            kept = (torch.rand(batch, generator=generator) >= rate).nonzero()[:, 0] if rate > 0 else None
            self.layer_runs[layer] += batch if kept is None else len(kept)
            return None if kept is None or len(kept) == batch else kept.to(self.device)

        return rows

    def loss(self, generator: torch.Generator) -> tuple[Tensor, float]:
        """The loss to descend, and the full model's mean cross-entropy against its targets in nats."""
        windows = self.batch(generator)
        inputs, targets = windows[:, :-1], windows[:, 1:]
        recipe, layers = self.config.recipe, len(self.forward.blocks)
        weights = recipe.exit_weights(layers, self.step, self.config.steps)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            states = self.forward.states(inputs, self.keep_rows(generator) if recipe.dropout else None)
            some = max(1, round(recipe.exit_rows * len(inputs)))
            exits = [self.forward.normed(states[e] if e == layers - 1 else states[e][:some]) for e in weights]
        own = recipe.learns_own(self.step, self.config.steps)
        total, losses = exit_losses(
            self.forward.head,
            exits,
            targets.reshape(-1),
            tuple(weights.values()),
            own,
        )
        if own and recipe.own_texts:
            total = total + self.own_loss(generator)
        return total, losses[-1]

    def own_loss(self, generator: torch.Generator) -> Tensor | float:
        """What the early exits lose on text the model wrote itself, against the model's own choices there.

        The full model only says what is right here: the layers behind the last of these exits are run without gradients.
        """
        recipe = self.config.recipe
        exits = recipe.own_exits(len(self.forward.blocks))
        if not exits:
            return 0.0
        if self.own_texts is None or self.step % OWN_REFRESH == 0:
            self.write_own_texts()
        chosen = torch.randint(0, len(self.own_texts), (recipe.own_texts,), generator=generator)
        ids = self.own_texts[chosen].to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            states = self.forward.states(ids, layers=exits[-1] + 1)
            normed = [self.forward.normed(states[e]) for e in exits]
            with torch.no_grad():
                final = self.forward.normed(self.forward.onward(states[-1], exits[-1] + 1)[-1])
        weights = (*[OWN_WEIGHT / len(exits)] * len(exits), 0.0)
        # The head is left alone: nothing but the data may say how sure the full model is.
        return exit_losses(self.forward.head.detach(), [*normed, final], ids.reshape(-1), weights, own_targets=True)[0]

    def write_own_texts(self) -> None:
        """Let the model as it is now continue pieces of the training text: (OWN_ROWS, OWN_PROMPT + OWN_WRITTEN)."""
        generator = step_generator(self.config.seed + 1, self.step)
        starts = torch.randint(0, max(1, len(self.data) - OWN_PROMPT), (OWN_ROWS, 1), generator=generator)
        prompts = self.data[(starts + torch.arange(OWN_PROMPT)).clamp_(max=len(self.data) - 1)]
        prompts = prompts.to(torch.long).bitwise_and_(0xFFFF).to(self.device)
        self.own_texts = torch.cat([greedy(self.model, part, OWN_WRITTEN) for part in prompts.split(256)]).cpu()

    def train_step(self) -> Tensor:
        """One update; the full model's loss, still on the device."""
        rate = self.config.learning_rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        total, loss = self.loss(step_generator(self.config.seed, self.step))
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return loss.detach()

    # -- the run ----------------------------------------------------------------------------------------------------

    def calibrate(self) -> None:
        """Turn a budget in minutes into one in tokens, once, so that the schedules depend on the step alone."""
        began = time.perf_counter()
        saved = self.state()
        self.config = replace(self.config, tokens=self.config.batch_tokens * 10_000)
        for _ in range(CALIBRATION_STEPS):
            self.train_step()
        pace = CALIBRATION_STEPS * self.config.batch_tokens / (time.perf_counter() - began)
        # A tenth is kept for evaluations, checkpoints and the longer sequences of the end.
        tokens = int(pace * max(10.0, 60 * self.config.minutes * 0.9))
        self.config = replace(self.config, tokens=max(tokens, self.config.batch_tokens))
        self.restore(saved)

    def run(self, quiet: bool = False) -> None:
        """Train until the budget is used up, evaluating and saving on the way.

        Raises UsageError when the disk is full; the last checkpoint then is still whole.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.config.tokens <= 0:
            self.calibrate()
        self.config.save(self.folder / "config.json")
        total = self.config.steps
        stop = min(total, self.config.stop_step or total)
        if self.step == self.config.first_step:
            self.log({"kind": "run", **self.header()}, fresh=True)
            self.evaluate()
        progress = Progress(total * self.config.batch_tokens, self.step * self.config.batch_tokens, quiet)
        # A short run, too, should show in its log how the loss falls.
        every = max(1, min(self.config.evaluate_every // self.config.batch_tokens, total // 6))
        saved = time.perf_counter()
        recent: list[Tensor] = []
        while self.step < stop:
            began = time.perf_counter()
            recent.append(self.train_step())
            self.seconds += time.perf_counter() - began
            progress.update(self.config.batch_tokens, loss=recent[-1])
            if self.step % every == 0 or self.step == stop:
                self.evaluate(torch.stack(recent).mean().item())
                recent.clear()
                self.save_model()
            if time.perf_counter() - saved > CHECKPOINT_SECONDS or self.step == stop:
                self.save_checkpoint()
                saved = time.perf_counter()
        progress.close()
        self.save_model()

    def header(self) -> dict:
        """The first line of the log: the configuration, and the schedules as they will be."""
        recipe, layers, steps = self.config.recipe, len(self.forward.blocks), self.config.steps
        marks = [round(share / 20 * (steps - 1)) for share in range(21)]
        return {
            "config": asdict(self.config),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "train_tokens": len(self.corpus.train),
            "held_out_files": list(self.corpus.held_out_files),
            "packages": list(self.corpus.packages),
            "layers": layers,
            "schedule_tokens": [mark * self.config.batch_tokens for mark in marks],
            "dropout": [[recipe.dropout_rate(layer, layers, mark, steps) for mark in marks] for layer in range(layers)],
            "exit_weights": {str(k): v for k, v in recipe_weights(recipe, layers).items()},
            "published_exit_weights": {
                str(k): v for k, v in recipe_weights(Recipe(exits=recipe.exits), layers).items()
            },
        }

    def log_changes(self, before: TrainConfig) -> None:
        """Say in the log which settings are others from this step on (those that a resumed run may change)."""
        old, new = ({**vars(config), **vars(config.recipe)} for config in (before, self.config))
        changed = {name: new[name] for name in new if new[name] != old[name] and name not in ("recipe", "stop_step")}
        if changed:
            self.log({"kind": "change", "step": self.step, **changed})

    def evaluate(self, train_loss: float | None = None) -> None:
        """Append held-out loss and the agreement of every exit to the log."""
        report = self.held_out.measure(self.forward)
        self.log(
            {
                "kind": "evaluation",
                "step": self.step,
                "tokens": self.step * self.config.batch_tokens,
                "seconds": round(self.seconds, 1),
                "train_loss": train_loss,
                "learning_rate": self.config.learning_rate_at(self.step),
                **report,
            }
        )

    def log(self, row: dict, fresh: bool = False) -> None:
        path = self.folder / "log.jsonl"
        try:
            with path.open("w" if fresh else "a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
        except OSError as error:
            raise full_disk(path, error) or error from None

    # -- state ------------------------------------------------------------------------------------------------------

    def state(self) -> dict:
        copy = {name: value.clone() for name, value in self.model.state_dict().items()}
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {
            key: {name: value.clone() if torch.is_tensor(value) else value for name, value in entry.items()}
            for key, entry in optimizer["state"].items()
        }
        return {"model": copy, "optimizer": optimizer, "step": self.step, "seconds": self.seconds,
                "own_texts": self.own_texts}  # fmt: skip

    def restore(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds, self.own_texts = state["step"], state["seconds"], state.get("own_texts")

    def save_checkpoint(self) -> None:
        state = self.state()
        write_atomically(self.folder / "checkpoint.pt", lambda stream: torch.save(state, stream))

    def load_checkpoint(self) -> bool:
        """Continue where the last checkpoint left off; False when there is none. Later log rows are dropped."""
        path = self.folder / "checkpoint.pt"
        if not path.exists():
            return False
        self.restore(torch.load(path, map_location=self.device, weights_only=True))
        log = self.folder / "log.jsonl"
        if log.exists():
            rows = [json.loads(line) for line in log.read_text().splitlines()]
            kept = [row for row in rows if row.get("step", 0) <= self.step]
            text = "".join(json.dumps(row) + "\n" for row in kept)
            write_atomically(log, lambda stream: stream.write(text.encode()))
        return True

    def save_model(self) -> None:
        """An ordinary model folder: weights in bf16, to be computed with in fp32."""
        replace_folder(self.folder / "model", lambda folder: write_model(self.model, self.tokenizer, folder))


def recipe_weights(recipe, layers: int) -> dict[int, float]:
    """The exits' weights when all are in use, normalised: what the schedule figure shows."""
    return replace(recipe, curriculum="all").exit_weights(layers, 0, 1)


def write_model(model: LlamaForCausalLM, tokenizer, folder: Path) -> None:
    """Save weights rounded to bf16; the configuration asks for fp32, which every CPU computes well."""
    copy = LlamaForCausalLM(model.config).to(torch.bfloat16)
    copy.load_state_dict(model.state_dict())
    copy.tie_weights()
    # Not save_pretrained for the weights: it draws a bar of its own over ours.
    weights = {name: value.contiguous() for name, value in copy.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    copy.config.architectures = ["LlamaForCausalLM"]
    copy.config.save_pretrained(folder)
    copy.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["dtype"] = "float32"
    path.write_text(json.dumps(config, indent=2) + "\n")
