"""The arguments that name models, shared by the commands that load them."""

from __future__ import annotations

import argparse

from specviz.errors import UsageError
from specviz.models import zoo
from specviz.models.loading import LoadedModel, Progress, load_model, load_pair


def add_model_arguments(parser: argparse.ArgumentParser, draft: bool = True) -> None:
    models = "a name of the zoo (python -m specviz fetch lists it), a folder, or a Hub id"
    if draft:
        parser.add_argument("--pair", help=f"a target and its draft model by one name: {', '.join(zoo.PAIRS)}")
        parser.add_argument("--draft", help=f"the model that guesses ahead: {models}")
    parser.add_argument("--target", help=f"the model whose output is reproduced: {models}")
    parser.add_argument("--device", help="cuda, mps or cpu; default: the first of them that is there")
    parser.add_argument("--weights", choices=("int8",), help="8-bit weights, on a CPU: faster, and another model than float32")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16; default: bfloat16 on a GPU, float32 on a CPU")


def load_models(args: argparse.Namespace, progress: Progress) -> tuple[LoadedModel, LoadedModel | None, str]:
    """Target, draft model or None, and the method that this choice is offered with."""
    where = {"device": args.device, "dtype": args.dtype, "progress": progress}
    pair = getattr(args, "pair", None)
    draft = getattr(args, "draft", None)
    if pair and (args.target or draft):
        raise UsageError("--pair names both models: leave --target and --draft out")
    if args.target is None and draft is None:
        chosen = zoo.pair(pair) if pair else zoo.default_pair()
        return (*_weights(args, _load(chosen.target, chosen.draft, where)), chosen.method)
    if args.target is None:
        raise UsageError("--draft needs --target: say which model's output is wanted")
    return (*_weights(args, _load(args.target, draft, where)), "autoregressive")


def _weights(args: argparse.Namespace, models: tuple[LoadedModel, LoadedModel | None]):
    """The models as loaded, or with 8-bit weights where that was asked for."""
    if getattr(args, "weights", None) != "int8":
        return models
    from specviz.models.int8 import quantised

    return tuple(model and quantised(model) for model in models)


def _load(target: str, draft: str | None, where: dict) -> tuple[LoadedModel, LoadedModel | None]:
    if draft is None:
        return load_model(target, **where), None
    return load_pair(target, draft, **where)
