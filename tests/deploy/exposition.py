"""What a scrape of `/metrics` shows: the names, and the values by labels."""

import re

from prometheus_client.parser import text_string_to_metric_families

_METRIC = re.compile(r"\b(?P<name>(?:milepost|process)_[a-z_]+)(?:\{(?P<matchers>[^}]*)\})?")
_MATCHER = re.compile(r'(?P<label>\w+)="(?P<value>[^"]*)"')
# Prometheus adds these itself.
TARGET_LABELS = frozenset({"job", "instance"})


class Exposition:
    """A page of metrics, as those who scrape it read it."""

    def __init__(self, page: str) -> None:
        families = list(text_string_to_metric_families(page))
        self.samples = [sample for family in families for sample in family.samples]
        # A counter or histogram whose labels have not been used yet has a name and no sample.
        self._declared = {family.name: family.type for family in families}

    def has(self, name: str) -> bool:
        """Say whether there is a metric of this name, or will be once something is counted."""
        if any(sample.name == name for sample in self.samples):
            return True
        plain, _, ending = name.rpartition("_")
        wanted = {"total": "counter", "bucket": "histogram"}.get(ending)
        return wanted is not None and self._declared.get(plain) == wanted

    def value(self, selector: str) -> float:
        """Return the one sample that a selector such as `name{label="word"}` names."""
        found = _METRIC.fullmatch(selector)
        assert found, selector
        wanted = dict(_MATCHER.findall(found["matchers"] or ""))
        [sample] = [
            sample
            for sample in self.samples
            if sample.name == found["name"] and wanted.items() <= sample.labels.items()
        ]
        return float(sample.value)


def asked_for(expression: str) -> list[tuple[str, dict[str, str]]]:
    """Return the metrics that a rule's expression names, each with the labels that it asks for."""
    return [
        (
            match["name"],
            {
                label: value
                for label, value in _MATCHER.findall(match["matchers"] or "")
                if label not in TARGET_LABELS
            },
        )
        for match in _METRIC.finditer(expression)
    ]
