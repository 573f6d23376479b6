"""The contract type `declared_imports` of import-linter: a room may import only the rooms it declares.

A room is a package or module directly below `robustassay`. The declarations are in pyproject.toml, one line per room:

    "defenses -> certification, errors, models, registry"
"""

from typing import Any, Final, final

import grimp
from importlinter import Contract, ContractCheck, fields, output

PACKAGE: Final = "robustassay"
OPEN_ROOMS: Final = ("__main__", PACKAGE)
"""The public surface and the command; they may import every room."""


@final
class DeclaredImports(Contract):
    """Compares the imports between rooms with the declared ones; an import or a room without declaration breaks it."""

    type_name = "declared_imports"

    edges = fields.ListField(subfield=fields.StringField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        """Return the undeclared imports, the rooms without a declaration, and the declarations nobody uses."""
        declared = parse_edges(list(self.edges))  # type: ignore[call-overload]
        found = room_imports(graph)
        rooms = {room for room, _ in found} | {room for _, room in found}
        undeclared = {
            modules
            for (importer, imported), pairs in found.items()
            if importer not in OPEN_ROOMS and imported not in declared.get(importer, ())
            for modules in pairs
        }
        unused = {(room, other) for room, others in declared.items() for other in others if (room, other) not in found}
        unknown = rooms - declared.keys() - set(OPEN_ROOMS)
        return ContractCheck(
            kept=not (undeclared or unused or unknown),
            metadata={"undeclared": sorted(undeclared), "unused": sorted(unused), "unknown": sorted(unknown)},
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line per violation."""
        for importer, imported in check.metadata["undeclared"]:
            output.print_error(
                f"{importer} imports {imported}: declare the edge in pyproject.toml, or remove the import."
            )
        for room, other in check.metadata["unused"]:
            output.print_error(f"{room} no longer imports {other}: remove the edge from pyproject.toml.")
        for room in check.metadata["unknown"]:
            output.print_error(f"The room {room} is not declared: add a line for it in pyproject.toml.")


def parse_edges(lines: list[str]) -> dict[str, tuple[str, ...]]:
    """Read lines such as "eps -> errors" into the rooms that each room may import."""
    pairs = (line.partition("->")[::2] for line in lines)
    return {
        room.strip(): tuple(other.strip() for other in others.split(",") if other.strip()) for room, others in pairs
    }


def room_imports(graph: grimp.ImportGraph) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return the imports between different rooms: per pair of rooms, the pairs of modules."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer) if is_ours(importer) else ():
            rooms = (room_of(importer), room_of(imported))
            if is_ours(imported) and imported != PACKAGE and rooms[0] != rooms[1]:
                found.setdefault(rooms, []).append((importer, imported))
    return found


def is_ours(module: str) -> bool:
    """Say whether a module belongs to the package."""
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def room_of(module: str) -> str:
    """Return the room of a module: the second part of its name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def declared_edges(config: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the declared edges in the parsed pyproject.toml."""
    contracts = config["tool"]["importlinter"]["contracts"]
    (edges,) = (contract["edges"] for contract in contracts if contract["type"] == DeclaredImports.type_name)
    return parse_edges(edges)
