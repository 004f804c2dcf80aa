"""Counts that tell how readable the package is: names with several meanings, participles as names, hidden imports.

python scripts/code_figures.py [FOLDER]
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

# Past participles without -ed, and words in -ed that are verbs, nouns or plain adjectives.
IRREGULAR = (
    "begun born bound broken brought built caught chosen done drawn driven fallen found foretold given gone grown "
    "held hidden kept known laid left lent lost made meant met said seen sent shown shut spent stuck sunk swept "
    "taken taught thought thrown told understood worn woven written"
)
NOT_PARTICIPLES = {"need", "exceed", "feed", "seed", "speed", "embed", "shed", "proceed", "bed", "red", "indeed"}
DOMAIN_WORDS = (
    "linear region",
    "activation pattern",
    "hyperplane",
    "VJP",
    "JVP",
    "floating-point filter",
    "subgradient",
    "tolerance",
)
CORE = ("sweep", "ops", "plane", "engines", "numerics", "results", "decide", "attr", "exact")


def is_participle(name: str) -> bool:
    """Whether a function is named by what became of its argument: ``joined``, ``_placed``, ``settled_groups``."""
    words = name.strip("_").split("_")
    first = words[0]
    if first in NOT_PARTICIPLES or len(first) < 3:
        return False
    return first in IRREGULAR.split() or first.endswith("ed")


def is_predicate(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is a property or an answer yes or no, which an adjective may name."""
    names = [d.id for d in node.decorator_list if isinstance(d, ast.Name)]
    names += [d.attr for d in node.decorator_list if isinstance(d, ast.Attribute)]
    boolean = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
    return boolean or any("property" in name or name == "setter" for name in names)


def main() -> None:
    """Print the counts."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src/exactline")
    paths = [p for p in sorted(root.rglob("*.py")) if "_pb2" not in p.name]
    classes: dict[str, list[str]] = defaultdict(list)
    constants: list[str] = []
    participles: list[str] = []
    functions = hidden = lines = literals = 0
    literal_files: set[str] = set()
    lengths: list[int] = []
    texts: list[str] = []
    for path in paths:
        text = path.read_text()
        texts.append(text)
        lines += text.count("\n")
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].append(str(path.relative_to(root)))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions += 1
                lengths.append((node.end_lineno or node.lineno) - node.lineno + 1)
                if is_participle(node.name) and not is_predicate(node):
                    participles.append(node.name)
                hidden += sum(isinstance(inner, (ast.Import, ast.ImportFrom)) for inner in ast.walk(node))
            elif isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < abs(node.value) < 1e-3:
                literals += path.relative_to(root).parts[0] in CORE
                if path.relative_to(root).parts[0] in CORE:
                    literal_files.add(str(path))
        for node in tree.body:
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name.id):
                        constants.append(name.id)
    several = {name: homes for name, homes in classes.items() if len(homes) > 1}
    counted = Counter(constants)
    everything = "\n".join(texts)
    print(f"files: {len(paths)}, lines: {lines}")
    print(f"functions: {functions}; under 27 lines: {sum(n < 27 for n in lengths) / max(functions, 1):.0%}")
    print(f"class names with several meanings: {len(several)}")
    for name, homes in sorted(several.items(), key=lambda item: -len(item[1]))[:8]:
        print(f"    {name}: {len(homes)}")
    print(f"functions named by participles: {len(participles)}")
    print(f"upper-case constants: {len(constants)}, distinct names: {len(counted)}")
    print("    most shared: " + ", ".join(f"{name} {count}" for name, count in counted.most_common(6)))
    print(f"imports inside functions: {hidden}")
    print(f"small float literals in the core: {literals} in {len(literal_files)} files")
    for word in DOMAIN_WORDS:
        print(f"{word!r}: {len(re.findall(re.escape(word), everything, re.IGNORECASE))}")


if __name__ == "__main__":
    main()
