"""Digests of many short texts. See ``reference``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

cdef enum:
    RECORD_HASH = 8
    HEAD = 32
    FEW = 100
    # MessagePack:
    NIL = 0xC0
    PAIR = 0x92
    BIN8 = 0xC4
    UINT8 = 0xCC
    INT8 = 0xD0


cdef class Hashing:
    def __cinit__(self, Py_ssize_t room, Py_ssize_t size):
        """At most so many texts, for digests of so many bytes."""
        self.texts = <blake2b_text *>PyMem_Malloc(max(room, 1) * sizeof(blake2b_text))
        if self.texts == NULL:
            raise MemoryError
        self.count, self.room, self.size = 0, room, size

    def __dealloc__(self):
        PyMem_Free(self.texts)

    cdef blake2b_text *add(self, const blake2b_state *begun) except NULL:
        """One more text, that begins like this and has no pieces yet."""
        if self.count == self.room:
            raise IndexError("there is no room for another text")
        cdef blake2b_text *text = self.texts + self.count
        memset(text, 0, sizeof(blake2b_text))
        text.begun = begun
        self.count += 1
        return text

    cdef bytes digests(self):
        """Those of all texts, one after the other."""
        cdef bytes found = PyBytes_FromStringAndSize(NULL, self.count * self.size)
        cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(found)
        cdef Py_ssize_t i
        for i in range(self.count):
            self.texts[i].digest = out + i * self.size
        if self.count < FEW:
            blake2b_all(self.texts, self.count, self.size)
        else:
            with nogil:  # another thread may go on
                blake2b_all(self.texts, self.count, self.size)
        return found


cdef size_t _big_endian(uint8_t *out, uint64_t number, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        out[i] = <uint8_t>(number >> 8 * (size - 1 - i))
    return size


cdef size_t packed_length(uint8_t *out, size_t length) noexcept nogil:
    """How MessagePack begins bytes of this length: in up to five bytes."""
    cdef int wide = 0 if length < 1 << 8 else 1 if length < 1 << 16 else 2
    out[0] = <uint8_t>(BIN8 + wide)
    return 1 + _big_endian(out + 1, length, 1 << wide)


cdef size_t _packed_number(uint8_t *out, int64_t number) noexcept nogil:
    """A number as MessagePack has it: in as few bytes as it needs, nine at most."""
    cdef int wide
    cdef uint64_t size
    if -32 <= number < 128:
        out[0] = <uint8_t>number
        return 1
    if number >= 0:
        size = <uint64_t>number
        wide = 0 if size < 1 << 8 else 1 if size < 1 << 16 else 2 if size >> 32 == 0 else 3
        out[0] = <uint8_t>(UINT8 + wide)
    else:
        wide = 0 if number >= -(1 << 7) else 1 if number >= -(1 << 15) else 2 if number >= -(<int64_t>1 << 31) else 3
        out[0] = <uint8_t>(INT8 + wide)
    return 1 + _big_endian(out + 1, <uint64_t>number, 1 << wide)


cdef class _Records:
    """Records that are to be hashed: [key, timestamp] as MessagePack, and the value with a mark before it."""

    cdef Hashing hashing
    cdef bytes heads
    cdef uint8_t *head
    cdef blake2b_state begun

    def __cinit__(self, Py_ssize_t count):
        self.hashing = Hashing(count, RECORD_HASH)
        self.heads = PyBytes_FromStringAndSize(NULL, count * HEAD)
        self.head = <uint8_t *>PyBytes_AS_STRING(self.heads)
        blake2b_begin(&self.begun, RECORD_HASH, NULL, 0)

    cdef int add(self, key, value, int64_t timestamp) except -1:
        """Key and value must stay until the end."""
        cdef uint8_t *head = self.head
        cdef blake2b_text *text = self.hashing.add(&self.begun)
        cdef size_t size = 2
        head[0], head[1] = PAIR, NIL
        if key is not None:
            size = 1 + packed_length(head + 1, PyBytes_GET_SIZE(<bytes?>key))
            text.piece[1], text.length[1] = <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
        text.piece[0], text.length[0] = head, size
        text.piece[2] = head + size
        size += _packed_number(head + size, timestamp)
        head[size] = value is not None
        text.length[2] = head + size + 1 - text.piece[2]
        if value is not None:
            text.piece[3], text.length[3] = <const uint8_t *>PyBytes_AS_STRING(<bytes?>value), PyBytes_GET_SIZE(value)
        self.head += HEAD
        return 0


def record_hashes(list keys, list values, list timestamps):
    """See ``reference.record_hashes``."""
    cdef _Records records = _Records(len(keys))
    cdef Py_ssize_t i
    if not len(keys) == len(values) == len(timestamps):
        raise ValueError("the columns of records are of different lengths")
    for i in range(len(keys)):
        records.add(keys[i], values[i], timestamps[i])
    return records.hashing.digests()


def hashes_as_received(list raws):
    """See ``reference.hashes_as_received``."""
    cdef _Records records = _Records(len(raws))
    for raw in raws:
        value = raw.original
        records.add(raw.key, raw.value if value is None else value, raw.timestamp)
    return records.hashing.digests()


def digests(list keyed, int size):
    """Digests of texts, one after the other: ``keyed`` are pairs of a key and its texts."""
    cdef Py_ssize_t i = 0, length, count = sum([len(texts) for _, texts in keyed])
    cdef Hashing hashing = Hashing(count, size)
    cdef bytes states = PyBytes_FromStringAndSize(NULL, len(keyed) * sizeof(blake2b_state))
    cdef blake2b_state *begun = <blake2b_state *>PyBytes_AS_STRING(states)
    cdef blake2b_text *text
    cdef bytes key
    for key, texts in keyed:
        blake2b_begin(begun, size, <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        for each in texts:
            text = hashing.add(begun)
            text.piece[0] = <const uint8_t *>PyUnicode_AsUTF8AndSize(<str?>each, &length)
            text.length[0] = length
        begun += 1
    return hashing.digests()


def contents(list texts, list contexts, int size):
    """Digests of texts, each with its context as MessagePack."""
    cdef Py_ssize_t i, count = len(texts)
    cdef Hashing hashing = Hashing(count, size)
    cdef bytes heads = PyBytes_FromStringAndSize(NULL, count * HEAD)
    cdef uint8_t *head = <uint8_t *>PyBytes_AS_STRING(heads)
    cdef blake2b_state begun
    cdef blake2b_text *text
    blake2b_begin(&begun, size, NULL, 0)
    for i in range(count):
        said, context = <bytes?>texts[i], <bytes?>contexts[i]
        text = hashing.add(&begun)
        text.piece[0], text.length[0] = <const uint8_t *>PyBytes_AS_STRING(said), PyBytes_GET_SIZE(said)
        text.piece[1], text.length[1] = head, packed_length(head, PyBytes_GET_SIZE(context))
        text.piece[2], text.length[2] = <const uint8_t *>PyBytes_AS_STRING(context), PyBytes_GET_SIZE(context)
        head += HEAD
    return hashing.digests()
