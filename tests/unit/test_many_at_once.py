"""What is done for many tenants at once equals the plain version, one at a time, to the byte."""

from __future__ import annotations

from hashlib import blake2b

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from processor.core import Learner, Policy, Request, Settings, native
from processor.core.advice import Advice
from processor.core.events import DecisionEvent, Limits, RequestEvent, encode_decision
from processor.core.exact import ONE
from processor.core.learner.axes import Axes
from processor.core.learner.batch import BatchRequests, PolicyDecisions, decide_batch, slices
from processor.core.learner.counters import ABSENT
from processor.core.stream.encode import DecisionWriter
from processor.core.stream.entries import LAST_SECOND, Pending, Settled, decode_entry
from processor.core.stream.entry_columns import PendingRows, decode_pending, encode_pending
from processor.core.stream.names import Names, NameTable, Tables
from processor.core.stream.stacking import stacked
from tests.fuzz_decoder import in_a_batch

from .tiers import tier as tier

POLICIES = [
    Policy(),
    Policy(objective="mixture"),
    Policy(eta="auto"),
    Policy(policy="groupaware"),
    Policy(policy="mw"),
]


def digits(kinds: int, width: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, kinds), min_size=width, max_size=width)


@given(kinds=st.integers(2, 10), policies=st.integers(1, 5), experts=st.integers(1, 64), data=st.data())
def test_entries_made_together_are_those_made_one_by_one(
    kinds: int, policies: int, experts: int, data: st.DataObject
) -> None:
    weighted = data.draw(st.booleans())
    plain = [
        Pending(
            tenant=data.draw(st.integers(0, 65_535)),
            content=data.draw(st.integers(0, 2**32 - 1)),
            at=data.draw(st.integers(0, LAST_SECOND)),
            due=data.draw(st.integers(0, 2**32 - 1)),
            remove=data.draw(st.integers(0, 2**32 - 1)),
            propensity=data.draw(st.integers(0, 2**32 - 1)) if weighted else None,
            group=data.draw(st.integers(0, 255)),
            kinds=kinds,
            decided=tuple(data.draw(digits(kinds, policies))),
            predictions=tuple(data.draw(digits(kinds, experts))),
        )
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    columns = {
        name: np.array([getattr(one, name) for one in plain], dtype=np.int64)
        for name in ("tenant", "content", "at", "due", "remove", "group", "decided", "predictions")
    }
    propensity = np.array([one.propensity for one in plain], dtype=np.int64) if weighted else None
    together = encode_pending(PendingRows(**columns, propensity=propensity), kinds)
    assert together == [one.encode() for one in plain]
    rows = decode_pending(together)
    assert rows.decided.tolist() == [list(one.decided) for one in plain]
    assert rows.predictions.tolist() == [list(one.predictions) for one in plain]
    assert rows.at.tolist() == [one.at for one in plain]
    assert rows.group.tolist() == [one.group for one in plain]
    assert (rows.propensity.tolist() if rows.propensity is not None else [None] * len(plain)) == [
        one.propensity for one in plain
    ]


def test_entries_of_different_widths_are_read_together() -> None:
    few = Pending(1, 2, 3, 4, 5, None, 0, 2, (1,), (2, 1))
    many = Pending(9, 8, 7, 6, 5, 4, 1, 3, (1, 3, 2), (3, 0, 1, 2, 1))
    rows = decode_pending([few.encode(), many.encode()])
    assert rows.decided.tolist() == [[1, 0, 0], [1, 3, 2]]
    assert rows.predictions.tolist() == [[2, 1, 0, 0, 0], [3, 0, 1, 2, 1]]
    assert rows.propensity is not None
    assert rows.propensity.tolist() == [0, 4]
    assert rows.at.tolist() == [3, 7]
    assert rows.group.tolist() == [0, 1]


@given(data=st.data())
def test_any_entries_are_read_together(data: st.DataObject) -> None:
    plain = []
    for _ in range(data.draw(st.integers(1, 4))):
        kinds, policies, experts = (data.draw(st.integers(1, most)) for most in (255, 5, 64))
        decided, predictions = (tuple(data.draw(digits(kinds, width))) for width in (policies, experts))
        propensity = data.draw(st.none() | st.integers(0, 2**32 - 1))
        plain.append(Pending(1, 2, 3, 4, 5, propensity, 0, kinds, decided, predictions))
    rows = decode_pending([one.encode() for one in plain])
    for i, one in enumerate(plain):
        decided, predictions = rows.decided[i].tolist(), rows.predictions[i].tolist()
        assert decided == [*one.decided, *[0] * (len(decided) - len(one.decided))]
        assert predictions == [*one.predictions, *[0] * (len(predictions) - len(one.predictions))]


@pytest.mark.parametrize("tenants", [[0], [1, 1], [0, 1, 0]])
def test_tables_of_many_tenants_say_what_each_says_alone(tenants: list[int]) -> None:
    axes = Axes.of(groups=["A", "B"], labels=["x", "y", "z"], experts=["m", "n"], policies=["p"])
    orders = [("AB", "mn", "xyz"), ("BA", "nm", "zxy")]
    each = [Tables(Names(*map(NameTable, order), NameTable(["p"])), axes) for order in orders]
    row = np.array([place for place, _ in enumerate(tenants) for _ in range(4)])
    whose = [each[tenant] for tenant in tenants for _ in range(4)]
    tables, which = stacked([each[tenant] for tenant in tenants], row)
    group, label = np.arange(len(row)) % 2, np.arange(len(row)) % 4
    assert tables.group_index(which, group).tolist() == [t.group_index[g] for t, g in zip(whose, group, strict=True)]
    assert tables.group_number(which, group).tolist() == [t.group_number[g] for t, g in zip(whose, group, strict=True)]
    assert tables.label_index(which, label).tolist() == [t.label_index[y] for t, y in zip(whose, label, strict=True)]
    said = label + ABSENT
    assert tables.label_number(which, said).tolist() == [t.label_number[y] for t, y in zip(whose, said, strict=True)]
    experts = np.broadcast_to(tables.expert_index(which), (2, len(row)))
    assert experts.T.tolist() == [table.expert_index.tolist() for table in whose]


def test_a_settled_entry_keeps_what_is_needed_of_the_pending_one() -> None:
    pending = Pending(1, 2, 3, 4, 5, 77, 0, 2, (1,), (2, 1))
    settled = Settled.labelled(pending.encode(), 1)
    assert decode_entry(settled) == Settled(pending.tenant, pending.content, pending.remove, 1)
    assert settled == Settled(pending.tenant, pending.content, pending.remove, 1).encode()


def trained(seed: int, policy: Policy, experts: int, window: int | None) -> Learner:
    """A learner with a past of its own."""
    settings = Settings(
        labels=("deny", "grant"),
        positive="grant",
        policy=policy,
        shadows=(Policy(policy="groupaware"),) if policy.policy != "groupaware" else (),
        bucket=10,
        keep=5,
        window=window,
    )
    learner = Learner(settings, seed.to_bytes(16, "big"))
    rng = np.random.default_rng(seed)
    for round_ in range(4):
        decisions = learner.decide_batch(requests(rng, 12, experts), at=[10 * round_] * 12)
        learner.learn_batch([(d, rng.choice(["deny", "grant"])) for d in decisions], at=[10 * round_ + 3] * 12)
    return learner


def requests(rng: np.random.Generator, count: int, experts: int) -> list[Request]:
    return [
        Request(
            f"{rng.integers(1 << 60)}",
            str(rng.choice(["A", "B"])),
            {f"e{e}": str(rng.choice(["deny", "grant"])) for e in range(experts) if rng.random() < 0.8 or e == 0},
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: f"{policy.name}-{policy.eta}")
def test_learners_decide_and_count_the_same_alone_and_among_others(policy: Policy, window: int | None) -> None:
    rng = np.random.default_rng(7)
    crowd = [trained(seed, policy, 2 + seed % 3, window) for seed in range(6)]
    alone = [trained(seed, policy, 2 + seed % 3, window) for seed in range(6)]
    asked = [requests(rng, 1 + 3 * i, 2 + i % 3) for i in range(6)]
    for learner, mine in zip(crowd, asked, strict=True):
        learner.ensure_axes({r.group for r in mine}, {expert for r in mine for expert in r.predictions})
    verdicts: dict[int, PolicyDecisions] = {}
    for experts in range(3):  # those that know as many experts are alike
        alike = [i for i in range(6) if i % 3 == experts]
        sizes = [len(asked[i]) for i in alike]
        together = decide_batch(
            BatchRequests(
                [crowd[i] for i in alike],
                sizes,
                [r.decision_id for i in alike for r in asked[i]],
                [Advice.of(r.group, r.predictions) for i in alike for r in asked[i]],
                np.array([40 + n for size in sizes for n in range(size)]),
            )
        )
        parts = slices(sizes)
        verdicts |= {i: together.part(part) for i, part in zip(alike, parts, strict=True)}
    for i, (one, other, mine) in enumerate(zip(crowd, alone, asked, strict=True)):
        verdict = verdicts[i]
        decisions = other.decide_batch(mine, at=[40 + i for i in range(len(mine))])
        labels = one.state.axes.labels
        assert [labels[i] for i in verdict.in_force.label] == [d.label for d in decisions]
        assert verdict.in_force.probabilities.tolist() == [list(d.parts.values()) for d in decisions]
        assert one.encode() == other.encode()


@given(st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=30), min_size=1, max_size=20), st.integers(0, 2**32))
@example([[*range(8), *range(8)], [3]], 0)
def test_what_came_in_pieces_is_decided_like_the_whole(asked: list[list[int]], seed: int) -> None:
    """Of up to thirty names, some come twice, and in two pieces."""
    rng = np.random.default_rng(seed)
    values: list[bytes | None] = []
    for experts in asked:
        said = ",".join(f'"e{expert}":"{"yes" if rng.random() < 0.5 else "no"}"' for expert in experts)
        group = "AB"[rng.integers(2)]
        values.append(f'{{"tenant":"t","decision_id":"1","group":"{group}","predictions":{{{said}}}}}'.encode())
    events = [event for event in in_a_batch(values * 2, Limits()) if isinstance(event, RequestEvent)]
    assert len(events) == 2 * len(values)
    found = []
    for advice in ([e.advice for e in events], [Advice.of(e.group, e.predictions) for e in events]):
        learner = Learner(Settings(labels=("no", "yes"), positive="yes"), seed=b"sixteen bytes ok")
        learner.ensure_axes({"A", "B"}, {f"e{number}" for number in range(20)})
        ids, at = [str(n) for n in range(len(advice))], np.zeros(len(advice), np.int64)
        verdicts = decide_batch(BatchRequests([learner], [len(advice)], ids, advice, at))
        found.append((verdicts.group.tolist(), verdicts.predictions.tolist(), learner.encode()))
    assert found[0] == found[1]


NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)


@given(
    tenant=NAMES,
    labels=st.lists(NAMES, min_size=2, max_size=4, unique=True),
    experts=st.lists(NAMES, min_size=1, max_size=4, unique=True),
    has_instances=st.booleans(),
    objective=st.none() | st.just("gap"),
    data=st.data(),
)
def test_decisions_written_together_are_those_written_one_by_one(
    tenant: str,
    labels: list[str],
    experts: list[str],
    has_instances: bool,
    objective: str | None,
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(1, 4))
    contexts = st.sampled_from([b"", b'{"a": [1, 2.50]}', b"null"])
    events = [
        RequestEvent("?", data.draw(NAMES), Advice.of(data.draw(NAMES), {}), data.draw(contexts)) for _ in range(count)
    ]
    label = [data.draw(st.integers(0, len(labels) - 1)) for _ in events]
    expert = [data.draw(st.integers(-1, len(experts) - 1)) for _ in events]
    instance = [data.draw(st.integers(-1, len(labels) - 1)) for _ in events]
    parts = [[data.draw(st.integers(0, ONE)) for _ in labels] for _ in events]
    groups = sorted({event.group for event in events})
    writer = DecisionWriter(
        tenant=tenant,
        groups=groups,
        labels=labels,
        experts=experts,
        instances=labels if has_instances else (),
        policy="gforce",
        objective=objective,
        config="c0ffee",
    )
    plain = [
        encode_decision(
            DecisionEvent(
                tenant=tenant,
                decision_id=event.decision_id,
                group=event.group,
                decision=labels[y],
                expert=None if f < 0 else experts[f],
                instance=None if k < 0 or not has_instances else labels[k],
                probabilities={name: part / ONE for name, part in zip(labels, share, strict=True)},
                parts=dict(zip(labels, share, strict=True)),
                policy="gforce",
                objective=objective,
                config="c0ffee",
                batch=7,
                context=Raw(event.context) if event.context else UNSET,
            )
        )
        for event, y, f, k, share in zip(events, label, expert, instance, parts, strict=True)
    ]
    group = [groups.index(event.group) for event in events]
    written = native.written_decisions(
        [(writer, 0, len(events))],
        [event.decision_id for event in events],
        np.array([group, label, expert, instance]),
        np.array(parts, dtype=np.uint64),
        [event.context for event in events],
        [7] * len(events),
    )
    assert written == plain


