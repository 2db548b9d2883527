"""Bets on labels as they come. The reference is ``SequentialTest.bet``, whose figures are the same to the bit: the same
operations on the same numbers, in the same order."""

from libc.stdint cimport int64_t

cdef enum:
    RATES = 5
    WIDTH = 10
    MARK = 6
    ONSET_UP = 2
    ONSET_DOWN = 7

cdef double LARGEST = 1e300


cdef inline void _factors(double up, double down, double *by) noexcept nogil:
    by[0] = 1.0 + 0.05 * up
    by[1] = 1.0 + 0.1 * up
    by[2] = 1.0 + 0.2 * up
    by[3] = 1.0 + 0.4 * up
    by[4] = 1.0 + 0.7 * up
    by[5] = 1.0 + 0.05 * down
    by[6] = 1.0 + 0.1 * down
    by[7] = 1.0 + 0.2 * down
    by[8] = 1.0 + 0.4 * down
    by[9] = 1.0 + 0.7 * down


cdef inline double _grown(double *wealths, double stake, const double *by) noexcept nogil:
    """Put in a stake and bet; the mean afterwards."""
    cdef double total
    cdef int i
    for i in range(WIDTH):
        wealths[i] = (wealths[i] + stake) * by[i]
    total = wealths[0]
    for i in range(1, WIDTH):
        total += wealths[i]
    return total / 10


cdef inline int _read(double *out, tuple wealths) except -1:
    cdef int i
    for i in range(WIDTH):
        out[i] = wealths[i]
    return 0


cdef inline tuple _tuple(const double *wealths):
    return tuple([wealths[i] for i in range(WIDTH)])


cdef inline int _read_mark(int64_t *out, tuple mark) except -1:
    cdef int i
    for i in range(MARK):
        out[i] = mark[i]
    return 0


cdef inline tuple _mark(const int64_t *mark):
    return (mark[0], mark[1], mark[2], mark[3], mark[4], mark[5])


cdef class Bets:
    """A stream while labels come: its numbers, taken out of it and put back."""

    cdef readonly object stream
    cdef int64_t n_a, err_a, n_b, err_b, tolerance_from
    cdef int64_t seen[MARK]
    cdef double gap, limit, level
    cdef bint tolerance_is_raised, drift_is_raised
    cdef double tolerance_wealth, drift_wealth
    cdef double tolerance[WIDTH]
    cdef double drift[WIDTH]
    cdef double recovery[WIDTH]
    cdef double above, below
    cdef int64_t from_above[MARK]
    cdef int64_t from_below[MARK]

    def __init__(self, stream):
        self.stream = stream
        self.take_out()

    cdef int take_out(self) except -1:
        stream = self.stream
        self.n_a, self.err_a, self.n_b, self.err_b = stream.n_a, stream.err_a, stream.n_b, stream.err_b
        _read_mark(self.seen, stream.seen)
        self.gap, self.limit, self.level = stream._gap, stream.limit, stream.level
        self.tolerance_is_raised = stream.tolerance_raised is not None
        self.drift_is_raised = stream.drift_raised is not None
        self.tolerance_from = stream._tolerance_from[0]
        self.tolerance_wealth, self.drift_wealth = stream.tolerance_wealth, stream.drift_wealth
        _read(self.tolerance, stream.tolerance)
        _read(self.drift, stream.drift)
        _read(self.recovery, stream.recovery)
        self.above, self.below, from_above, from_below = stream._onset
        _read_mark(self.from_above, from_above)
        _read_mark(self.from_below, from_below)
        return 0

    cdef int put_back(self) except -1:
        stream = self.stream
        stream.n_a, stream.err_a, stream.n_b, stream.err_b = self.n_a, self.err_a, self.n_b, self.err_b
        stream.seen = _mark(self.seen)
        stream.tolerance, stream.tolerance_wealth = _tuple(self.tolerance), self.tolerance_wealth
        stream.drift, stream.drift_wealth = _tuple(self.drift), self.drift_wealth
        stream.recovery = _tuple(self.recovery)
        stream._onset = (self.above, self.below, _mark(self.from_above), _mark(self.from_below))
        return 0

    cdef bint take(self, bint of_b, bint wrong, int64_t at) noexcept:
        """Count a label; True if it completed a pair that may change an alert."""
        if of_b:
            self.n_b += 1
            self.err_b += wrong
        else:
            self.n_a += 1
            self.err_a += wrong
        return self.n_a > 0 and self.n_b > 0 and self._bet(at)

    cdef bint _bet(self, int64_t at) noexcept:
        cdef double x = <double>self.err_a / <double>self.n_a - <double>self.err_b / <double>self.n_b
        cdef double spread = 1.0 + self.gap
        cdef double up = (x - self.gap) / spread, down = (-x - self.gap) / spread
        cdef double by[WIDTH]
        cdef double wealth
        cdef int64_t n
        cdef bint reached = False
        cdef int i
        self.seen[0] += 1
        self.seen[1] += self.n_a
        self.seen[2] += self.err_a
        self.seen[3] += self.n_b
        self.seen[4] += self.err_b
        self.seen[5] = at
        self.n_a = self.err_a = self.n_b = self.err_b = 0
        _factors(up, down, by)
        if not self.tolerance_is_raised:
            n = self.seen[0] - self.tolerance_from
            wealth = _grown(self.tolerance, 1.0 / <double>(n * (n + 1)), by)
            self.tolerance_wealth = wealth + 1.0 / <double>(n + 1)
            reached = self.tolerance_wealth >= self.limit
        # A difference most likely began where the product of the bets since then is largest.
        self.above *= by[ONSET_UP]
        self.below *= by[ONSET_DOWN]
        if self.above <= 1.0:
            self.above = 1.0
            for i in range(MARK):
                self.from_above[i] = self.seen[i]
        elif self.above > LARGEST:
            self.above = LARGEST
        if self.below <= 1.0:
            self.below = 1.0
            for i in range(MARK):
                self.from_below[i] = self.seen[i]
        elif self.below > LARGEST:
            self.below = LARGEST
        if not self.drift_is_raised:
            self.drift_wealth = _grown(self.drift, 1.0, by)
            return reached or self.drift_wealth >= self.level
        _factors(-up, -down, by)
        _grown(self.recovery, 1.0, by)
        for i in range(WIDTH):
            if self.recovery[i] > LARGEST:
                self.recovery[i] = LARGEST
        return True


def observe(labels, dict counts, meet, judge):
    """See ``reference.observe``.

    ``counts``: labels by cell. ``meet`` is called for a cell that is not yet in ``tested``; cells all of whose tests
    have begun it puts there.
    """
    cdef dict tested = {}, taken_out = {}
    cdef object cell, mine
    cdef Bets bets
    cdef tuple each
    cdef int64_t at
    cdef bint wrong, of_b
    for each in labels:
        cell, wrong, at = (each[0], each[1]), each[2], each[3]
        mine = tested.get(cell)
        if mine is None:
            mine = [(_taken_out(stream, taken_out), of_b) for stream, of_b in meet(cell, at, tested)]
            if cell in tested:
                tested[cell] = mine
        else:
            counts[cell] += 1
        for bets, of_b in mine:
            if bets.take(of_b, wrong, at):
                bets.put_back()
                judge(bets.stream, at)
                bets.take_out()
    for bets in taken_out.values():
        bets.put_back()


cdef Bets _taken_out(stream, dict taken_out):
    """One for each stream, whichever of its two groups a label is from."""
    bets = taken_out.get(id(stream))
    if bets is None:
        bets = taken_out[id(stream)] = Bets(stream)
    return bets
