"""The target is the only way to a model: no other package calls a module, and none asks what kind of target it has."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import robustassay

SOURCE = Path(robustassay.__file__).parent

EXEMPT = {
    "target": "it is the only way to a model",
    "remote": "it asks services",
    "models": "it builds modules",
    "defenses": "it builds modules",
    "certification": "it bounds modules layer by layer",
    "train": "it trains modules",
}
VERIFY = "evaluation/verify.py"
"""The independent checker: it shares no code with the search, so it calls the module itself."""

MODULES = {"module", "model", "net", "network", "classifier"}
"""Names that stand for a torch module, as variables or attributes; `whitelist.model(name)` looks one up."""

FORWARDS = {"differentiable", "forward", "naive"}
"""Methods of a module that are a call of it."""

KINDS = {"Service", "RemoteModel", "LocalModel", "SurrogateModel", "EnsembleModel"}


def others() -> list[Path]:
    files = (path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in EXEMPT)
    return [path for path in files if path.relative_to(SOURCE).as_posix() != VERIFY]


def module_calls(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that call a module. A module that wraps another may call it: it is built, not asked."""
    wrappers = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any("Module" in ast.unparse(base) for base in node.bases)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or id(node) in wrappers:
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in MODULES:
            yield node.lineno
        if isinstance(called, ast.Attribute) and called.attr in (MODULES - {"model"}) | FORWARDS:
            yield node.lineno
        if isinstance(called, ast.Call) and gives_forward(called):
            yield node.lineno


def gives_forward(call: ast.Call) -> bool:
    """Say whether a call returns a forward pass: `adaptive(module)`, or `getattr(module, "differentiable", ...)`."""
    name = ast.unparse(call.func).rpartition(".")[2]
    constants = {argument.value for argument in call.args if isinstance(argument, ast.Constant)}
    return name == "adaptive" or (name == "getattr" and bool(constants & FORWARDS))


def questions_of_kind(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that ask which class a target or a service has."""
    for node in ast.walk(tree):
        asked: list[ast.AST] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = [node.args[1]]
        elif isinstance(node, ast.Compare):
            asked = [*node.comparators]
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        if any(name in KINDS for part in asked for name in names_in(part)):
            yield getattr(node, "lineno", 0)


def names_in(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


@pytest.mark.parametrize("path", others(), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_no_other_room_calls_a_module_or_asks_for_the_kind_of_a_target(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not list(module_calls(tree)), (
        "ask the target (logits, gradient, call), or use target.call_module for a check"
    )
    assert not list(questions_of_kind(tree)), "ask the target what it gives (is_remote, gives_gradients, quantise)"


@pytest.mark.parametrize(
    "line",
    [
        "logits = module(x)",
        "first = target.module(x)",
        "y = model(x)",
        "y = network.module.forward(x)",
        "z = fixed.differentiable(x)",
        "z = adaptive(module)(x)",
        "z = getattr(module, 'differentiable')(x)",
    ],
)
def test_the_check_sees_every_form_of_a_call(line: str) -> None:
    assert list(module_calls(ast.parse(line))) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(module, Service)",
        "isinstance(module, (int, remote.Service))",
        "type(target) is not LocalModel",
        "type(target) == RemoteModel",
        "match target:\n case EnsembleModel(): pass",
    ],
)
def test_the_check_sees_every_form_of_the_question(line: str) -> None:
    assert list(questions_of_kind(ast.parse(line)))


def test_a_wrapper_may_call_what_it_wraps() -> None:
    wrapper = "class Wrapper(nn.Module):\n    def forward(self, x):\n        return self.module(x)"
    assert not list(module_calls(ast.parse(wrapper)))
