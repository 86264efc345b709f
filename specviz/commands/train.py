"""``python -m specviz train RECIPE``: train a small model from scratch, on a CPU if need be."""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from pathlib import Path

from specviz.errors import UsageError
from specviz.models.zoo import find
from specviz.training.config import (
    DEFAULTS,
    ModelShape,
    TrainConfig,
    parse_contexts,
    parse_layers,
    parse_order,
)
from specviz.training.recipe import CURRICULA, Recipe

RECIPES = {
    "layerskip": "layer dropout and early exit losses",
    "plain": "the same model, data and steps without them",
    "distill": "a shallow draft that learns a target's own choices",
}
# What may be changed when a run is resumed; everything else is the run's own.
LATE = ("tokens", "minutes", "stop_step", "own_from", "last_share", "dropout", "target", "learning_rate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "; ".join(f"{name}: {text}" for name, text in RECIPES.items())
    parser.add_argument("recipe", choices=[*RECIPES, "ship"], help=f"{what}; ship: put a finished run where models live")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: runs/RECIPE)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out from its last checkpoint")
    budget = parser.add_argument_group("budget (one of the two)")
    budget.add_argument("--minutes", type=float, help="measure the speed, then train for about so long")
    budget.add_argument("--tokens", type=int, help="train on so many tokens")
    data = parser.add_argument_group("data")
    data.add_argument("--corpus", type=Path, nargs="+", action="extend", metavar="DIR", help="folders of Python source to add to the standard library")
    data.add_argument("--no-stdlib", dest="stdlib", action="store_false", default=None, help="leave the standard library out")
    data.add_argument("--seed", type=int)
    shape = parser.add_argument_group("model")
    for field in fields(ModelShape):
        shape.add_argument(f"--{field.name}", type=int, metavar="N")
    recipe = parser.add_argument_group("recipe (layerskip)")
    recipe.add_argument("--dropout", type=float, metavar="P", help="rate at the last layer, at the end")
    recipe.add_argument("--exit-scale", type=float, metavar="X", help="e_scale of the exit losses")
    recipe.add_argument("--exit-power", type=float, metavar="X", help="flattens the exit weights; 1 is the paper's")
    recipe.add_argument("--exit-depth", type=float, metavar="SHARE", help="train only the exits in this share of the depth, and the last")
    recipe.add_argument("--last-share", type=float, metavar="SHARE", help="the full model's share of the weights; 0: by the formula")
    recipe.add_argument("--exit-rows", type=float, metavar="SHARE", help="share of a batch the early exits learn from")
    recipe.add_argument("--curriculum", choices=CURRICULA)
    recipe.add_argument("--rotation", type=int, metavar="R", help="rotational: every R-th exit at a step")
    recipe.add_argument("--own-from", type=float, metavar="SHARE", help="after this share of the training exits learn from the full model; 1: never, as published")
    recipe.add_argument("--own-texts", type=int, metavar="N", help="rows of the model's own text in a step")
    distill = parser.add_argument_group("distill")
    distill.add_argument("--target", metavar="DIR", help="the model whose choices are learned; a model of the zoo (smollm2) answers prompts of our own, and lends its layers")
    distill.add_argument("--prompts", type=int, metavar="N", help="prompts that a model of the zoo answers (default: 5760)")
    distill.add_argument("--only", choices=("answers", "training"), help="one of the two stages; training takes the answers that are there")
    distill.add_argument("--answers", type=Path, metavar="DIR", help="where the answers are kept (default: --out)")
    distill.add_argument("--kept-layers", type=parse_layers, metavar="0,1,…", help="the target's layers that the draft begins with")
    distill.add_argument("--head-tokens", type=int, metavar="N", help="rows of the trimmed head")
    distill.add_argument("--generated-share", type=float, metavar="SHARE", help="share of a batch that is the target's own text")
    distill.add_argument("--generated-rows", type=int, metavar="N", help="how many texts the target writes")
    distill.add_argument("--sharpness", type=float, metavar="X", help="power on the target's distribution before it is learned")
    loop = parser.add_argument_group("loop")
    loop.add_argument("--learning-rate", type=float)
    loop.add_argument("--batch-tokens", type=int)
    loop.add_argument("--contexts", type=parse_contexts, metavar="N:SHARE,…", help="sequence lengths, as 128:0.5,256:0.9,512")
    loop.add_argument("--warmup-steps", type=int)
    loop.add_argument("--stop-step", type=int, metavar="N", help="end there, with all schedules as if it went on")
    loop.add_argument("--weights", metavar="DIR", help="begin with the weights of this model")
    loop.add_argument("--layer-order", type=parse_order, metavar="0,1,…", help="rearrange the layers of --weights")
    loop.add_argument("--first-step", type=int, metavar="N", help="begin at this step of the schedules")
    loop.add_argument("--evaluate-every", type=int, metavar="TOKENS")
    loop.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    loop.add_argument("--threads", type=int, help="CPU threads")
    ship = parser.add_argument_group("ship")
    ship.add_argument("--run", type=Path, metavar="DIR", help="the finished run")
    ship.add_argument("--before", type=Path, nargs="+", metavar="DIR", help="the runs whose weights it went on from, first one first")
    ship.add_argument("--to", type=Path, metavar="DIR", help="the model's new folder")
    ship.add_argument("--draft", type=Path, metavar="DIR", help="a draft model to measure beside it")
    ship.add_argument("--bench", type=Path, metavar="FILE", help="what bench --out measured with the draft, for its card")
    ship.add_argument("--machine", help="what the card says about the machine")


