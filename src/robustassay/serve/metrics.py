"""Metrics of a service in Prometheus's text format (https://prometheus.io/docs/instrumenting/exposition_formats)."""

from bisect import bisect_left
from collections import Counter
from typing import Final, final

from robustassay.serve.batcher import Batcher

BUCKET_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@final
class Metrics:
    """Counts requests per route and status, and keeps a histogram of their durations."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[int] = Counter()
        self._seconds = 0.0

    def count(self, route: str, status: int, seconds: float) -> None:
        """Add one request."""
        self._requests[route, status] += 1
        self._buckets[bisect_left(BUCKET_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def text(self, batcher: Batcher) -> str:
        """Return all metrics as text."""
        lines = ["# TYPE assay_requests_total counter"]
        for (route, status), count in sorted(self._requests.items()):
            lines.append(f'assay_requests_total{{route="{route}",status="{status}"}} {count}')
        lines.append("# TYPE assay_request_seconds histogram")
        cumulative = 0
        for rank, bound in enumerate(BUCKET_BOUNDS):
            cumulative += self._buckets[rank]
            lines.append(f'assay_request_seconds_bucket{{le="{bound}"}} {cumulative}')
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
