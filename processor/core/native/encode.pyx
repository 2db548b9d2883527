"""What a batch writes, put together. See ``reference``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem, PyDict_Next
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy, memset, strchr

from msgspec.json import Encoder

ENCODER = Encoder()
ONE = 1 << 32
"""See ``core.exact.ONE``."""

cdef enum:
    ID_BYTES = 16
    LONGEST_ENTRY = 0xFFFF
    BOXES = 1 << 11
    BOX_SHIFT = 64 - 11
    FEW = 40

cdef struct Entry:
    uint64_t first
    uint64_t second
    const char *id
    PyObject *value


cdef uint64_t _half(const char *id) noexcept nogil:
    """Eight bytes as a number, which has their order."""
    cdef uint64_t number = 0
    cdef int i
    for i in range(8):
        number = number << 8 | <uint8_t>id[i]
    return number


cdef inline bint _less(const Entry *a, const Entry *b) noexcept nogil:
    return a.first < b.first or (a.first == b.first and a.second < b.second)


cdef int _compared(const void *left, const void *right) noexcept nogil:
    cdef const Entry *a = <const Entry *>left
    cdef const Entry *b = <const Entry *>right
    return -1 if _less(a, b) else 1 if _less(b, a) else 0


cdef void _sort(Entry *entries, Py_ssize_t count) noexcept nogil:
    """A few by insertion. More are only in one box if somebody has searched for such ids."""
    cdef Entry one
    cdef Py_ssize_t i, j
    if count > FEW:
        qsort(entries, count, sizeof(Entry), _compared)
        return
    for i in range(1, count):
        one = entries[i]
        j = i
        while j > 0 and _less(&one, &entries[j - 1]):
            entries[j] = entries[j - 1]
            j -= 1
        entries[j] = one


cdef class _Sorted:
    """Ids in their order, each with a value. What they are of must not change meanwhile."""

    cdef Entry *entries
    cdef Entry *sorted
    cdef Py_ssize_t count

    def __cinit__(self, Py_ssize_t room):
        self.entries = <Entry *>PyMem_Malloc(max(room, 1) * 2 * sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError
        self.sorted = self.entries + room
        self.count = 0

    def __dealloc__(self):
        PyMem_Free(self.entries)

    cdef int add(self, object id, PyObject *value) except -1:
        if PyBytes_GET_SIZE(<bytes?>id) != ID_BYTES:
            raise ValueError(f"the id of an entry has {PyBytes_GET_SIZE(id)} bytes, not {ID_BYTES}")
        cdef Entry *entry = self.entries + self.count
        entry.id, entry.value = PyBytes_AS_STRING(id), value
        entry.first, entry.second = _half(entry.id), _half(entry.id + 8)
        self.count += 1
        return 0

    cdef void sort(self) noexcept:
        """Into boxes by their first bits, then each box: ids are digests, so it has few."""
        cdef Py_ssize_t ends[BOXES + 1]
        cdef Py_ssize_t i, box
        if self.count <= FEW:
            memcpy(self.sorted, self.entries, self.count * sizeof(Entry))
            _sort(self.sorted, self.count)
            return
        memset(ends, 0, sizeof(ends))
        for i in range(self.count):
            ends[(self.entries[i].first >> BOX_SHIFT) + 1] += 1
        for box in range(BOXES):
            ends[box + 1] += ends[box]
        for i in range(self.count):
            box = self.entries[i].first >> BOX_SHIFT
            self.sorted[ends[box]] = self.entries[i]
            ends[box] += 1
        box = 0
        for i in range(BOXES):  # each has been moved to where its box ends
            _sort(self.sorted + box, ends[i] - box)
            box = ends[i]


def joined_ids(list ids):
    """Ids in their order, one after the other."""
    cdef _Sorted found = _Sorted(len(ids))
    cdef Py_ssize_t i
    for i in range(len(ids)):
        found.add(ids[i], NULL)
    found.sort()
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, found.count * ID_BYTES)
    cdef char *out = PyBytes_AS_STRING(joined)
    for i in range(found.count):
        memcpy(out + i * ID_BYTES, found.sorted[i].id, ID_BYTES)
    return joined


def packed_entries(dict entries):
    """Entries to be set, or deleted where there is no value, in the order of their ids; see ``stream.writes``."""
    cdef _Sorted found = _Sorted(len(entries))
    cdef PyObject *id
    cdef PyObject *value
    cdef Py_ssize_t at = 0, size = 0, length, i
    while PyDict_Next(entries, &at, &id, &value):
        found.add(<object>id, value)
        size += 1 + ID_BYTES
        if <object>value is not None:
            length = PyBytes_GET_SIZE(<bytes?><object>value)
            if length > LONGEST_ENTRY:
                raise ValueError(f"an entry of {length} bytes: at most {LONGEST_ENTRY} can be written")
            size += 2 + length
    found.sort()
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, size)
    cdef char *out = PyBytes_AS_STRING(packed)
    for i in range(found.count):
        value = found.sorted[i].value
        out[0] = c"e" if <object>value is None else c"E"
        memcpy(out + 1, found.sorted[i].id, ID_BYTES)
        out += 1 + ID_BYTES
        if <object>value is not None:
            length = PyBytes_GET_SIZE(<object>value)
            out[0], out[1] = <char>(length >> 8), <char>(length & 0xFF)
            memcpy(out + 2, PyBytes_AS_STRING(<object>value), length)
            out += 2 + length
    return packed


def columns(list cases):
    """Of requests to be decided, each with its record and the id of its entry: records, ids of entries, ids of
    decisions, advice and contexts."""
    cdef list raws = [], keys = [], ids = [], advice = [], contexts = []
    cdef tuple case
    for case in cases:
        event = case[1]
        raws.append(case[0])
        keys.append(case[2])
        ids.append(event.decision_id)
        advice.append(event.advice)
        contexts.append(event.context)
    return raws, keys, ids, advice, contexts


def decisions_in_order(requests, dict values, decision):
    """Decisions of this class in the order of their requests; ``values`` are by the offsets of these."""
    cdef list found = []
    cdef tuple each
    cdef PyObject *value
    for each in requests:
        raw = each[0]
        value = PyDict_GetItem(values, raw.offset)
        if value != NULL:
            found.append(decision(each[1].tenant, <object>value, raw.headers))
    return found


cdef class _Line:
    """A text that is put together, again and again in the same memory."""

    cdef char *text
    cdef Py_ssize_t size, room

    def __cinit__(self):
        self.room = 1 << 12
        self.text = <char *>PyMem_Malloc(self.room)
        if self.text == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.text)

    cdef int _want(self, Py_ssize_t more) except -1:
        cdef char *larger
        if self.size + more > self.room:
            larger = <char *>PyMem_Realloc(self.text, 2 * (self.size + more))
            if larger == NULL:
                raise MemoryError
            self.text, self.room = larger, 2 * (self.size + more)
        return 0

    cdef int add(self, const char *piece, Py_ssize_t size) except -1:
        self._want(size)
        memcpy(self.text + self.size, piece, size)
        self.size += size
        return 0

    cdef int put(self, bytes piece) except -1:
        return self.add(PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))

    cdef int name(self, str name) except -1:
        """As JSON. Most names are written as they are, between quotes."""
        cdef Py_ssize_t size, i
        cdef const char *text = PyUnicode_AsUTF8AndSize(name, &size)
        for i in range(size):
            if not 0x20 <= <uint8_t>text[i] < 0x7F or text[i] == c'"' or text[i] == c"\\":
                return self.put(ENCODER.encode(name))
        self.add('"', 1)
        self.add(text, size)
        return self.add('"', 1)

    cdef int number(self, uint64_t number) except -1:
        cdef char digits[20]
        cdef int first = 20
        while True:
            first -= 1
            digits[first] = <char>(c"0" + number % 10)
            number //= 10
            if number == 0:
                return self.add(digits + first, 20 - first)


def written_decisions(
    list writers, list ids, choices_made, probabilities, list contexts, list batches
):
    """See ``reference.written_decisions``. Each piece of JSON that decisions share is encoded once."""
    cdef const uint64_t[:, :] parts = probabilities
    cdef bytes fractions = ENCODER.encode_lines((probabilities / ONE).ravel().tolist())
    cdef const int64_t[:] group, label, expert, instance
    group, label, expert, instance = choices_made
    cdef _Line line = _Line()
    cdef list between, found = []
    cdef Py_ssize_t i, place, y, start, stop, kinds = parts.shape[1]
    cdef const char *fraction = PyBytes_AS_STRING(fractions)
    cdef const char *end
    sizes = {len(ids), len(group), len(label), len(expert), len(instance), parts.shape[0], len(contexts), len(batches)}
    if len(sizes) != 1 or any([not 0 <= start <= stop <= len(ids) for _, start, stop in writers]):
        raise ValueError("the columns of decisions are of different lengths")
    if fractions.count(b"\n") < len(ids) * kinds or any([len(writer.between) != 3 + 2 * kinds for writer, _, _ in writers]):
        raise ValueError("decisions of other labels")
    for writer, start, stop in writers:
        between, choices = writer.between, writer.choices
        for i in range(start, stop):
            line.size = 0
            line.put(between[0])
            line.name(ids[i])
            line.put(between[1])
            line.put(choices[group[i], label[i], expert[i], instance[i]])
            place = 2
            for y in range(kinds):
                line.put(between[place])
                end = strchr(fraction, c"\n")
                line.add(fraction, end - fraction)
                fraction = end + 1
                place += 1
            for y in range(kinds):
                line.put(between[place])
                line.number(parts[i, y])
                place += 1
            line.put(between[place])
            line.number(batches[i])
            if contexts[i]:
                line.add(',"context":', 11)
                line.put(contexts[i])
            line.add("}", 1)
            found.append(PyBytes_FromStringAndSize(line.text, line.size))
    return found