def configuration(args: argparse.Namespace, folder: Path) -> TrainConfig:
    """The settings of the run that ``args`` asks for. UsageError where they cannot work."""
    given = {name: value for name, value in vars(args).items() if value is not None}
    if args.resume:
        config = TrainConfig.load(folder / "config.json")
        if {"shallow": "distill"}.get(config.kind, config.kind) != args.recipe:
            raise UsageError(f"{folder}: this is a {config.kind} run, not {args.recipe}")
        given = {name: value for name, value in given.items() if name in LATE}
        given.setdefault("stop_step", 0)
    else:
        config = DEFAULTS["shallow" if args.recipe == "distill" and find(args.target or "") else args.recipe]
    if config.kind == "shallow" and "minutes" in given:
        given.setdefault("tokens", 0)  # to be measured out
    if "corpus" in given:
        given["corpus"] = tuple(str(path) for path in given["corpus"])
    parts = {"shape": config.shape, "recipe": config.recipe}
    for part, kind in (("shape", ModelShape), ("recipe", Recipe)):
        mine = {field.name: given[field.name] for field in fields(kind) if field.name in given}
        parts[part] = replace(parts[part], **mine)
    own = {field.name for field in fields(TrainConfig)} - {"shape", "recipe", "kind"}
    return replace(config, **parts, **{name: value for name, value in given.items() if name in own}).check()


def load_weights(config: TrainConfig):
    """The model that ``--weights`` names, or None. UsageError where it has another shape."""
    if not config.weights:
        return None
    import torch
    from transformers import LlamaForCausalLM

    if not (Path(config.weights) / "config.json").exists():
        raise UsageError(f"--weights {config.weights}: no model here")
    model = LlamaForCausalLM.from_pretrained(config.weights, dtype=torch.float32, local_files_only=True)
    found = model.config
    shape = ModelShape(
        found.num_hidden_layers, found.hidden_size, found.intermediate_size, found.num_attention_heads, found.vocab_size
    )
    if shape != config.shape:
        raise UsageError(f"--weights {config.weights}: a model of another shape ({shape})")
    if config.layer_order:
        states = model.state_dict()
        for new, old in enumerate(config.layer_order):
            for name, value in model.model.layers[old].state_dict().items():
                states[f"model.layers.{new}.{name}"] = value.clone()
        model.load_state_dict(states)
    return model


def run_shallow(args: argparse.Namespace, config: TrainConfig, folder: Path) -> int:
    """Both stages of a distillation from a model of the zoo: its answers, then a draft of some of its layers."""
    import torch

    from specviz.models.loading import load_model
    from specviz.training.answers import AnswerSettings, write_answers
    from specviz.training.memory import keep_freed_memory
    from specviz.training.shallow import shallow_trainer

    if args.only != "answers" and not args.resume and (folder / "checkpoint.pt").exists():
        raise UsageError(f"{folder} holds a run already: continue it with --resume, or choose another --out")
    if args.threads:
        torch.set_num_threads(args.threads)
    target = load_model(config.target, device="cpu")
    keep_freed_memory()
    kept = args.answers or folder
    if args.only != "training":
        settings = AnswerSettings(config.target, seed=config.seed)
        write_answers(replace(settings, prompts=args.prompts or settings.prompts), kept / "answers", target)
    if args.only == "answers":
        return 0
    trainer = shallow_trainer(config, folder, kept, target)
    if args.resume and not trainer.load_checkpoint():
        print("no checkpoint yet, starting again")
    if args.resume:
        trainer.log_changes(TrainConfig.load(folder / "config.json"))
    trainer.run()
    last = trainer.held_out.measure(trainer.forward)
    print(f"{folder / 'model'}: picks the target's token {last['target_agreement']:.1%} of the time, on answers it never saw")
    return 0


def run(args: argparse.Namespace) -> int:
    if args.recipe == "ship":
        from specviz.bench.report import race_of_draft
        from specviz.training.ship import ship
        from specviz.training.ship_shallow import ship_shallow

        if not args.run or not args.to:
            raise UsageError("ship needs --run DIR and --to DIR")
        if TrainConfig.load(args.run / "config.json").kind == "shallow":
            raced = race_of_draft(args.bench, args.to.name) if args.bench else None
            ship_shallow(args.run, args.to, args.answers or args.run, machine=args.machine, bench=raced)
            return 0
        ship(args.run, args.to, draft=args.draft, machine=args.machine, before=args.before)
        return 0
    folder = args.out or Path("runs") / args.recipe
    config = configuration(args, folder)
    if config.kind == "shallow":
        return run_shallow(args, config, folder)
    if not args.resume and (folder / "checkpoint.pt").exists():
        raise UsageError(f"{folder} holds a run already: continue it with --resume, or choose another --out")

    import torch

    from specviz.training.corpus import prepare
    from specviz.training.memory import keep_freed_memory
    from specviz.training.trainer import Trainer

    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError("--device cuda: no usable GPU here, leave it out to train on the CPU")
    if args.threads:
        torch.set_num_threads(args.threads)
    keep_freed_memory()
    corpora = [Path(path) for path in config.corpus]
    if config.kind == "distill":
        from specviz.training.distill import distill_trainer

        trainer = distill_trainer(config, folder, device)
    else:
        corpus = prepare(corpora, config.shape.vocabulary, folder.parent / "corpus", stdlib=config.stdlib)
        trainer = Trainer(config, corpus, folder, device, load_weights(config))
    if args.resume:
        if trainer.load_checkpoint():
            trainer.log_changes(TrainConfig.load(folder / "config.json"))
        else:
            print("no checkpoint yet, starting again")
    trainer.run()
    last = trainer.held_out.measure(trainer.forward)
    print(f"{folder / 'model'}: held-out loss {last['held_out_loss']:.3f} after {trainer.config.tokens / 1e6:.2f} M tokens")
    return 0
