"""One decision: what the experts advised, how likely each label was and why, and what became of the decision.

explain          recompute the decision
label_history    its labels, or its expiry
explain_output   what ``gforce explain`` prints
"""
