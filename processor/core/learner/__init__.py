"""The learner: from integers that are counted to who is asked.

cases        what a caller hands in and gets back
axes         the names behind the indices
counters     the counts, and adding to them
state        the lifetime's counters, and a ring of time buckets
codec        the bytes of a state
estimates    weights, error rates, base rates, the cross-instance matrix
objectives   the four objectives as least-squares problems
solver       the exact minimiser; ``slsqp`` is the paper's, to compare with
policies     G-FORCE and the two baselines: counters to rules
rule         a rule decides: instance, expert, label, and how likely each label was
draws        randomness from a keyed hash of the decision's id
learner      one learner as an object
batch        many learners at once
"""
