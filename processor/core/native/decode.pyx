"""Records become events: those that are written plainly, which nearly all are.

Whatever is not plain (an escape, a letter beyond ASCII, a number with an exponent, a field that comes twice, anything at
a limit) is left to ``decode_request`` and ``decode_feedback``, so nothing is ever refused here.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from msgspec import DecodeError

from processor.core.native.hashes cimport Hashing, blake2b_begin, blake2b_state, blake2b_text

cdef enum:
    ID_BYTES = 16
    DEEPEST = 32

ctypedef const uint8_t *Text

cdef uint8_t PLAIN[256]
cdef int _byte
for _byte in range(256):
    PLAIN[_byte] = 0x20 <= _byte < 0x7F and _byte != c'"' and _byte != c"\\"


cdef struct Span:
    Py_ssize_t start
    Py_ssize_t end


cdef inline Py_ssize_t _spaces(Text text, Py_ssize_t at) noexcept nogil:
    """The next place that is no white space. Python ends bytes with a zero, so there always is one."""
    while text[at] == c" " or text[at] == c"\n" or text[at] == c"\r" or text[at] == c"\t":
        at += 1
    return at


cdef inline Py_ssize_t _string(Text text, Py_ssize_t at) noexcept nogil:
    """The end of the plain string that begins here, or −1. The zero at the end of all is not plain."""
    if text[at] != c'"':
        return -1
    at += 1
    while PLAIN[text[at]]:
        at += 1
    return at + 1 if text[at] == c'"' else -1


cdef Py_ssize_t _digits(Text text, Py_ssize_t at) noexcept nogil:
    """The end of one to fifteen digits, or −1."""
    cdef Py_ssize_t start = at
    while c"0" <= text[at] <= c"9":
        at += 1
    return at if 0 < at - start <= 15 else -1


cdef Py_ssize_t _number(Text text, Py_ssize_t at) noexcept nogil:
    if text[at] == c"-":
        at += 1
    if text[at] == c"0":
        at += 1
    else:
        at = _digits(text, at)
        if at < 0:
            return -1
    if text[at] == c".":
        at = _digits(text, at + 1)
    return at


cdef Py_ssize_t _word(Text text, Py_ssize_t at, const char *word) noexcept nogil:
    """The end of this word, or −1 if another is here."""
    cdef Py_ssize_t i = 0
    while word[i]:
        if text[at + i] != <uint8_t>word[i]:
            return -1
        i += 1
    return at + i


cdef Py_ssize_t _value(Text text, Py_ssize_t at, int deepest) noexcept nogil:
    """The end of the plain JSON value that begins here, or −1. It has at most so many levels."""
    cdef uint8_t first = text[at], last
    if first == c'"':
        return _string(text, at)
    if first == c"{" or first == c"[":
        if deepest == 0:
            return -1
        last = c"}" if first == c"{" else c"]"
        at = _spaces(text, at + 1)
        if text[at] == last:
            return at + 1
        while True:
            if first == c"{":
                at = _string(text, at)
                if at < 0:
                    return -1
                at = _spaces(text, at)
                if text[at] != c":":
                    return -1
                at = _spaces(text, at + 1)
            at = _value(text, at, deepest - 1)
            if at < 0:
                return -1
            at = _spaces(text, at)
            if text[at] == last:
                return at + 1
            if text[at] != c",":
                return -1
            at = _spaces(text, at + 1)
    if first == c"t":
        return _word(text, at, "true")
    if first == c"f":
        return _word(text, at, "false")
    if first == c"n":
        return _word(text, at, "null")
    return _number(text, at)


cdef enum:
    TENANT
    DECISION
    GROUP
    PREDICTIONS
    CONTEXT
    LABEL
    FIELDS


cdef inline int _field(Text name, Py_ssize_t size) noexcept nogil:
    """Which field this is, or ``FIELDS`` for one that is nobody's."""
    if size == 6 and memcmp(name, "tenant", 6) == 0:
        return TENANT
    if size == 11 and memcmp(name, "decision_id", 11) == 0:
        return DECISION
    if size == 11 and memcmp(name, "predictions", 11) == 0:
        return PREDICTIONS
    if size == 5 and memcmp(name, "group", 5) == 0:
        return GROUP
    if size == 5 and memcmp(name, "label", 5) == 0:
        return LABEL
    if size == 7 and memcmp(name, "context", 7) == 0:
        return CONTEXT
    return FIELDS


