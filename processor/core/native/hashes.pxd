"""BLAKE2b for the other modules here."""

from libc.stdint cimport uint8_t


cdef extern from "blake2b.h" nogil:
    ctypedef struct blake2b_state:
        pass

    ctypedef struct blake2b_text:
        const blake2b_state *begun
        const uint8_t *piece[4]
        size_t length[4]
        uint8_t *digest

    void blake2b_begin(blake2b_state *state, int size, const uint8_t *key, size_t length)
    void blake2b_all(blake2b_text *texts, size_t count, size_t size)


cdef class Hashing:
    """Texts that are to be hashed together. What they point to must stay until ``digests``."""

    cdef blake2b_text *texts
    cdef Py_ssize_t count, room, size

    cdef blake2b_text *add(self, const blake2b_state *begun) except NULL
    cdef bytes digests(self)


cdef size_t packed_length(uint8_t *out, size_t length) noexcept nogil
