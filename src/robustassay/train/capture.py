"""Runs a training step as one CUDA graph; small networks otherwise wait for Python at every kernel."""

from collections.abc import Callable

import torch

EAGER_STEPS = 3  # During these, libraries choose algorithms and optimisers allocate their state.


class CapturedStep:
    """Runs the step eagerly a few times, records it once, then replays the recording.

    The step must read its inputs from tensors that stay in place, and draw only from `rng`.
    """

    def __init__(self, step: Callable[[], None], rng: torch.Generator) -> None:
        self._step = step
        self._rng = rng
        self._calls = 0
        self._stream = torch.cuda.Stream(rng.device)  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Run the step once more."""
        self._calls += 1
        if self._calls <= EAGER_STEPS:
            self._run_eagerly()
            return
        if self._graph is None:
            self._graph = self._record()
        self._graph.replay()

    def _run_eagerly(self) -> None:
        # Gradients belong to the stream they were first made on, so it must be the one that is recorded.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._step()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._rng)
        with torch.cuda.graph(graph, stream=self._stream):
            self._step()
        return graph
