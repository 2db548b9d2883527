"""The active-set method of the solver, for one problem. The reference is ``_active_set`` in ``learner.solver``, whose
answers are the same to the bit: every number comes from the same operations in the same order.

The lower triangle of a symmetric matrix is kept row by row as an upper one, so that what is worked on lies in one piece.
"""

from libc.math cimport INFINITY, isfinite, sqrt
from libc.stdlib cimport calloc, free as release


cdef void _gradient(const double *quadratic, const double *linear, const double *x, double *out, int size) noexcept nogil:
    """H x − h. What is 0 adds nothing."""
    cdef int i, k
    cdef bint first = True
    cdef double by
    cdef const double *row
    for i in range(size):
        out[i] = 0.0
    for k in range(size):
        if x[k] == 0.0:
            continue
        by, row = x[k], quadratic + <size_t> k * size
        if first:
            for i in range(size):
                out[i] = row[i] * by
            first = False
        else:
            for i in range(size):
                out[i] += row[i] * by
    for i in range(size):
        out[i] -= linear[i]


cdef inline void _divide(double *row, int start, int end, double by) noexcept nogil:
    cdef int i
    for i in range(start, end):
        row[i] = row[i] / by


cdef inline void _less_one(double *row, const double *a, int k, int end) noexcept nogil:
    cdef double by = a[k]
    cdef int i
    for i in range(k, end):
        row[i] -= a[i] * by


cdef inline void _less_four(
    double *row, const double *a, const double *b, const double *c, const double *d, int k, int end
) noexcept nogil:
    """Four columns at once: each number is read and written once, and lessened by the four in their order."""
    cdef double by_a = a[k], by_b = b[k], by_c = c[k], by_d = d[k], left
    cdef int i
    for i in range(k, end):
        left = row[i] - a[i] * by_a
        left = left - b[i] * by_b
        left = left - c[i] * by_c
        row[i] = left - d[i] * by_d


cdef bint _solve_positive_definite(double *work, double *solution, int size) noexcept nogil:
    """Cholesky; the right side is the last number of every row. False if rounding has left no positive pivot."""
    cdef int first, last, j, k, width = size + 1
    cdef double pivot
    for first in range(0, size, 4):
        last = min(first + 4, size)
        for j in range(first, last):
            for k in range(first, j):
                _less_one(work + <size_t> j * width, work + <size_t> k * width, j, width)
            pivot = work[<size_t> j * width + j]
            if not pivot > 0.0 or not isfinite(pivot):
                return False
            pivot = sqrt(pivot)
            work[<size_t> j * width + j] = pivot
            _divide(work + <size_t> j * width, j + 1, width, pivot)
        if last < size:
            for k in range(last, size):
                _less_four(
                    work + <size_t> k * width,
                    work + <size_t> first * width,
                    work + <size_t> (first + 1) * width,
                    work + <size_t> (first + 2) * width,
                    work + <size_t> (first + 3) * width,
                    k,
                    width,
                )
    for j in range(size - 1, -1, -1):
        solution[j] = work[<size_t> j * width + size] / work[<size_t> j * width + j]
        if not isfinite(solution[j]):
            return False
        for k in range(j):
            work[<size_t> k * width + size] -= work[<size_t> k * width + j] * solution[j]
    return True


cdef bint _minimise(
    const double *quadratic,
    const double *linear,
    double *x,
    bint *is_free,
    int groups,
    int choices,
    int most_steps,
    double tolerance,
    double *gradient,
    double *step,
    double *work,
    double *solution,
    int *used,
    int *base,
) noexcept nogil:
    """``_active_set_step`` until there is nothing to gain. The gradient after a step is the one before the next."""
    cdef int size = groups * choices, turn, g, i, k, m, count, blocking, entering, bi, bk
    cdef double total, room, least, length, gain, best
    cdef bint blocked
    _gradient(quadratic, linear, x, gradient, size)
    for turn in range(most_steps):
        count = 0
        for g in range(groups):
            base[g] = g * choices
            for i in range(g * choices, (g + 1) * choices):
                if x[i] > x[base[g]]:
                    base[g] = i
            for i in range(g * choices, (g + 1) * choices):
                if is_free[i] and i != base[g]:
                    used[count] = i
                    count += 1
        for m in range(count):
            k, bk = used[m], base[used[m] // choices]
            for i in range(m, count):
                bi = base[used[i] // choices]
                work[<size_t> m * (count + 1) + i] = (
                    quadratic[<size_t> k * size + used[i]] - quadratic[<size_t> bi * size + k]
                    - quadratic[<size_t> bk * size + used[i]] + quadratic[<size_t> bi * size + bk]
                )
            work[<size_t> m * (count + 1) + count] = gradient[bk] - gradient[k]
        if not _solve_positive_definite(work, solution, count):
            return False
        for i in range(size):
            step[i] = 0.0
        for m in range(count):
            step[used[m]] = solution[m]
        for g in range(groups):
            total = step[g * choices]
            for i in range(g * choices + 1, (g + 1) * choices):
                total += step[i]
            step[base[g]] = -total

        blocking, least = 0, INFINITY
        for i in range(size):
            if step[i] < 0.0:
                room = x[i] / -step[i]
                if room < least:
                    blocking, least = i, room
        length = min(least, 1.0)
        blocked = least < 1.0
        for i in range(size):
            total = x[i] + length * step[i]
            x[i] = total if total > 0.0 else 0.0
        if blocked:
            x[blocking], is_free[blocking] = 0.0, False

        _gradient(quadratic, linear, x, gradient, size)
        if blocked:
            continue
        entering, best = 0, tolerance
        for i in range(size):
            if not is_free[i]:
                gain = gradient[base[i // choices]] - gradient[i]
                if gain > best:
                    entering, best = i, gain
        if not best > tolerance:
            return True
        is_free[entering] = True
    return True


def active_set(
    const double[:, ::1] quadratic, const double[::1] linear, double[:, ::1] x, int most_steps, double tolerance
) -> bool:
    """Move x[g, m], a vertex, to the minimiser. False, with x left anywhere, if the arithmetic breaks down."""
    cdef int groups = x.shape[0], choices = x.shape[1], size = x.shape[0] * x.shape[1], i
    cdef double *at = &x[0, 0]
    cdef bint done
    # One piece of memory each for the numbers and for the indices.
    cdef double *numbers = <double *> calloc(<size_t> size * (size + 4), sizeof(double))
    cdef int *indices = <int *> calloc(<size_t> 3 * size, sizeof(int))
    if numbers == NULL or indices == NULL:
        release(numbers)
        release(indices)
        raise MemoryError
    cdef bint *is_free = <bint *> (indices + 2 * size)
    for i in range(size):
        is_free[i] = at[i] != 0.0
    with nogil:
        done = _minimise(
            &quadratic[0, 0], &linear[0], at, is_free, groups, choices, most_steps, tolerance,
            numbers, numbers + size, numbers + 3 * size, numbers + 2 * size, indices, indices + size,
        )
    release(numbers)
    release(indices)
    return done
