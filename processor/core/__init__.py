"""The pure part: no I/O, no clock, no randomness, no logging. Each line below knows only what stands under it.

stream              one partition: records in, decisions and writes out
watching            drift of the error rates, noticed with a stated rate of false alarms
learner, together   one learner as an object; many of them at once
figures             what a person wants to know about a learner
rules               from counts to who is asked
counting            what is remembered: integers
settings            what a person may choose
cases, advice       what a caller hands in and gets back; what is said about a case
exact, errors       arithmetic that is the same on every machine; what can be wrong with what a caller hands in
compiled            inner loops in Cython, each beside its plain version in the module that calls it

What stands in ``__all__`` is for whoever uses the learner from Python; ``docs/python.md`` shows it at work.
"""

from .cases import Decision, Request
from .counting.axes import Axes
from .counting.codec import decode_state, encode_state
from .counting.counters import ABSENT, Counters
from .counting.state import State
from .errors import GForceError, IncompatibleStateError, InvalidInputError, InvalidSettingsError
from .figures.metrics import Fairness, fairness
from .learner import Learner
from .rules.policies import rule_of
from .rules.rule import Rule
from .settings import Balance, Policy, Prior, Settings
from .together import IN_FORCE

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
