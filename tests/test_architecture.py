"""Who may import whom. Imports run one way: trace ← models ← decoding ← analysis ← figures ← ui."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "specviz"

# part of the package -> parts that it may import; every part may import itself, errors and the package's version
MAY = {
    "errors": set(),
    "trace": set(),
    "models": {"trace"},
    "decoding": {"trace", "models"},
    "training": {"trace", "models", "decoding", "analysis"},
    "analysis": {"trace", "models", "decoding"},
    "figures": {"trace", "analysis"},
    "bench": {"trace", "models", "decoding", "analysis"},
    "commands": {"trace", "models", "decoding", "analysis", "training", "bench", "figures", "ui"},
    "ui": {"trace", "models", "decoding", "analysis", "figures", "bench", "commands"},
    "__init__": {"trace", "models", "decoding", "analysis"},
    "__main__": {"commands"},
}
# foreign package -> parts that may import it
ONLY = {
    "gradio": {"ui"},
    "plotly": {"figures", "ui", "commands"},
    "torch": {"models", "decoding", "analysis", "training", "bench", "commands", "ui", "__init__"},
}


@functools.cache
def imports(file: Path) -> set[str]:
    """Every module that a file imports, wherever in the file, save for type checkers only."""
    found = set()
    todo = list(ast.parse(file.read_text(encoding="utf-8")).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import; write the whole name"
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
        todo += ast.iter_child_nodes(node)
    return found


def parts() -> dict[Path, str]:
    return {file: file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in sorted(PACKAGE.rglob("*.py"))}


def test_every_part_of_the_package_has_its_place():
    assert set(parts().values()) <= set(MAY), "a new part: say in MAY what it may import"


@pytest.mark.parametrize("part", sorted(MAY))
def test_imports_run_one_way(part):
    for file in (file for file, of in parts().items() if of == part):
        for module in imports(file):
            names = module.split(".")
            if names[0] == "specviz" and len(names) > 1 and names[1] in MAY:
                assert names[1] in MAY[part] | {part, "errors"}, f"{file.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("foreign", sorted(ONLY))
def test_foreign_packages_stay_in_their_parts(foreign):
    for file, part in parts().items():
        if any(module.split(".")[0] == foreign for module in imports(file)):
            assert part in ONLY[foreign], f"{file.relative_to(ROOT)} imports {foreign}"


def test_the_log_needs_the_standard_library_only():
    for file in (PACKAGE / "trace").glob("*.py"):
        for module in imports(file):
            assert module.split(".")[0] in sys.stdlib_module_names or module.startswith("specviz.trace."), module


def test_no_figure_and_no_log_loads_torch_or_gradio():
    modules = [f"specviz.figures.{file.stem}" for file in (PACKAGE / "figures").glob("[a-z]*.py")]
    code = (
        f"import importlib, sys\nfor name in {['specviz', 'specviz.trace', *modules]}: importlib.import_module(name)\n"
        "print([name for name in ('torch', 'gradio', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_commands_table_loads_nothing_heavy():
    code = "import sys, specviz.__main__; print([n for n in ('torch', 'gradio', 'plotly', 'pandas') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