cdef bint _fields(Text text, Py_ssize_t size, int deepest, Span *found) noexcept nogil:
    """Where the value of each field is; the start is 0 of those that are missing. False if the event is not plain."""
    cdef Py_ssize_t at = _spaces(text, 0), name, end
    cdef int field
    for field in range(FIELDS):
        found[field].start = 0
    if text[at] != c"{":
        return False
    at += 1
    while True:
        at = _spaces(text, at)
        name = at + 1
        at = _string(text, at)
        if at < 0:
            return False
        field = _field(text + name, at - 1 - name)
        at = _spaces(text, at)
        if text[at] != c":":
            return False
        at = _spaces(text, at + 1)
        end = _value(text, at, deepest - 1)
        if end < 0:
            return False
        if field != FIELDS:
            if found[field].start:
                return False
            found[field].start, found[field].end = at, end
        at = _spaces(text, end)
        if text[at] == c"}":
            return _spaces(text, at + 1) == size
        if text[at] != c",":
            return False
        at += 1


cdef inline bint _is_name(Text text, Span span, Py_ssize_t longest) noexcept nogil:
    """A string that is neither missing nor empty nor too long."""
    return span.start > 0 and text[span.start] == c'"' and 2 < span.end - span.start <= longest + 2


cdef inline str _inside(Text text, Span span):
    """A string without its quotes."""
    return PyUnicode_DecodeASCII(<const char *>text + span.start + 1, span.end - span.start - 2, NULL)


cdef inline bytes _cut(Text text, Span span):
    return PyBytes_FromStringAndSize(<const char *>text + span.start, span.end - span.start)


cdef class _Home:
    """A tenant whose records have the right key and are on the right partition."""

    cdef str tenant
    cdef bytes head
    """what the ids of its entries begin with, see ``entries.head_of_ids``"""

    def __cinit__(self, str tenant, bytes head):
        self.tenant, self.head = tenant, head


