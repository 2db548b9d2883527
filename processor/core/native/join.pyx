"""Records find what belongs to them. See ``reference``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

cdef enum:
    # see ``stream.entries``
    LABELLED = 2
    PENDING = 6
    HEAD = 23
    SETTLED_BYTES = 12


cdef inline object _known(dict changed, before, bint is_dict, key):
    """An entry as it is now."""
    cdef PyObject *found = PyDict_GetItem(changed, key)
    if found != NULL and <object>found is not None:
        return <object>found
    if not is_dict:
        return before.get(key)
    found = PyDict_GetItem(<dict>before, key)
    return None if found == NULL else <object>found


cdef bytes _labelled(bytes pending, uint8_t label):
    """See ``entries.Settled.labelled``."""
    cdef bytes settled = PyBytes_FromStringAndSize(NULL, SETTLED_BYTES)
    cdef char *out = PyBytes_AS_STRING(settled)
    cdef const char *was = PyBytes_AS_STRING(pending)
    out[0] = LABELLED
    memcpy(out + 1, was + 1, 6)
    memcpy(out + 7, was + 15, 4)
    out[11] = <char>label
    return settled


def match(labels, dict changed, before, clock, dict joined, label):
    """Have labels join their decisions, in this order; gives those without one.

    ``label`` is for all that is not simply a further label of a tenant for a pending decision.
    """
    cdef bint is_dict = before.__class__ is dict
    cdef dict tenants = {}
    cdef list left = []
    cdef tuple each, known
    cdef PyObject *found
    for each in labels:
        raw, event, key = each
        stored = _known(changed, before, is_dict, key)
        if stored is None:
            left.append(each)
            continue
        tenant = event.tenant
        found = PyDict_GetItem(tenants, tenant)
        if found != NULL:
            known = <tuple>found
        elif tenant in joined:
            one = joined[tenant]
            known = tenants[tenant] = (dict(one.numbers), one.entries, one.labels, one.times)
        else:
            label(raw, event, key, stored, joined)
            continue
        found = PyDict_GetItem(<dict>known[0], event.label)
        if found == NULL or PyBytes_GET_SIZE(<bytes?>stored) < HEAD or PyBytes_AS_STRING(stored)[0] != PENDING:
            label(raw, event, key, stored, joined)
            continue
        timestamp = raw.timestamp
        (<list>known[1]).append(stored)
        (<list>known[2]).append(<object>found)
        (<list>known[3]).append(timestamp if timestamp >= 0 else clock)
        changed[key] = _labelled(stored, <object>found)
    return left


def first_look(chunk, dict changed, before):
    """Of requests with the ids of their entries: whether nothing is known of any and all differ; who was asked, and
    the different sets of labels that were predicted."""
    cdef bint is_dict = before.__class__ is dict, new = True
    cdef set panels = set(), labels = set(), keys = set()
    cdef tuple each
    cdef Py_ssize_t count = 0
    for each in chunk:
        key = each[2]
        if new and (PyDict_GetItem(changed, key) != NULL or _known(changed, before, is_dict, key)):
            new = False
        keys.add(key)
        advice = each[1].advice
        panels.add(advice.panel)
        labels.add(advice.labels)
        count += 1
    return new and len(keys) == count, panels, labels


def ids(list requests, list feedback):
    """The ids of the entries that records need, each once."""
    cdef dict found = {}
    cdef tuple each
    for each in requests:
        found[each[2]] = None
    for each in feedback:
        found[each[2]] = None
    return list(found)


def by_tenant(requests):
    """Records of each tenant, in their order."""
    cdef dict found = {}
    cdef tuple each
    cdef PyObject *known
    for each in requests:
        tenant = each[1].tenant
        known = PyDict_GetItem(found, tenant)
        if known == NULL:
            found[tenant] = [each]
        else:
            (<list>known).append(each)
    return found
