"""One stream of the watching: the error rates of two groups on one true label, tested as the labels come.

Two tests bet against "the rates differ by at most ε" and are valid at any time, however often they are looked at.
Every figure is made of scalar ``+ − × ÷`` in a fixed order, so it is the same on every machine; ``sum`` is not used
on floats, because from Python 3.12 on it rounds differently.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Literal

import msgspec

from .alerts import Alert, Counts, Evidence, MonitorSettings

RATES = (0.05, 0.1, 0.2, 0.4, 0.7)
"""λ: the shares of the wealth that are bet. Small ones find small differences, large ones find large ones soon."""

ONSET_RATE = 0.2
"""λ of the estimate of when a difference began."""

LARGEST = 1e300
"""Wealth that nothing stops goes no further, so that it stays a finite number."""

_ONSET_UP, _ONSET_DOWN = RATES.index(ONSET_RATE), len(RATES) + RATES.index(ONSET_RATE)
"""Where ``factors`` has those of that λ."""

WIDTH = 2 * len(RATES)
Wealths = tuple[float, ...]
"""Those of the bets on "A errs more" by λ, then those on "B errs more"."""

START: Wealths = (0.0,) * WIDTH

_WEALTHS = struct.Struct(f"<{WIDTH}d")
_encode = msgspec.msgpack.Encoder().encode

Mark = tuple[int, int, int, int, int, int]
"""Where a stream was at some moment: pairs, labels and errors of A, labels and errors of B, time."""


def mean(wealths: Wealths) -> float:
    """From the first to the last, which no library chooses for us.

    >>> mean((1.0, 2.0, 6.0))
    3.0
    """
    total = 0.0
    for wealth in wealths:
        total += wealth
    return total / len(wealths)


def factors(up: float, down: float) -> Wealths:
    """What a bet multiplies each wealth by: 1 + λ · outcome for every λ, on both sides."""
    return (
        1.0 + 0.05 * up,
        1.0 + 0.1 * up,
        1.0 + 0.2 * up,
        1.0 + 0.4 * up,
        1.0 + 0.7 * up,
        1.0 + 0.05 * down,
        1.0 + 0.1 * down,
        1.0 + 0.2 * down,
        1.0 + 0.4 * down,
        1.0 + 0.7 * down,
    )


@lru_cache(maxsize=4_096)
def _outcome(n_a: int, err_a: int, n_b: int, err_b: int, gap: float) -> tuple[float, float, Wealths]:
    """The outcomes of the bets on either side for a pair with these counts, and the ``factors``.

    Remembered, because most pairs are of two or three labels, and so are like many others.
    """
    x = err_a / n_a - err_b / n_b
    spread = 1.0 + gap
    up, down = (x - gap) / spread, (-x - gap) / spread
    return up, down, factors(up, down)


def grown(wealths: Wealths, stake: float, by: Wealths) -> tuple[Wealths, float]:
    """Put in a stake and bet: (wealth + stake) · factor. The wealths after it, and their ``mean``.

    Written out because it is most of what watching costs.
    """
    a, b, c, d, e, v, w, x, y, z = wealths
    f0, f1, f2, f3, f4, f5, f6, f7, f8, f9 = by
    a = (a + stake) * f0
    b = (b + stake) * f1
    c = (c + stake) * f2
    d = (d + stake) * f3
    e = (e + stake) * f4
    v = (v + stake) * f5
    w = (w + stake) * f6
    x = (x + stake) * f7
    y = (y + stake) * f8
    z = (z + stake) * f9
    return (a, b, c, d, e, v, w, x, y, z), (a + b + c + d + e + v + w + x + y + z) / 10


class SequentialTest:
    """The four counts since the last pair, and the wealth of the tests."""

    __slots__ = (
        "_drift_from",
        "_gap",
        "_onset",
        "_recovery_from",
        "_stored",
        "_tolerance_from",
        "clear",
        "drift",
        "drift_raised",
        "drift_wealth",
        "err_a",
        "err_b",
        "groups",
        "label",
        "level",
        "limit",
        "n_a",
        "n_b",
        "recovery",
        "seen",
        "testing",
        "tolerance",
        "tolerance_raised",
        "tolerance_wealth",
    )

    def __init__(self, label: int, groups: tuple[int, int], settings: MonitorSettings, share: float) -> None:
        """``share`` is 1/α_j: what the tolerance test must reach."""
        self._stored: msgspec.Raw | None = None
        self.label = label
        self.groups = groups
        self.testing = False
        self.n_a = self.err_a = self.n_b = self.err_b = 0
        self.seen: Mark = (0, 0, 0, 0, 0, 0)
        self.tolerance_raised: Alert | None = None
        self.drift_raised: Alert | None = None
        self.restart(settings, share)

    def restart(self, settings: MonitorSettings, share: float) -> None:
        """Test anew under these settings; what is raised stays raised."""
        self._gap = settings.tolerance
        self.limit = share
        self.level, self.clear = float(settings.false_alarm_pairs), float(settings.clear)
        self._begin_tolerance()
        self._begin_drift()

    def begin(self, at: int) -> None:
        """Both cells have labels enough: test from this time on."""
        self.testing = True
        self.seen = (*self.seen[:5], at)
        self._begin_tolerance()
        self._begin_drift()

    def _begin_tolerance(self) -> None:
        self.tolerance = START
        self.tolerance_wealth = 1.0
        self._tolerance_from = self.seen

    def _begin_drift(self) -> None:
        self.drift = START
        self.drift_wealth = 0.0
        self.recovery = START
        self._drift_from = self._recovery_from = self.seen
        self._onset: tuple[float, float, Mark, Mark] = (1.0, 1.0, self.seen, self.seen)

    def copy(self) -> SequentialTest:
        """Tuples are replaced and never changed in place, so they may be shared."""
        other = SequentialTest.__new__(SequentialTest)
        other._stored = None
        other.label, other.groups, other.testing, other.seen = self.label, self.groups, self.testing, self.seen
        other.n_a, other.err_a, other.n_b, other.err_b = self.n_a, self.err_a, self.n_b, self.err_b
        other._gap, other.limit, other.level, other.clear = self._gap, self.limit, self.level, self.clear
        other.tolerance, other.tolerance_wealth = self.tolerance, self.tolerance_wealth
        other.tolerance_raised, other._tolerance_from = self.tolerance_raised, self._tolerance_from
        other.drift, other.drift_wealth = self.drift, self.drift_wealth
        other.drift_raised, other._drift_from = self.drift_raised, self._drift_from
        other.recovery, other._recovery_from, other._onset = self.recovery, self._recovery_from, self._onset
        return other

    def take(self, of_b: bool, wrong: bool, at: int) -> bool:
        """Count a label; True if it completed a pair.

        Every label since the last pair goes into the next. (To pair the i-th of A with the i-th of B would let the
        larger group lag behind without bound.)
        """
        if of_b:
            self.n_b += 1
            self.err_b += wrong
        else:
            self.n_a += 1
            self.err_a += wrong
        if not self.n_a or not self.n_b:
            return False
        self.bet(at)
        return True

    def bet(self, at: int) -> bool:
        """Bet on the pair that the labels counted since the last one are; False if that can change no alert.

        This is most of what watching costs, so it makes few calls.
        """
        n_a, err_a, n_b, err_b = self.n_a, self.err_a, self.n_b, self.err_b
        self.n_a = self.err_a = self.n_b = self.err_b = 0
        pairs, all_a, wrong_a, all_b, wrong_b, _ = self.seen
        self.seen = seen = (pairs + 1, all_a + n_a, wrong_a + err_a, all_b + n_b, wrong_b + err_b, at)
        up, down, by = _outcome(n_a, err_a, n_b, err_b, self._gap)
        reached = False
        if self.tolerance_raised is None:
            n = seen[0] - self._tolerance_from[0]
            self.tolerance, wealth = grown(self.tolerance, 1.0 / (n * (n + 1)), by)
            self.tolerance_wealth = wealth = wealth + 1.0 / (n + 1)
            reached = wealth >= self.limit
        if self.drift_raised is None:
            self.drift, self.drift_wealth = grown(self.drift, 1.0, by)
            reached = reached or self.drift_wealth >= self.level
        else:
            reversed_bets, _ = grown(self.recovery, 1.0, factors(-up, -down))
            self.recovery = tuple([min(wealth, LARGEST) for wealth in reversed_bets])
            reached = True
        # A difference most likely began where the product of the bets since then is largest.
        above, below, from_above, from_below = self._onset
        above *= by[_ONSET_UP]
        below *= by[_ONSET_DOWN]
        if above <= 1.0:
            above, from_above = 1.0, seen
        elif above > LARGEST:
            above = LARGEST
        if below <= 1.0:
            below, from_below = 1.0, seen
        elif below > LARGEST:
            below = LARGEST
        self._onset = (above, below, from_above, from_below)
        return reached

    @property
    def exceeds_tolerance(self) -> bool:
        """The tolerance test has just reached its threshold."""
        return self.tolerance_raised is None and self.tolerance_wealth >= self.limit

    @property
    def has_drifted(self) -> bool:
        """The drift detector has just reached its threshold."""
        return self.drift_raised is None and self.drift_wealth >= self.level

    @property
    def recovery_wealth(self) -> float:
        """Evidence that neither group errs more: that of the weaker side."""
        half = len(RATES)
        return min(mean(self.recovery[:half]), mean(self.recovery[half:]))

    @property
    def has_recovered(self) -> bool:
        return self.drift_raised is not None and self.recovery_wealth >= self.clear

    def raise_tolerance(self, number: int, at: int) -> Alert:
        """Stays raised, and its test stands still, until a person acknowledges it."""
        evidence = self._evidence(self._tolerance_from, self.tolerance_wealth, self.limit)
        self.tolerance_raised = self._alert("tolerance", number, at, evidence)
        return self.tolerance_raised

    def raise_drift(self, number: int, at: int) -> Alert:
        """From now on bet on recovery."""
        evidence = self._evidence(self._drift_from, self.drift_wealth, self.level)
        self.drift_raised = self._alert("drift", number, at, evidence)
        self.recovery, self._recovery_from = START, self.seen
        return self.drift_raised

    def end_tolerance(self) -> None:
        self.tolerance_raised = None
        self._begin_tolerance()

    def end_drift(self) -> Evidence:
        """Begin as at first; what recovery was seen in."""
        evidence = self._evidence(self._recovery_from, self.recovery_wealth, self.clear)
        self.drift_raised = None
        self._begin_drift()
        return evidence

    def _alert(self, kind: Literal["tolerance", "drift"], number: int, at: int, evidence: Evidence) -> Alert:
        return Alert(kind=kind, number=number, since=at, label=self.label, groups=self.groups, evidence=evidence)

    def _evidence(self, start: Mark, wealth: float, threshold: float) -> Evidence:
        above, below, from_above, from_below = self._onset
        onset = from_above if above >= below else from_below
        return Evidence(
            pairs=self.seen[0] - start[0],
            counts=self._since(start),
            wealth=wealth,
            threshold=threshold,
            onset=onset[5],
            recent=self._since(onset),
        )

    def _since(self, mark: Mark) -> Counts:
        _, n_a, err_a, n_b, err_b, _ = self.seen
        return Counts(n_a - mark[1], err_a - mark[2], n_b - mark[3], err_b - mark[4])

    def stored(self) -> msgspec.Raw:
        """``fields`` as bytes. They are remembered: to change the stream after this, change a copy."""
        if self._stored is None:
            self._stored = msgspec.Raw(_encode(self.fields()))
        return self._stored

    def fields(self) -> list[Any]:
        """For the stored form; ``of_fields`` reads it."""
        return [
            self.label,
            *self.groups,
            self.testing,
            (self.n_a, self.err_a, self.n_b, self.err_b),
            self.seen,
            _WEALTHS.pack(*self.tolerance),
            self.tolerance_wealth,
            self._tolerance_from,
            self.tolerance_raised,
            _WEALTHS.pack(*self.drift),
            self._drift_from,
            self.drift_raised,
            _WEALTHS.pack(*self.recovery) if self.drift_raised else None,
            self._recovery_from,
            self._onset,
        ]

    @classmethod
    def of_fields(cls, fields: list[Any], settings: MonitorSettings, share: float) -> SequentialTest:
        label, a, b, testing, counts, seen, tolerance, wealth, tolerance_from, tolerance_raised, *rest = fields
        drift, drift_from, drift_raised, recovery, recovery_from, onset = rest
        stream = cls(label, (a, b), settings, share)
        stream.testing = testing
        stream.n_a, stream.err_a, stream.n_b, stream.err_b = counts
        stream.seen = tuple(seen)
        stream.tolerance, stream.tolerance_wealth = _WEALTHS.unpack(tolerance), wealth
        stream._tolerance_from = tuple(tolerance_from)
        stream.tolerance_raised = msgspec.convert(tolerance_raised, Alert) if tolerance_raised else None
        stream.drift, stream._drift_from = _WEALTHS.unpack(drift), tuple(drift_from)
        stream.drift_wealth = mean(stream.drift)
        stream.drift_raised = msgspec.convert(drift_raised, Alert) if drift_raised else None
        stream.recovery = _WEALTHS.unpack(recovery) if recovery else START
        stream._recovery_from = tuple(recovery_from)
        stream._onset = (onset[0], onset[1], tuple(onset[2]), tuple(onset[3]))
        return stream