cdef class _Decoder:
    cdef object head_of, latest
    cdef Py_ssize_t longest_id, longest_name, largest
    cdef int deepest
    cdef dict homes
    cdef blake2b_state begun
    cdef Hashing ids

    def __init__(self, limits, latest, head_of):
        self.head_of, self.latest = head_of, latest
        self.longest_id, self.longest_name = limits.max_id_chars, limits.max_name_chars
        self.largest, self.deepest = limits.max_event_bytes, min(limits.max_depth, DEEPEST)
        self.homes = {}
        blake2b_begin(&self.begun, ID_BYTES, NULL, 0)

    cdef tuple requests(self, list raws, event, memory):
        self.ids = Hashing(len(raws), ID_BYTES)
        return self._with_ids(raws, [self._request(raw, raw.value, event, memory, memory.known) for raw in raws])

    cdef tuple feedback(self, list raws, event):
        self.ids = Hashing(len(raws), ID_BYTES)
        return self._with_ids(raws, [self._feedback(raw, raw.value, event) for raw in raws])

    cdef tuple _with_ids(self, list raws, list events):
        """Records, their events and the ids of their entries; and the records without an event."""
        cdef bytes digests = self.ids.digests()
        cdef const char *id = PyBytes_AS_STRING(digests)
        cdef list read = [], left = []
        cdef Py_ssize_t i
        for i in range(len(raws)):
            raw, event = raws[i], events[i]
            if event is None:
                left.append(raw)
                read.append(None)
            else:
                read.append((raw, event, PyBytes_FromStringAndSize(id, ID_BYTES)))
                id += ID_BYTES
        return read, left

    cdef object _request(self, raw, value, event, memory, dict advices):
        cdef Span found[FIELDS]
        cdef _Home home = self._taken_apart(raw, value, found)
        if home is None:
            return None
        cdef Text text = <Text>PyBytes_AS_STRING(value)
        if not _is_name(text, found[GROUP], self.longest_name) or not found[PREDICTIONS].start:
            return None
        group, said = _inside(text, found[GROUP]), _cut(text, found[PREDICTIONS])
        cdef PyObject *known = NULL
        if PyBytes_GET_SIZE(said) <= memory.longest:
            known = PyDict_GetItem(advices, (group, said))
        if known != NULL:
            advice = <object>known
        else:
            try:
                advice = memory.advice(home.tenant, group, said)
            except DecodeError:
                return None
            if advice is None:
                return None
        self._hash(home, text, found[DECISION])
        decision = _inside(text, found[DECISION])
        if found[CONTEXT].start:
            return event(home.tenant, decision, advice, _cut(text, found[CONTEXT]))
        return event(home.tenant, decision, advice)

    cdef object _feedback(self, raw, value, event):
        cdef Span found[FIELDS]
        cdef _Home home = self._taken_apart(raw, value, found)
        if home is None:
            return None
        cdef Text text = <Text>PyBytes_AS_STRING(value)
        label = self._label(text, found[LABEL])
        if label is None:
            return None
        self._hash(home, text, found[DECISION])
        return event(home.tenant, _inside(text, found[DECISION]), label)

    cdef int _hash(self, _Home home, Text text, Span decision) except -1:
        """Have the id of an entry worked out with the others. Homes and records stay until then."""
        cdef blake2b_text *one = self.ids.add(&self.begun)
        one.piece[0], one.length[0] = <Text>PyBytes_AS_STRING(home.head), PyBytes_GET_SIZE(home.head)
        one.piece[1], one.length[1] = text + decision.start + 1, decision.end - decision.start - 2
        return 0

    cdef _Home _taken_apart(self, raw, value, Span *found):
        """Whose record this is, and where its fields are. None if that is not plain to see."""
        if value.__class__ is not bytes or raw.refused is not None or raw.timestamp > self.latest:
            return None
        cdef Text text = <Text>PyBytes_AS_STRING(value)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
        if (
            size > self.largest
            or not _fields(text, size, self.deepest, found)
            or not _is_name(text, found[TENANT], self.longest_name)
            or not _is_name(text, found[DECISION], self.longest_id)
        ):
            return None
        return self._home(raw.key, text, found[TENANT])

    cdef _Home _home(self, key, Text text, Span tenant):
        """That of a tenant; None if the record should not be here, which the reference says better."""
        cdef Py_ssize_t size = tenant.end - tenant.start - 2
        cdef PyObject *known
        cdef _Home home
        if (
            key.__class__ is not bytes
            or PyBytes_GET_SIZE(key) != size
            or memcmp(PyBytes_AS_STRING(key), text + tenant.start + 1, size)
        ):
            return None
        known = PyDict_GetItem(self.homes, key)
        if known != NULL:
            return <_Home>known
        name = _inside(text, tenant)
        head = self.head_of(key, name)
        if head is None:
            return None
        home = self.homes[key] = _Home(name, head)
        return home

    cdef str _label(self, Text text, Span span):
        if _is_name(text, span, self.longest_name):
            return _inside(text, span)
        if span.start and text[span.start] == c"t":
            return "true"
        if span.start and text[span.start] == c"f":
            return "false"
        return None


def decode_plain(list requests, list feedback, limits, latest, head_of, memory, tuple events):
    """See ``reference.decode_plain``."""
    cdef _Decoder decoder = _Decoder(limits, latest, head_of)
    return decoder.requests(requests, events[0], memory), decoder.feedback(feedback, events[1])


cdef Py_ssize_t _last(const char *text, Py_ssize_t end, bytes part):
    """Where the last occurrence of a part before this end begins, or −1."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(part), at = end - size
    cdef const char *wanted = PyBytes_AS_STRING(part)
    while at >= 0:
        if text[at] == wanted[0] and memcmp(text + at, wanted, size) == 0:
            return at
        at -= 1
    return -1


def put_together(bytes predictions, panel, list others, dict first, advice):
    """What was said, of pieces that are known, as advice of this class; see ``remembering``."""
    cdef const char *text = PyBytes_AS_STRING(predictions)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(predictions), at, start
    cdef PyObject *found
    cdef list pieces = []
    cdef bytes beginning
    cdef dict known
    for beginning, known in others:
        at = _last(text, end, beginning)
        if at < 0:
            return None
        start = at + PyBytes_GET_SIZE(beginning)
        found = PyDict_GetItem(known, PyBytes_FromStringAndSize(text + start, end - start))
        if found == NULL:
            return None
        pieces.append(<object>found)
        end = at
    found = PyDict_GetItem(first, PyBytes_FromStringAndSize(text, end))
    if found == NULL:
        return None
    labels = (<object>found).kinds
    for other in pieces:
        kinds = other.kinds
        if kinds is not labels and not kinds <= labels:
            labels |= kinds
    pieces.append(<object>found)
    pieces.reverse()
    return advice(panel, pieces, labels)
