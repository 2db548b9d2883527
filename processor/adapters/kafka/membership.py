"""Reading ``Consumer.consumer_group_metadata()``.

confluent-kafka hands out librdkafka's serialised form (``rd_kafka_consumer_group_metadata_write``) as bytes and
takes the same bytes in ``send_offsets_to_transaction`` (seen in 2.16.1):

    "CGMDv2:"  generation (int32, native order)  group NUL  member NUL  is-null (1 byte)  [instance NUL]

There is no other way to the generation from Python. A version that changes the format fails here, loudly.
"""

from __future__ import annotations

import struct

from processor.ports.log import FencedError, Membership, OperatorActionRequiredError

_MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


def parsed(raw: object) -> Membership:
    """The membership inside the bytes.

    >>> raw = written(Membership(7, "worker-1-abc"), "payments", "worker-1")
    >>> membership = parsed(raw)
    >>> membership.generation, membership.member_id
    (7, 'worker-1-abc')
    """
    generation, _, member, _ = _fields(raw)
    return Membership(generation, member.decode(), raw)


def written(membership: Membership, group: str, instance: str) -> bytes:
    """The bytes for ``send_offsets_to_transaction``; the names are used if the membership does not know its own."""
    if membership.generation < 0 or not membership.member_id:
        # A classic group accepts such a commit from anybody, whoever owns the partitions.
        raise FencedError(f"not a member of the consumer group any more (generation {membership.generation})")
    named, suffix = group.encode(), b"\0" + instance.encode() + b"\0"
    if membership.raw is not None:
        _, named, _, suffix = _fields(membership.raw)
    head = _MAGIC + _GENERATION.pack(membership.generation)
    return head + named + b"\0" + membership.member_id.encode() + b"\0" + suffix


def _fields(raw: object) -> tuple[int, bytes, bytes, bytes]:
    """Generation, group, member, and the rest."""
    if not isinstance(raw, bytes) or not raw.startswith(_MAGIC):
        raise OperatorActionRequiredError(
            f"this version of confluent-kafka describes a group member in an unknown form ({raw!r:.40}). "
            "Remedy: install a version that G-FORCE was tested with"
        )
    (generation,) = _GENERATION.unpack_from(raw, len(_MAGIC))
    group, member, suffix = raw[len(_MAGIC) + _GENERATION.size :].split(b"\0", 2)
    return generation, group, member, suffix
