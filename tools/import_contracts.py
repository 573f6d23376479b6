"""The contract type `declared_imports` of import-linter: a package may import only the packages it declares.

A package here is a folder or module directly below `robustassay`. pyproject.toml declares its imports in one line:

    "defenses -> certification, errors, models, registry"
"""

from typing import Any, Final, final

import grimp
from importlinter import Contract, ContractCheck, fields, output

ROOT: Final = "robustassay"
UNRESTRICTED: Final = ("__main__", ROOT)
"""The public surface and the command; they may import every package."""


@final
class DeclaredImports(Contract):
    """Compares the imports between packages with the declared ones; every package must be declared."""

    type_name = "declared_imports"

    allowed_imports = fields.ListField(subfield=fields.StringField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """Return the undeclared imports, the packages without a declaration, and the declarations nobody uses."""
        declared = parse_allowed_imports(list(self.allowed_imports))  # type: ignore[call-overload]
        found = package_imports(graph)
        packages = {package for package, _ in found} | {package for _, package in found}
        undeclared = {
            modules
            for (importer, imported), pairs in found.items()
            if importer not in UNRESTRICTED and imported not in declared.get(importer, ())
            for modules in pairs
        }
        unused = {
            (package, other)
            for package, others in declared.items()
            for other in others
            if (package, other) not in found
        }
        unknown = packages - declared.keys() - set(UNRESTRICTED)
        return ContractCheck(
            kept=not (undeclared or unused or unknown),
            metadata={"undeclared": sorted(undeclared), "unused": sorted(unused), "unknown": sorted(unknown)},
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line per violation."""
        for importer, imported in check.metadata["undeclared"]:
            output.print_error(
                f"{importer} imports {imported}: declare the allowed import in pyproject.toml, or remove the import."
            )
        for package, other in check.metadata["unused"]:
            output.print_error(f"{package} no longer imports {other}: remove the allowed import from pyproject.toml.")
        for package in check.metadata["unknown"]:
            output.print_error(f"The package {package} is not declared: add a line for it in pyproject.toml.")


def parse_allowed_imports(lines: list[str]) -> dict[str, tuple[str, ...]]:
    """Read lines such as "eps -> errors" into the packages that each package may import."""
    pairs = (line.partition("->")[::2] for line in lines)
    return {
        package.strip(): tuple(other.strip() for other in others.split(",") if other.strip())
        for package, others in pairs
    }


def package_imports(graph: grimp.ImportGraph) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the imports between different packages: per pair of packages, the pairs of modules."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer) if is_ours(importer) else ():
            packages = (package_of(importer), package_of(imported))
            if is_ours(imported) and imported != ROOT and packages[0] != packages[1]:
                found.setdefault(packages, []).append((importer, imported))
    return found


def is_ours(module: str) -> bool:
    """Say whether a module belongs to robustassay."""
    return module == ROOT or module.startswith(f"{ROOT}.")


def package_of(module: str) -> str:
    """Return the package of a module: the second part of its name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def declared_imports(config: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the allowed imports in the parsed pyproject.toml."""
    contracts = config["tool"]["importlinter"]["contracts"]
    (lines,) = (contract["allowed_imports"] for contract in contracts if contract["type"] == DeclaredImports.type_name)
    return parse_allowed_imports(lines)
