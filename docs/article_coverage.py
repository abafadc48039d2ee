"""Which file and which test hold each equation, table, figure and problem of the article.

A test says it with ``@pytest.mark.article("equation 12.5", ...)``; the files are the components and contracts that
the test, or a helper beside it, uses. Read by ``ast``: nothing is imported.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ITEMS = {
    "token embeddings, section 1": "38,597,376 parameters for 50,257 tokens of width 768",
    "equation 12.1": "scores, softmax over keys, weighted average",
    "table of scores, section 2": "the scores of three tokens",
    "figure 12.1a": "the scores",
    "figure 12.1b": "the weights",
    "figure 12.1c": "the weights under a causal mask",
    "equation 12.2": "queries, keys and values",
    "equation 12.3": "self-attention in matrix form",
    "parameters, section 3": "2 D_q D + D^2 weights, 2 D_q + D biases",
    "permutation equivariance, section 3": "Sa(XP) = Sa(X) P",
    "cost, section 3": "3 N D^2 + N^2 (D_q + D) multiply-adds",
    "equation 12.4": "variance of a score",
    "derivative of softmax, section 4": "vanishes when saturated",
    "equation 12.5": "scaled dot-product attention",
    "figure 12.2": "largest of 16 weights against the query size",
    "equation 12.6": "sinusoidal positions",
    "learned positions, section 5": "786,432 parameters, nothing beyond the last",
    "equation 12.7": "rotary positions",
    "equation 12.8": "multi-head attention",
    "parameters, section 6": "2,362,368 for D = 768",
    "equation 12.9": "the transformer layer",
    "figure 12.3": "the transformer layer, pre-norm",
    "MLP parameters, section 7": "4,722,432 for D = 768",
    "table of section 7, Counting a real model": "GPT-2 small: 124,439,808",
    "multiply-adds per token, section 7": "142,406,400 at N = 1,024",
    "masked language modelling, section 8": "BERT hides about 15 % of the tokens",
    "causal mask, section 8": "weights of later positions are 0",
    "next-token training, section 8": "all predictions from one forward pass",
    "KV cache, section 8": "a new token costs one column",
    "cross-attention, section 8": "queries from the decoder, keys and values from the encoder",
    "patches, section 9": "a 224 x 224 image in 16 x 16 patches is 196 tokens",
    "scores at 8,192 tokens, section 10": "67,108,864 for a head and layer",
    "Vaswani base, notes": "6 + 6 layers, D = 512, 8 heads",
    "GPT-3, notes": "174,604,259,328 parameters",
    "problem 12.1": "the output for position 2",
    "problem 12.2": "328,320 parameters of a single head",
    "problem 12.3": "deviation of a dot product",
    "problem 12.4": "rotation by differences",
    "problem 12.5": "a causal mask on the last query",
    "problem 12.6": "302,309,376 parameters in 24 layers",
    "problem 12.7": "tokens and cost at patch size 14",
}


def page(root: Path, notice: str) -> str:
    """docs/article.md."""
    tests, files = defaultdict(list), defaultdict(set)
    for test_file in sorted((root / "tests").rglob("test_*.py")):
        for item, test, used in marked_tests(test_file):
            if item not in ITEMS:
                raise SystemExit(
                    f"{test_file.relative_to(root)}: {test} marks an unknown item of the article: {item!r}"
                )
            tests[item].append(f"`{test_file.relative_to(root).as_posix()}::{test}`")
            files[item] |= used
    rows = []
    for item, text in ITEMS.items():
        held = "<br>".join(f"`{file}`" for file in sorted(files[item]))
        rows.append(f"| {item} | {text} | {held} | {'<br>'.join(tests[item]) or 'open'} |")
    held_count = sum(bool(tests[item]) for item in ITEMS)
    head = f"{held_count} of {len(ITEMS)} items are held by a test; the others are open."
    table = ["| item | what it says | files | tests |", "|---|---|---|---|", *rows]
    return "\n".join(["# The article", notice, "", head, "", *table]) + "\n"


def marked_tests(path: Path) -> Iterator[tuple[str, str, set[str]]]:
    """(item, test, files that the test uses) for each mark in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports = imported_files(tree)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, function in functions.items():
        items = [item for decorator in function.decorator_list for item in items_of(decorator)]
        if items:
            used = {imports[word] for word in words_used(function, functions) if word in imports}
            yield from ((item, name, used) for item in items)


def items_of(decorator: ast.expr) -> list[str]:
    """The strings of an ``article`` mark; nothing for any other decorator."""
    if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.article"):
        return []
    return [ast.literal_eval(argument) for argument in decorator.args]


def imported_files(tree: ast.Module) -> dict[str, str]:
    """Names imported from components and frame modules, each with the file that defines it."""
    files = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("zoo", "zoo_builtin"):
            folder = "plugins/" if (node.module or "").startswith("zoo_builtin") else ""
            for alias in node.names:
                files[alias.asname or alias.name] = f"{folder}{(node.module or '').replace('.', '/')}.py"
    return files


def words_used(function: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> set[str]:
    """Names in a function and in the helpers of its file that it calls, however deep."""
    words: set[str] = set()
    waiting = [function.name]
    while waiting:
        names = {node.id for node in ast.walk(functions[waiting.pop()]) if isinstance(node, ast.Name)}
        waiting += [name for name in names - words if name in functions]
        words |= names
    return words
