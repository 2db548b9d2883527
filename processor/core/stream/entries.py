"""What the store remembers of one decision, in a few bytes.

An entry is born when a request is decided (pending) or a label comes before its request (parked). It becomes
labelled or expired, stays for the duplicate horizon, and is deleted when the slot it waits in comes up. An entry
waits in exactly one slot at a time, so the slots are a complete index of what there is.

Groups, experts, labels and policies are written as numbers in the order in which the tenant met them, which never
changes. A label is written as its number plus one; 0 is "nobody said anything".
"""

from __future__ import annotations

import struct
from hashlib import blake2b

import msgspec

from processor.core.errors import IncompatibleStateError

from .writes import ID_BYTES

LABELLED, EXPIRED, PARKED, PENDING, PENDING_WEIGHTED = 2, 3, 4, 6, 7
SETTLED = frozenset({LABELLED, EXPIRED})
LAST_SECOND = 0xFFFFFFFF

_BYTES = [bytes([number]) for number in range(256)]
_PENDING = struct.Struct(">BHIIIIBBBB")
_PROPENSITY = struct.Struct(">I")
_TWO_SLOTS = struct.Struct(">II")
_SETTLED = struct.Struct(">BHIIB")
_PARKED = struct.Struct(">BHIqqB")


def head_of_ids(tenant: str) -> bytes:
    """What is hashed before the decision's own id: the tenant is part of an entry's, so that tenants cannot collide."""
    name = tenant.encode()
    return struct.pack(">I", len(name)) + name


def entry_id(tenant: str, decision_id: str) -> bytes:
    """The id of one entry, 16 bytes."""
    return blake2b(head_of_ids(tenant) + decision_id.encode(), digest_size=ID_BYTES).digest()


class Pending(msgspec.Struct, frozen=True, gc=False):
    """A decision that waits for its label."""

    tenant: int
    content: int
    """hash of the request, to tell a repetition from a conflict"""
    at: int
    """when it was asked for, in seconds"""
    due: int
    """slot in which it expires"""
    remove: int
    """slot after which a repetition is no longer recognised"""
    propensity: int | None
    """probability of the positive label out of 2³², less one; None where labels come for every decision"""
    group: int
    kinds: int
    """labels the tenant knew, the base of the digits below"""
    decided: tuple[int, ...]
    """what each policy decided, label number + 1 or 0"""
    predictions: tuple[int, ...]
    """what each expert said, label number + 1 or 0; experts met later are missing"""

    def encode(self) -> bytes:
        digits = 0
        base = self.kinds + 1
        for digit in reversed((*self.decided, *self.predictions)):
            digits = digits * base + digit
        weighted = self.propensity is not None
        head = _PENDING.pack(
            PENDING_WEIGHTED if weighted else PENDING,
            self.tenant,
            self.content,
            self.at,
            self.due,
            self.remove,
            self.group,
            self.kinds,
            len(self.decided),
            len(self.predictions),
        )
        propensity = b"" if self.propensity is None else _PROPENSITY.pack(self.propensity)
        return head + propensity + digits.to_bytes((digits.bit_length() + 7) // 8, "big")


class Settled(msgspec.Struct, frozen=True, gc=False):
    """A decision whose label has come (``label`` is its number) or never came (None)."""

    tenant: int
    content: int
    remove: int
    label: int | None

    @staticmethod
    def labelled(pending: bytes, label: int) -> bytes:
        """The entry of a pending decision once its label has come: the same tenant, content and end.

        >>> pending = Pending(1, 2, 3, 4, 5, None, 0, 2, (1,), (1,))
        >>> decode_entry(Settled.labelled(pending.encode(), 1))
        Settled(tenant=1, content=2, remove=5, label=1)
        """
        return b"\x02" + pending[1:7] + pending[15:19] + _BYTES[label]

    @staticmethod
    def expired(pending: bytes) -> bytes:
        """The entry of a pending decision whose label never came.

        >>> pending = Pending(1, 2, 3, 4, 5, None, 0, 2, (1,), (1,))
        >>> decode_entry(Settled.expired(pending.encode()))
        Settled(tenant=1, content=2, remove=5, label=None)
        """
        return b"\x03" + pending[1:7] + pending[15:19] + b"\x00"

    def encode(self) -> bytes:
        state = EXPIRED if self.label is None else LABELLED
        return _SETTLED.pack(state, self.tenant, self.content, self.remove, self.label or 0)


class Parked(msgspec.Struct, frozen=True, gc=False):
    """A label that came before its request, with the record it came in."""

    tenant: int
    remove: int
    timestamp: int
    offset: int
    label: int
    payload: bytes

    def encode(self) -> bytes:
        return _PARKED.pack(PARKED, self.tenant, self.remove, self.timestamp, self.offset, self.label) + self.payload


MOST_PARKED = 0xFFFF - _PARKED.size
"""Bytes of a label that is to wait for its request: the length of an entry is written in two."""

Entry = Pending | Settled | Parked


def content_of(data: bytes) -> bytes:
    """The hash of the request behind the bytes of a decision, pending or settled.

    >>> content_of(Settled(1, 2, 3, None).encode()).hex()
    '00000002'
    """
    return data[3:7]


def pending_slots(data: bytes) -> tuple[int, int]:
    """When a pending decision expires, and after which slot it is no longer needed.

    >>> pending_slots(Pending(1, 2, 3, 4, 5, None, 0, 2, (1,), (1,)).encode())
    (4, 5)
    """
    due, remove = _TWO_SLOTS.unpack_from(data, 11)
    return due, remove


def settled_slot(data: bytes) -> int:
    """After which slot a settled decision is no longer needed.

    >>> settled_slot(Settled(1, 2, 3, None).encode())
    3
    """
    return int.from_bytes(data[7:11], "big")


def decode_parked(data: bytes) -> Parked:
    """The label behind the bytes of one that is parked."""
    _, tenant, remove, timestamp, offset, label = _PARKED.unpack_from(data)
    return Parked(tenant, remove, timestamp, offset, label, data[_PARKED.size :])


def decode_entry(data: bytes) -> Entry:
    """The entry behind its bytes."""
    match data[:1]:
        case b"\x06" | b"\x07":
            state, tenant, content, at, due, remove, group, kinds, policies, experts = _PENDING.unpack_from(data)
            start, propensity = _PENDING.size, None
            if state == PENDING_WEIGHTED:
                (propensity,) = _PROPENSITY.unpack_from(data, start)
                start += _PROPENSITY.size
            digits = _digits(int.from_bytes(data[start:], "big"), kinds + 1, policies + experts)
            decided, predictions = digits[:policies], digits[policies:]
            return Pending(tenant, content, at, due, remove, propensity, group, kinds, decided, predictions)
        case b"\x02" | b"\x03":
            state, tenant, content, remove, label = _SETTLED.unpack(data)
            return Settled(tenant, content, remove, label if state == LABELLED else None)
        case b"\x04":
            return decode_parked(data)
    raise IncompatibleStateError(
        f"an entry of kind {data[:1].hex() or 'nothing'} is not known to this version: run the version that wrote it"
    )


def _digits(number: int, base: int, count: int) -> tuple[int, ...]:
    digits = []
    for _ in range(count):
        number, digit = divmod(number, base)
        digits.append(digit)
    return tuple(digits)
