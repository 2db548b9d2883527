"""What is compared with what was sent, and what commands complain of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from processor.config import load
from processor.core.errors import GForceError
from processor.operations.group import opened
from processor.operations.tenant_state import tenant_state

from .stream import Books


def wrong_counters(config: Path, books: Books, partitions: Iterable[int]) -> list[str]:
    """Tenants whose counters in Redis are not what was sent, in words."""
    wrong = []
    decisions, joined = books.decisions(), books.joined()
    with opened(load(config, {})) as place:
        for tenant in books.tenants_on(partitions):
            if not decisions[tenant]:
                continue  # all of it was forgotten
            try:
                state = tenant_state(place, tenant)
            except GForceError as error:
                wrong.append(f"{tenant}: {error}")
                continue
            wanted = [[joined[tenant, group, label] for label in state.labels] for group in state.groups]
            made = state.tally.get("decisions", 0)
            if made != decisions[tenant] or state.seen != wanted:
                was = f"{made} decisions and labels {state.seen}"
                wrong.append(f"{tenant} has {was}, and should have {decisions[tenant]} and {wanted}")
    return wrong


def complaints(document: str, number: int) -> list[str]:
    """What a command has found wrong that names the partition."""
    try:
        found = json.loads(document)
    except ValueError:
        return []
    about = re.compile(rf"partitions? (\d+, )*{number}\b|\[{number}\]|/{number}\b")
    texts = [
        f"{one['what']}: {one['found']} {one.get('remedy', '')}"
        for one in found.get("findings", ())
        if one["level"] != "ok"
    ]
    refused = [one["detail"] for one in found.get("partitions", ()) if one["action"] == "refuse"]
    mine = [
        f"refuse: {one['detail']}"
        for one in found.get("partitions", ())
        if one["partition"] == number and one["detail"] in refused
    ]
    return mine + [text for text in texts if about.search(text)]
