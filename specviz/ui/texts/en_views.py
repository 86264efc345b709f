"""English texts of the views behind Watch, of files and of their errors."""

TEXTS = {
    "explore.empty": (
        "Press “Measure this output once”; it takes some seconds. Then every iteration appears "
        "here against the oracle, the passes that each rule needs, and speed and waste over the "
        "threshold."
    ),
    "layers.empty": (
        "Press “Look into every layer”; it takes some seconds. Then what each layer would write "
        "appears here, the sweet spot of the exit, and which layers are computed when."
    ),
    "stage.download": "Downloading {name}, once:",
    "stage.convert": "Converting {name}, once:",
    "stage.load": "Loading {name}",
    "stage.wait": "Another run fetches this model; waiting",
    "stage.other": "{name}",
    "task.code.1": "Code 1",
    "task.code.2": "Code 2",
    "task.code.3": "Code 3",
    "task.code.4": "Code 4",
    "view.explore": "Lookahead and oracle",
    "view.layers": "Exit layers",
    "view.race": "Race",
    "view.published": "Published and measured",
    "view.walk": "How it works",
    "guide.label": "What to look at",
    "try.label": "Try this:",
    "state.simulated": "Simulated, not run",
    "verdict.unfinished": "This file holds a run that was not finished; what it has is shown.",
    "metric.predicted": "Predicted speed-up",
    "metric.predicted.note": "{speed} tokens a second, from costs measured here",
    "policy.constant": "Constant",
    "policy.heuristic": "Heuristic",
    "policy.dynamic": "Dynamic",
    "policy.oracle": "Oracle",
    "study.about": "Models: {models}. Prompt: “{prompt}”. Up to {limit} new tokens. Change them in the Watch view.",
    "study.ready": "Measured. Everything below answers at once now.",
    "study.measuring": "Reading the output once with every drafter, and timing the parts …",
    "explore.measure": "Measure this output once",
    "explore.policy": "When to stop guessing",
    "explore.play": "Show this run",
    "explore.run": "Run it for real",
    "explore.title": "How far ahead should the draft guess?",
    "explore.text": (
        "Guess too few tokens and passes of the target are lost; guess too many and drafting is wasted. "
        "The oracle knows beforehand where the draft will be wrong, and shows what the best possible "
        "rule would gain. One measurement of one output is enough to know exactly what every rule would "
        "have done, so move the sliders: no model is run."
    ),
    "explore.try.greedy": "always guess 20 tokens, and see how much of it is wasted.",
    "explore.try.careful": "stop as soon as the draft is less than 80 % sure.",
    "explore.try.oracle": "the oracle: no guess is ever refused.",
    "layers.measure": "Look into every layer",
    "layers.run": "Run at this layer",
    "layers.twin": "Compare with the plain twin",
    "layers.best": (
        "Best exit here: layer {layer}, predicted {speed}×, although only {rate} of its guesses are "
        "accepted."
    ),
    "layers.title": "The model drafts for itself",
    "layers.text": (
        "Often a model knows its next token long before its last layer. Early exit lets the first layers "
        "guess and the remaining layers check, so no second model is needed, and what the first layers "
        "computed is used again. Look where the answers settle, and where the speed-up peaks: a later "
        "exit is right more often, but every guess costs more."
    ),
    "layers.try.first": "leave after the very first layer: cheap, and often wrong.",
    "layers.try.late": "leave two layers before the end: almost always right, and hardly cheaper.",
    "layers.try.best": "go to the sweet spot.",
    "fig.compare.title": "Trained to exit early, and not",
    "fig.compare.note": (
        "Acceptance over the exit layer, of the model trained with the LayerSkip recipe and of its twin "
        "trained without it."
    ),
    "race.start": "Race",
    "race.again": "Replay the race",
    "race.title": "Same prompt, same text, different speed",
    "race.text": (
        "Each method writes the text of the same target, so all lanes end with the same words; only the "
        "time differs. They run one after another, so that none disturbs the other, and are then "
        "replayed on one clock."
    ),
    "race.try.policies": "all rules for how far to guess ahead.",
    "race.try.drafters": "a draft model, the target's own layers, and copying from the text.",
    "race.choose": "Choose 2 to {most} methods.",
    "race.running": "Running {n} of {all}: {method}.",
    "race.done": "All lanes are run. This is the replay.",
    "race.tokens": "{n} tokens",
    "race.finished": "{n} tokens in {time}",
    "race.clock": "{time} of {all}",
    "race.passes": "Target passes",
    "race.same": "All {all} methods wrote exactly the same text.",
    "race.differs": "{same} of {all} methods wrote exactly the same text; rounding decided near ties elsewhere.",
    "fig.race.title": "Tokens per second",
    "fig.race.note": "In brackets: against the target alone.",
    "published.title": "What others measured, and what this machine did",
    "published.text": (
        "Speed-ups depend on models, task and hardware, so numbers of different machines are never mixed "
        "here: above are your own runs of this visit, below the sources' tables as they were published. "
        "A row can be run here if its models fit."
    ),
    "published.own": "Measured here, in this visit",
    "published.own.note": "Every run of the Watch and Race views is added.",
    "published.none": "Nothing yet. Run something in the Watch or Race view.",
    "published.models": "Models",
    "published.speedup": "Speed-up",
    "published.hardware": "Hardware",
    "published.rate": "{rate} ({accepted} of {drafted})",
    "published.here": "this machine ({device})",
    "published.source": "Source: {source}. Hardware: {hardware}.",
    "published.title.dynamic": "Dynamic speculative decoding",
    "published.title.layerskip": "LayerSkip: self-speculative decoding",
    "published.title.sweep": "Exit layer sweep: Llama-3.2-3B, LayerSkip fine-tuned on TOPv2",
    "published.hardware.dynamic": "one RTX 4090, greedy",
    "published.hardware.layerskip": "one A100 80 GB (70B: eight), summarisation",
    "published.hardware.sweep": "not stated; ms for the same output",
    "published.cell.summarisation": "summarisation",
    "published.cell.open-ended": "open-ended",
    "published.cell.code (python)": "code (python)",
    "published.cell.none": "none",
    "published.target": "Target",
    "published.draft": "Draft",
    "published.task": "Task",
    "published.heuristic": "Heuristic (×)",
    "published.dynamic": "Dynamic (×)",
    "published.model": "Model",
    "published.exit_layer": "Exit layer",
    "published.self_ms": "Self-speculative, ms a token",
    "published.plain_ms": "Plain, ms a token",
    "published.two_model": "Two models",
    "published.milliseconds": "ms",
    "published.run": "Here",
    "published.run_row": "Run here",
    "published.table": "Table",
    "published.too_large": "needs {needed} GB, this machine has {here}",
    "published.gated": "needs a token: accept the licence of {name} on the Hub",
    "published.dynamic.note": (
        "Speed-up over plain generation. Heuristic and dynamic are the two ways of choosing the "
        "lookahead."
    ),
    "published.layerskip.note": (
        "The plain baseline of one model differs by a quarter between rows, so a baseline has to be "
        "measured beside the method."
    ),
    "published.sweep.note": (
        "The sweet spot is not where most guesses are accepted: every layer more makes each guess dearer."
    ),
    "walk.label": "Steps",
    "walk.back": "Back",
    "walk.next": "Next",
    "walk.step": "Step {n} of {all}",
    "walk.alone.title": "One pass, one token",
    "walk.alone.text": (
        "Alone, the target writes one token a pass. This run's {tokens} tokens would take {tokens} "
        "passes, and each pass moves all the weights of the model through the processor just to produce "
        "one token."
    ),
    "walk.draft.title": "A small draft guesses ahead",
    "walk.draft.text": (
        "Instead, something cheap guesses the next tokens: a small model, the target's own first layers, "
        "or a look back into the text. Here it has guessed {count} tokens. None of them counts yet."
    ),
    "walk.verify.title": "One pass checks all guesses",
    "walk.verify.text": (
        "The target reads all {count} guesses in a single pass, and sees at every place what it would "
        "have written itself. Checking several tokens takes hardly longer than writing one, because the "
        "weights are moved only once."
    ),
    "walk.refuse.title": "The first wrong guess ends it",
    "walk.refuse.text": (
        "Guesses are kept as long as they agree. Here the draft wanted “{wrong}”, the target “{right}”: the "
        "guess is struck out with everything behind it, and the target's own token takes its place. So "
        "the text is always the target's."
    ),
    "walk.bonus.title": "All right: one token for free",
    "walk.bonus.text": (
        "If all {fullcount} guesses are right, the same pass has already worked out what comes next: "
        "“{bonus}” is a bonus. In the best case a pass yields all guesses plus one."
    ),
    "walk.rate.title": "How much is gained?",
    "walk.rate.text": (
        "In this run {accepted} of {drafted} guesses were accepted ({rate}), so a pass of the target "
        "yielded {mean} tokens on average, and {tokens} tokens took {passes} passes."
    ),
    "walk.speed.title": "When is it faster?",
    "walk.speed.text": (
        "Guessing is not free. What counts is the cost of a guess against the cost of a pass: a cheap "
        "draft may be wrong often, an expensive one must be right nearly always."
    ),
    "walk.stop.title": "When to stop guessing",
    "walk.stop.text": (
        "{wasted} guesses of this run were thrown away. A draft that notices its own doubt can stop "
        "earlier: that is dynamic lookahead. And if the target's own first layers do the guessing, no "
        "second model is needed: that is early exit. Both have a view of their own."
    ),
    "formula.rate": "acceptance rate α = accepted ÷ drafted",
    "formula.length": "tokens per target pass = tokens ÷ passes",
    "formula.expected": "expected tokens per pass = (1 − αᵏ⁺¹) ÷ (1 − α)",
    "formula.expected.note": (
        "With k = {k} guesses a pass, if every guess were accepted with the same chance. Real runs "
        "differ, since easy and hard places come in groups."
    ),
    "formula.cost": "cost ratio c = one draft step ÷ one pass of the target",
    "formula.speed": "speed-up = expected tokens ÷ (k · c + 1)",
    "formula.speed.note": (
        "The textbook value, if checking several tokens cost no more than writing one. The measured "
        "speed-up stands under the run in the Watch view."
    ),
    "formula.waste": "wasted guesses = drafted − accepted",
    "files.menu": "Save, share, open",
    "files.trace": "Save the run (JSONL)",
    "files.iterations": "Save iterations (CSV)",
    "files.tokens": "Save tokens (CSV)",
    "files.link": "Copy a link to this view",
    "files.open": "Open a saved run …",
    "files.copied": "Link copied.",
    "files.recorded": "Recorded runs",
    "error.no_draft": "This pair has no draft model: choose another pair.",
    "error.racers": "Choose 1 to {limit} methods.",
    "error.file": "This file cannot be read as a run: {why}.",
    "error.file_size": "This file is larger than {limit} MB.",
    "error.file_records": "This run has more than {limit} iterations.",
}
