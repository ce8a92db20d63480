"""Short ways to make the families of prometheus_client: a name, a help text, samples by labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .prometheus import CounterMetricFamily, GaugeMetricFamily, Metric

Labelled = Mapping[str | tuple[str, ...], float]


def gauge(name: str, text: str, value: float) -> Metric:
    """A gauge without labels."""
    return GaugeMetricFamily(name, text, value)


def gauges(name: str, text: str, labels: Sequence[str], samples: Labelled) -> Metric:
    """A gauge with a sample for each key, which holds the values of the labels."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in _sorted(samples):
        family.add_metric(values, value)
    return family


def counters(name: str, text: str, labels: Sequence[str], samples: Labelled) -> Metric:
    """A counter, as `gauges`; `_total` is appended to its name."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in _sorted(samples):
        family.add_metric(values, value)
    return family


def _sorted(samples: Labelled) -> Iterable[tuple[tuple[str, ...], float]]:
    pairs = [((key,) if isinstance(key, str) else key, value) for key, value in samples.items()]
    return sorted(pairs)
