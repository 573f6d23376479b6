"""What a service has done, as Prometheus reads it (https://prometheus.io/docs/instrumenting/exposition_formats)."""

from bisect import bisect_left
from collections import Counter
from typing import Final, final

from robustassay.serve.batcher import Batcher

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@final
class Metrics:
    """Counts requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._slower_than: Counter[int] = Counter()
        self._seconds = 0.0

    def count(self, route: str, status: int, seconds: float) -> None:
        """Add one request."""
        self._requests[route, status] += 1
        self._slower_than[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def text(self, batcher: Batcher) -> str:
        """Write everything down."""
        lines = ["# TYPE assay_requests_total counter"]
        for (route, status), count in sorted(self._requests.items()):
            lines.append(f'assay_requests_total{{route="{route}",status="{status}"}} {count}')
        lines.append("# TYPE assay_request_seconds histogram")
        so_far = 0
        for rank, bound in enumerate(BOUNDS):
            so_far += self._slower_than[rank]
            lines.append(f'assay_request_seconds_bucket{{le="{bound}"}} {so_far}')
        total = self._requests.total()
        lines += [f'assay_request_seconds_bucket{{le="+Inf"}} {total}', f"assay_request_seconds_count {total}"]
        lines.append(f"assay_request_seconds_sum {self._seconds:.6f}")
        for name, kind, value in (
            ("assay_images_total", "counter", batcher.images),
            ("assay_forward_passes_total", "counter", batcher.passes),
            ("assay_images_waiting", "gauge", batcher.queued),
        ):
            lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"
