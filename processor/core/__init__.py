"""The pure part: no I/O, no clock, no randomness, no logging. Each line below knows only what stands under it.

stream              one partition: records in, decisions and writes out
events              requests, labels and decisions on the wire, and why one is refused
alerts              drift of the error rates, noticed with a stated rate of false alarms
learner, metrics    from counts to who is asked; what a person wants to know about a learner
settings, advice    what a person may choose; what experts said about a case
exact, errors       arithmetic that is the same on every machine; what can be wrong with what a caller hands in
native              inner functions in two tiers: Cython, and their reference in Python

What stands in ``__all__`` is for whoever uses the learner from Python; ``docs/python.md`` shows it at work.
"""

from .errors import GForceError, IncompatibleStateError, InvalidInputError, InvalidSettingsError
from .learner.axes import Axes
from .learner.batch import IN_FORCE
from .learner.cases import Decision, Request
from .learner.codec import decode_state, encode_state
from .learner.counters import ABSENT, Counters
from .learner.learner import Learner
from .learner.policies import rule_of
from .learner.rule import Rule
from .learner.state import State
from .metrics.rates import Fairness, fairness
from .settings import Balance, Policy, Prior, Settings

__all__ = [
    "ABSENT",
    "IN_FORCE",
    "Axes",
    "Balance",
    "Counters",
    "Decision",
    "Fairness",
    "GForceError",
    "IncompatibleStateError",
    "InvalidInputError",
    "InvalidSettingsError",
    "Learner",
    "Policy",
    "Prior",
    "Request",
    "Rule",
    "Settings",
    "State",
    "decode_state",
    "encode_state",
    "fairness",
    "rule_of",
]
