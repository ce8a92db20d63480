"""All that comes from prometheus_client; where it is missing, the error says what to install."""

from __future__ import annotations

from ..errors import ZkplanError

try:
    from prometheus_client import (
        CollectorRegistry,
        Histogram,
        ProcessCollector,
        generate_latest,
        make_wsgi_app,
    )
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        Metric,
        SummaryMetricFamily,
    )
    from prometheus_client.exposition import ThreadingWSGIServer
    from prometheus_client.parser import text_string_to_metric_families
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise ZkplanError(
        "metrics need the package prometheus_client, which is not installed here: "
        "pip install 'zkplan[metrics]'"
    ) from missing

__all__ = [
    "Collector",
    "CollectorRegistry",
    "CounterMetricFamily",
    "GaugeMetricFamily",
    "Histogram",
    "Metric",
    "ProcessCollector",
    "SummaryMetricFamily",
    "ThreadingWSGIServer",
    "generate_latest",
    "make_wsgi_app",
    "text_string_to_metric_families",
]
