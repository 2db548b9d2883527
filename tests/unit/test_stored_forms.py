"""What is stored says of which form it is: a later form is refused with its remedy, an earlier one is read."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from processor.core.alerts.monitor import Monitor, MonitorSettings
from processor.core.errors import ForeignRecordError, IncompatibleStateError
from processor.core.learner.codec import decode_state, encode_state
from processor.core.learner.learner import Learner
from processor.core.stream.entries import decode_entry
from processor.core.stream.identity import GENESIS, Identity
from processor.core.stream.journal import JOURNAL_FORM, ChangelogRecord, JournalRecord, Range
from processor.core.stream.partition import HEAD, Partition, partition_from_fields, stored_partitions
from processor.core.stream.tenant import BINARY_FORM, Tenant, fields_by_tenant, write_tenants
from processor.core.stream.writes import SetField, Writes, unpack
from processor.service.committed import JournalLink

from .observed import binary, settings_for, tenant_of

RULES = settings_for(binary(), MonitorSettings())
PARTITION = Partition(0, 4, Identity("ab", 7, "d"), clock=9, pending=1)
TENANT = tenant_of(rules=RULES)


def stored_fields() -> dict[bytes, bytes]:
    writes = Writes()
    write_tenants([(writes, [(TENANT, None)])])
    writes.add(PARTITION.head())
    return {write.name: write.value for write in unpack(writes.packed()) if isinstance(write, SetField)}


def relabelled(data: bytes, form: int) -> bytes:
    """The same in MessagePack, said to be of another form."""
    _, *rest = msgspec.msgpack.decode(data)
    return msgspec.msgpack.encode([form, *rest])


def journal(**changes: object) -> JournalRecord:
    empty = Range(0, 0, 0, "")
    record = JournalRecord(
        lineage="ab",
        partition=0,
        partitions=4,
        sequence=1,
        clock=0,
        now=0,
        requests=empty,
        feedback=empty,
        decisions=0,
        decisions_digest="",
        state_digest="",
        previous=GENESIS,
    )
    return msgspec.structs.replace(record, **changes)


# What this version writes, it reads


def test_a_partition_and_its_tenants_are_read_as_they_were_written() -> None:
    fields = stored_fields()
    assert stored_partitions(fields) == 4
    found = partition_from_fields(0, 4, PARTITION.identity, fields, lambda name: RULES)
    assert (found.clock, found.pending, list(found.tenants)) == (9, 1, [TENANT.name])


def test_a_journal_record_of_either_form_is_read() -> None:
    first, second = journal(), journal(form=JOURNAL_FORM, topics={"requests": "x"})
    assert b'"form"' not in first.encode()
    assert JournalRecord.decode(first.encode()) == first
    assert JournalRecord.decode(second.encode()) == second
    assert json.loads(second.encode())["form"] == 2
    assert JournalLink(second, "d").identity == Identity("ab", 1, "d")


# A later form is refused


def test_a_later_form_of_the_partitions_field_is_refused() -> None:
    fields = stored_fields()
    fields[HEAD] = relabelled(fields[HEAD], 2)
    with pytest.raises(
        IncompatibleStateError, match="partition is of form 2 and this version reads 1: run the version"
    ):
        partition_from_fields(0, 4, PARTITION.identity, fields, lambda name: RULES)


def test_a_later_form_of_a_tenants_field_is_refused() -> None:
    fields = stored_fields()
    name = b"t" + TENANT.number.to_bytes(2, "big")
    fields[name] = relabelled(fields[name], BINARY_FORM + 1)
    with pytest.raises(IncompatibleStateError, match="tenant is of form 3 and this version reads 2: run the version"):
        partition_from_fields(0, 4, PARTITION.identity, fields, lambda name: RULES)


def test_a_later_form_of_a_tenants_alerts_is_refused() -> None:
    watch = Monitor.new(MonitorSettings(), 2, 2).encode()
    with pytest.raises(IncompatibleStateError, match="of format 2 and this version reads 1"):
        Monitor.decode(MonitorSettings(), relabelled(watch, 2))


def test_a_later_form_of_the_journal_is_refused_whatever_else_is_in_it() -> None:
    later = JOURNAL_FORM + 1
    for record in (journal(form=later).encode(), b'{"form":%d,"lineage":"ab","sequence":1}' % later):
        with pytest.raises(IncompatibleStateError, match=r"journal is of form 3 and this version reads 2: use a later"):
            JournalRecord.decode(record)


def test_a_later_form_of_the_changelog_is_refused_whatever_else_is_in_it() -> None:
    record = ChangelogRecord("ab", 1, 0, 1, "d", "p", False, b"").encode()
    for later in (relabelled(record, 2), msgspec.msgpack.encode([2, "ab", 1])):
        with pytest.raises(
            IncompatibleStateError, match=r"changelog is of form 2 and this version reads 1: use a later"
        ):
            ChangelogRecord.decode(later)


def test_an_entry_of_a_later_kind_is_refused() -> None:
    with pytest.raises(
        IncompatibleStateError, match="kind 09 is not known to this version: run the version that wrote it"
    ):
        decode_entry(b"\x09 something")


def test_a_later_form_of_a_learners_state_is_refused() -> None:
    magic, _, *rest = msgspec.msgpack.decode(encode_state(Learner(binary(), b"a seed of 16 byt").state))
    with pytest.raises(IncompatibleStateError, match="of format 99 and this version reads"):
        decode_state(msgspec.msgpack.encode([magic, 99, *rest]))


def test_commit_metadata_of_a_later_form_is_no_identity() -> None:
    assert Identity.parse("2:ab:7:d") is None


# What is damaged is told from what is later


@pytest.mark.parametrize("damage", [b"", b"\xc1", msgspec.msgpack.encode([BINARY_FORM, 5]), msgspec.msgpack.encode(7)])
def test_a_damaged_field_is_refused_and_does_not_crash(damage: bytes) -> None:
    fields = stored_fields()
    own = fields_by_tenant(fields)[TENANT.number]
    own[b"t" + TENANT.number.to_bytes(2, "big")] = damage
    with pytest.raises(IncompatibleStateError):
        Tenant.from_fields(TENANT.number, own, lambda name: RULES)
    with pytest.raises(IncompatibleStateError):
        stored_partitions({**fields, HEAD: damage})


def test_a_state_without_its_head_is_refused_and_does_not_crash() -> None:
    fields = stored_fields()
    del fields[HEAD]
    with pytest.raises(IncompatibleStateError, match="no head that can be read"):
        stored_partitions(fields)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 30, 300])
def test_random_bytes_are_foreign_records_and_nothing_else(size: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(3_000):
        data = rng.bytes(size)
        for kind in (JournalRecord, ChangelogRecord):
            with pytest.raises(IncompatibleStateError):
                kind.decode(data)
    with pytest.raises(ForeignRecordError):
        ChangelogRecord.decode(b"\x93\x01\xa2\xff\xfe\x01")
