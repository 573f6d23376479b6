"""Calls a model that changes with its calls always as it was before the first one."""

from copy import deepcopy
from typing import Any, Final, final

from torch import Tensor, nn

_OF_EVERY_MODULE: Final = frozenset(vars(nn.Module()))
"""Attributes that every module has; parameters, buffers and parts are among them."""


@final
class FirstState(nn.Module):
    """A model that is set back before each call to the state that it has now.

    An attacker of a model that remembers images attacks a copy, and sends its result to the model once.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = False
        self._saved: dict[str, tuple[dict[str, Any], dict[str, Tensor | None]]] = {}
        self._save()

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the first state."""
        saved, parts = self._copy(self._saved), dict(self.model.named_modules())
        for name, (attributes, buffers) in saved.items():
            _set_attributes(parts[name], attributes)
            parts[name]._buffers.clear()
            parts[name]._buffers.update(buffers)
        outputs: Tensor = self.model(x)
        return outputs

    def _apply(self, fn: Any, recurse: bool = True) -> "FirstState":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for _, buffers in self._saved.values():
            buffers.update({name: None if buffer is None else fn(buffer) for name, buffer in buffers.items()})
        return self

    def _save(self) -> None:
        self._saved = self._copy(
            {
                name: (_own_attributes(part), dict(part._buffers))
                for name, part in self.model.named_modules()
                if not hasattr(part, "_c")  # the attributes of a script are not Python's
            }
        )

    def _copy(self, saved: Any) -> Any:
        """Copy values; parts and parameters among them stay what they are."""
        shared = [*self.model.modules(), *self.model.parameters()]
        return deepcopy(saved, {id(one): one for one in shared})


def _own_attributes(part: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if name not in _OF_EVERY_MODULE}


def _set_attributes(part: nn.Module, attributes: dict[str, Any]) -> None:
    for added in _own_attributes(part).keys() - attributes.keys():
        del vars(part)[added]
    vars(part).update(attributes)
