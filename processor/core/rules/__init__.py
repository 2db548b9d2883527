"""From counts to who is asked.

estimates   weights, error rates, base rates, the cross-instance matrix
problems    the four objectives as least-squares problems
solver      the exact minimiser; ``reference`` is the paper's, to hold it against
policies    G-FORCE and the two baselines: counters to rules
rule        a rule decides: instance, expert, label, and how likely each label was
draws       randomness from a keyed hash of the decision's id
"""