def test_tenants_that_are_written_together_write_what_each_writes_alone() -> None:
    writers = [
        DecisionWriter(
            tenant=tenant,
            groups=groups,
            labels=("deny", "grant"),
            experts=("model", "rule"),
            instances=("deny", "grant"),
            policy="gforce",
            objective="gap",
            config=config,
        )
        for tenant, groups, config in (("acme", ("A", "B"), "c0ffee"), ("zeta", ("old", "young"), "c0de"))
    ]
    parts = [slice(0, 2), slice(2, 5)]
    ids, contexts, batches = ["1", "2", "3", "4", "5"], [b"", b"{}", b"", b"", b"[1]"], [7, 7, 7, 8, 8]
    choices = np.array([(0, 1, 0, 1), (1, 0, 1, 0), (0, 0, -1, -1), (1, 1, 0, 0), (1, 1, 0, 0)]).T
    chances = np.array([[n, ONE - n] for n in range(5)], dtype=np.uint64)
    together = native.written_decisions(
        [(writer, part.start, part.stop) for writer, part in zip(writers, parts, strict=True)],
        ids,
        choices,
        chances,
        contexts,
        batches,
    )
    alone = [
        native.written_decisions(
            [(writer, 0, len(ids[part]))],
            ids[part],
            choices[:, part],
            chances[part],
            contexts[part],
            batches[part],
        )
        for writer, part in zip(writers, parts, strict=True)
    ]
    assert together == [*alone[0], *alone[1]]
    assert [b'"acme"' in one for one in together] == [True, True, False, False, False]


@given(group=NAMES, said=st.dictionaries(NAMES, NAMES, min_size=1, max_size=5), context=st.binary(max_size=400))
def test_the_hash_of_a_request_is_that_of_all_it_says(group: str, said: dict[str, str], context: bytes) -> None:
    plain = msgspec.msgpack.encode([group, sorted(said.items()), context])
    expected = blake2b(plain, digest_size=4).digest()
    assert Advice.of(group, said).content(context) == expected
    assert Advice.of(group, dict(reversed(said.items()))).content(context) == expected
