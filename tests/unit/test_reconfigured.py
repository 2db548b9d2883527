"""A tenant goes on under another configuration: with what it has learnt, anew, or not at all; never unnoticed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from processor import config as configuration
from processor.audit.replay.recorded_settings import Secrets
from processor.config import Config
from processor.core.stream.tenant import Tenant
from tests.recordings.stream import Running

from .audited import run
from .test_backlog import label, request
from .test_hostile_producers import SEED, quarantine_of, running

ONE_SIDED = {"FEEDBACK": "positive-only", "EXPLORE": "0.1"}
HOURS, DAYS = {"BUCKET": "1h"}, {"BUCKET": "1d"}


def configured(**default: str) -> Config:
    return configuration.load(None, SEED | of(default))


def of(default: dict[str, str]) -> dict[str, str]:
    return {f"GFORCE_TENANTS__DEFAULT__{key}": value for key, value in default.items()}


def before(**default: str) -> Running:
    """Fifty decisions, forty of them with a label."""
    one = running(**of(default))
    one.feed([request(n, n) for n in range(50)])
    one.feed([label(n, 900_000) for n in range(40)])
    return one


def after(one: Running, then: Config) -> Tenant:
    """The rest of the labels, under another configuration. An audit finds nothing wrong."""
    one.restart(then)
    one.run()
    one.feed([label(n, 900_000) for n in range(40, 50)])
    tenant = bank(one)
    assert tenant.tally["labels_joined"] == 50
    assert not run(one.source(), Secrets.of_config(then)).findings
    return tenant


def bank(one: Running) -> Tenant:
    [owned] = one.worker.owned.values()
    assert owned.partition is not None
    return owned.partition.tenants["bank"]


def counted(tenant: Tenant) -> tuple[int, list[int]]:
    """Labels in the lifetime, and in each bucket."""
    state = tenant.learner.state
    return int(state.lifetime.seen.sum()), [int(counters.seen.sum()) for counters in state.buckets.values()]


@pytest.mark.parametrize(("first", "then"), [(HOURS, DAYS), (DAYS, HOURS)])
def test_with_another_width_of_buckets_windows_begin_anew(first: dict[str, str], then: dict[str, str]) -> None:
    one = before(**first)
    assert counted(bank(one)) == (40, [40])
    assert counted(after(one, configured(**then))) == (50, [10])
    one.restart(configured(**then))
    one.run()
    assert counted(bank(one)) == (50, [10])  # nothing of before is left in the store


def test_a_window_that_is_only_longer_loses_nothing() -> None:
    assert counted(after(before(WINDOW="7"), configured(WINDOW="14"))) == (50, [50])


def test_who_says_that_labels_are_one_sided_begins_anew() -> None:
    tenant = after(before(), configured(**ONE_SIDED))
    assert counted(tenant) == (10, [10])
    assert tenant.learner.state.lifetime.labels.sum() >= 10 << 20


def test_one_sided_labels_are_never_read_as_all_of_them() -> None:
    one = before(**ONE_SIDED)
    one.restart(configured())
    one.run()
    assert re.search(r'tenant "bank": its labels were counted with .*set it back.*reset', quarantine_of(one))
    assert counted(after(one, configured(**ONE_SIDED))) == (50, [50])


def test_other_labels_are_refused_with_the_name_of_the_tenant() -> None:
    one = before(LABELS='["maybe", "false", "true"]', POSITIVE="true")
    one.restart(configured())
    one.run()
    assert re.search(r'tenant "bank": its labels are .*set them back.*reset', quarantine_of(one))


def test_a_tenant_under_another_configuration_is_told_of_once() -> None:
    one = before()
    old, told = bank(one).rules.digest, list[tuple[str, dict[str, Any]]]()
    one.restart(configured(LAMBDA="3"))
    one.worker.notify = lambda event, details: told.append((event, details))
    one.run()
    one.feed([label(n, 900_000) for n in range(40, 45)])
    one.feed([label(n, 900_000) for n in range(45, 50)])
    new = bank(one).rules.digest
    assert [details for event, details in told if event == "configuration"] == [
        {"partition": 0, "tenants": 1, "first": "bank", "was": old, "now": new}
    ]


def test_a_tenant_that_is_new_is_not_told_of() -> None:
    one, told = running(), list[str]()
    one.worker.notify = lambda event, details: told.append(event)
    one.feed([request(n, n) for n in range(5)])
    assert "configuration" not in told
